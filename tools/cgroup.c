// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Finds this process's memory cgroup and the limit that holds. */
#include <errno.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cgroup.h"
#include "procfile.h"

static bool list_has(const char *list, const char *word)
{
	size_t length = strlen(word);

	while (list) {
		if (!strncmp(list, word, length) && (list[length] == ',' || !list[length]))
			return true;
		list = strchr(list, ',');
		if (list)
			list++;
	}
	return false;
}

/*
 * Lines are "ID:CONTROLLERS:PATH". Where version 1 has the memory controller,
 * version 2's line is there as well and says nothing of memory.
 */
static int find_path(struct memory_cgroup *cgroup, const char *cgroup_file)
{
	FILE *file = fopen(cgroup_file, "re");
	char *line = NULL;
	size_t size = 0;
	ssize_t length;

	if (!file)
		return -errno;
	while ((length = getline(&line, &size, file)) > 0) {
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		int version;

		if (!path)
			continue;
		line[length - 1] = '\0';
		*path++ = '\0';
		controllers++;
		if (list_has(controllers, "memory"))
			version = 1;
		else if (!*controllers && !cgroup->version)
			version = 2;
		else
			continue;
		cgroup->version = version;
		snprintf(cgroup->path, sizeof(cgroup->path), "%s", path);
		if (version == 1)
			break;
	}
	free(line);
	fclose(file);
	return 0;
}

static int find_mount(char *mount, size_t size, int version, const char *mounts_file)
{
	FILE *file = setmntent(mounts_file, "re");
	const struct mntent *entry;
	int err = -ENOENT;

	if (!file)
		return -errno;
	while (err && (entry = getmntent(file))) {
		if (version == 1 ? !strcmp(entry->mnt_type, "cgroup") && hasmntopt(entry, "memory")
				 : !strcmp(entry->mnt_type, "cgroup2")) {
			snprintf(mount, size, "%s", entry->mnt_dir);
			err = 0;
		}
	}
	endmntent(file);
	return err;
}

/* From the cgroup's own folder up to the mount point. */
static void find_tightest(struct memory_cgroup *cgroup, char *folder, size_t mount_length)
{
	const char *limit_file = cgroup->version == 1 ? "memory.limit_in_bytes" : "memory.max";
	const char *used_file = cgroup->version == 1 ? "memory.usage_in_bytes" : "memory.current";
	uint64_t limit, used, room = UINT64_MAX;
	bool own = true;

	for (;;) {
		char *slash;

		if (!procfile_number(&used, "%s/%s", folder, used_file)) {
			if (own)
				cgroup->used_bytes = used;
			own = false;
			/* Version 1 writes "none" as the largest multiple of the page. */
			if (!procfile_number(&limit, "%s/%s", folder, limit_file) &&
			    limit < INT64_MAX / 65536 * 65536 &&
			    (limit > used ? limit - used : 0) < room) {
				room = limit > used ? limit - used : 0;
				cgroup->limit_bytes = limit;
				cgroup->used_bytes = used;
			}
		}
		slash = strrchr(folder, '/');
		if (!slash || (size_t)(slash - folder) < mount_length)
			return;
		*slash = '\0';
	}
}

int memory_cgroup_read(struct memory_cgroup *cgroup, const char *cgroup_file,
		       const char *mounts_file)
{
	char folder[2 * PATH_MAX];
	size_t mount_length;
	int err;

	memset(cgroup, 0, sizeof(*cgroup));
	cgroup->limit_bytes = UINT64_MAX;
	err = find_path(cgroup, cgroup_file);
	if (err || !cgroup->version)
		return err;
	err = find_mount(folder, PATH_MAX, cgroup->version, mounts_file);
	if (err == -ENOENT) {
		cgroup->version = 0;
		return 0;
	}
	if (err)
		return err;
	mount_length = strlen(folder);

	/*
	 * In a container the path may be the host's, or lead out of the
	 * namespace; the mount is then the container's own cgroup.
	 */
	if (!strstr(cgroup->path, "/..") && strcmp(cgroup->path, "/")) {
		snprintf(folder + mount_length, sizeof(folder) - mount_length, "%s", cgroup->path);
		if (access(folder, F_OK))
			folder[mount_length] = '\0';
	}
	find_tightest(cgroup, folder, mount_length);
	return 0;
}
