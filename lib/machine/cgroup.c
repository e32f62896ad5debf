/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the memory, dmem and hugetlb cgroups of this process, and the tightest limit of each.
 */
#include <errno.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine/cgroup.h"
#include "machine/sysfile.h"

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
 * Finds the path of the controller's cgroup. Each line of the file is "ID:CONTROLLERS:PATH". A line
 * of version 1 that names the controller takes precedence over the line of version 2.
 */
static int find_path(struct memory_cgroup *cgroup, const char *controller,
		     const char *cgroup_file)
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
		if (list_has(controllers, controller))
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

static int find_mount(char *mount, size_t size, int version, const char *controller,
		      const char *mounts_file)
{
	FILE *file = setmntent(mounts_file, "re");
	struct mntent entry;
	char line[4096];
	int error = -ENOENT;

	if (!file)
		return -errno;
	while (error && getmntent_r(file, &entry, line, sizeof(line))) {
		if (version == 1 ? !strcmp(entry.mnt_type, "cgroup") && hasmntopt(&entry, controller)
				 : !strcmp(entry.mnt_type, "cgroup2")) {
			snprintf(mount, size, "%s", entry.mnt_dir);
			error = 0;
		}
	}
	endmntent(file);
	return error;
}

static const struct files {
	const char *limit, *used;
	const char *cache[2];		/* lines of memory.stat with droppable page cache */
} files[] = {
	[1] = { "memory.limit_in_bytes", "memory.usage_in_bytes",
		{ "\ntotal_inactive_file ", "\ntotal_active_file " } },
	[2] = { "memory.max", "memory.current", { "\ninactive_file ", "\nactive_file " } },
};

/* Returns @used without page cache, which the kernel drops first. */
static uint64_t used_without_cache(const char *folder, const struct files *names, uint64_t used)
{
	char path[CGROUP_FILE_MAX], text[8192];
	uint64_t cache;

	snprintf(path, sizeof(path), "%s/memory.stat", folder);
	if (sysfile_read(path, text, sizeof(text)))
		return used;
	cache = sysfile_number(text, names->cache[0]) + sysfile_number(text, names->cache[1]);
	return used > cache ? used - cache : 0;
}

/*
 * Records the limit of @folder if this limit leaves fewer bytes than each limit seen so far.
 * Returns true if it recorded the limit.
 */
static bool keep_tightest(struct cgroup_limit *limit, uint64_t most, uint64_t used,
			  const char *folder, const char *name)
{
	uint64_t left = used < most ? most - used : 0;

	if (*limit->file && left >= limit->available_bytes)
		return false;
	limit->limit_bytes = most;
	limit->used_bytes = used;
	limit->available_bytes = left;
	snprintf(limit->file, sizeof(limit->file), "%s/%s", folder, name);
	return true;
}

/* Changes @folder to its parent. Returns false at the mount point. */
static bool go_up(char *folder, size_t mount_length)
{
	char *slash = strrchr(folder, '/');

	if (!slash || (size_t)(slash - folder) < mount_length)
		return false;
	*slash = '\0';
	return true;
}

/* Finds the tightest limit in the cgroup's own folder and its parents up to the mount point. */
static void find_tightest(struct memory_cgroup *cgroup, char *folder, size_t mount_length)
{
	const struct files *names = &files[cgroup->version];
	uint64_t limit, used;
	bool own = true;

	do {
		if (sysfile_value(&used, "%s/%s", folder, names->used))
			continue;
		if (own)
			cgroup->tightest.used_bytes = used;
		own = false;
		/* Version 1 reports "no limit" as the largest multiple of the page size. */
		if (sysfile_value(&limit, "%s/%s", folder, names->limit) ||
		    limit >= INT64_MAX / 65536 * 65536)
			continue;
		if (keep_tightest(&cgroup->tightest, limit, used_without_cache(folder, names, used),
				  folder, names->limit))
			cgroup->tightest.used_bytes = used;
	} while (go_up(folder, mount_length));
}

/*
 * Finds the path of the cgroup's folder. The first *@mount_length bytes of @folder are the mount
 * point. Sets cgroup->version to 0 if there is no such cgroup.
 */
static int find_folder(struct memory_cgroup *cgroup, const char *controller,
		       char folder[CGROUP_PATH_MAX], size_t *mount_length,
		       const char *cgroup_file, const char *mounts_file)
{
	size_t room;
	int error;

	memset(cgroup, 0, sizeof(*cgroup));
	error = find_path(cgroup, controller, cgroup_file);
	if (error || !cgroup->version)
		return error;
	error = find_mount(folder, CGROUP_PATH_MAX, cgroup->version, controller, mounts_file);
	if (error == -ENOENT) {
		cgroup->version = 0;
		return 0;
	}
	if (error)
		return error;
	*mount_length = strlen(folder);

	/*
	 * In a container, the path can be valid only on the host, or can lead out of the namespace.
	 * Then use the mount point, which is the container's own cgroup.
	 */
	if (!strstr(cgroup->path, "/..") && strcmp(cgroup->path, "/")) {
		room = CGROUP_PATH_MAX - *mount_length;
		if ((size_t)snprintf(folder + *mount_length, room, "%s", cgroup->path) >= room ||
		    access(folder, F_OK))
			folder[*mount_length] = '\0';
	}
	return 0;
}

int memory_cgroup_read(struct memory_cgroup *cgroup, const char *cgroup_file,
		       const char *mounts_file)
{
	char folder[CGROUP_PATH_MAX];
	size_t mount_length;
	int error = find_folder(cgroup, "memory", folder, &mount_length, cgroup_file,
				mounts_file);

	cgroup->tightest.limit_bytes = UINT64_MAX;
	cgroup->tightest.available_bytes = UINT64_MAX;
	if (!error && cgroup->version)
		find_tightest(cgroup, folder, mount_length);
	return error;
}

/*
 * Returns the number in the line "REGION NUMBER" of a file. Returns UINT64_MAX if the line is
 * "REGION max", or if no line names the region.
 */
static uint64_t dmem_value(const char *folder, const char *name, const char *region)
{
	char path[CGROUP_FILE_MAX], text[8192], *line, *rest = text;
	size_t length = strlen(region);

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (sysfile_read(path, text, sizeof(text)))
		return UINT64_MAX;
	while ((line = strsep(&rest, "\n")))
		if (!strncmp(line, region, length) && line[length] == ' ')
			break;
	return line && line[length + 1] != 'm' ? strtoull(line + length, NULL, 10) : UINT64_MAX;
}

bool dmem_limit_read(struct cgroup_limit *limit, const char *region, const char *cgroup_file,
		     const char *mounts_file)
{
	struct memory_cgroup cgroup;
	char folder[CGROUP_PATH_MAX];
	size_t mount_length;
	uint64_t most, used;

	*limit->file = '\0';
	if (find_folder(&cgroup, "memory", folder, &mount_length, cgroup_file, mounts_file) ||
	    cgroup.version != 2)
		return false;
	do {
		most = dmem_value(folder, "dmem.max", region);
		used = dmem_value(folder, "dmem.current", region);
		if (most != UINT64_MAX && used != UINT64_MAX)
			keep_tightest(limit, most, used, folder, "dmem.max");
	} while (go_up(folder, mount_length));
	return *limit->file;
}

bool hugetlb_limit_read(struct cgroup_limit *limit, uint64_t page_bytes, const char *cgroup_file,
			const char *mounts_file)
{
	static const char *const counters[] = { "", "rsvd." };
	const char *pages = page_bytes >> 30 ? "1GB" : "2MB";
	struct memory_cgroup cgroup;
	char folder[CGROUP_PATH_MAX], name[32];
	size_t mount_length;
	uint64_t most, used;
	unsigned int i;

	*limit->file = '\0';
	if (find_folder(&cgroup, "hugetlb", folder, &mount_length, cgroup_file, mounts_file) ||
	    !cgroup.version)
		return false;
	do {
		for (i = 0; i < 2; i++) {
			snprintf(name, sizeof(name), "hugetlb.%s.%s%s", pages, counters[i],
				 cgroup.version == 2 ? "current" : "usage_in_bytes");
			if (sysfile_value(&used, "%s/%s", folder, name))
				continue;
			snprintf(name, sizeof(name), "hugetlb.%s.%s%s", pages, counters[i],
				 cgroup.version == 2 ? "max" : "limit_in_bytes");
			/* Version 1 reports "no limit" as the largest multiple of the page size. */
			if (!sysfile_value(&most, "%s/%s", folder, name) &&
			    most <= INT64_MAX - page_bytes)
				keep_tightest(limit, most, used, folder, name);
		}
	} while (go_up(folder, mount_length));
	return *limit->file;
}

void memory_folder_find(struct memory_folder *folder, const char *cgroup_file,
			const char *mounts_file)
{
	struct memory_cgroup cgroup;

	if (find_folder(&cgroup, "memory", folder->path, &folder->mount_length, cgroup_file,
			mounts_file) || cgroup.version != 2)
		*folder->path = '\0';
}

bool memory_high_read(struct cgroup_limit *limit, const struct memory_folder *place)
{
	char folder[CGROUP_PATH_MAX];
	uint64_t high, used;

	*limit->file = '\0';
	if (!*place->path)
		return false;
	memcpy(folder, place->path, sizeof(folder));
	do {
		if (sysfile_value(&high, "%s/memory.high", folder) || high == UINT64_MAX ||
		    sysfile_value(&used, "%s/memory.current", folder))
			continue;
		keep_tightest(limit, high, used_without_cache(folder, &files[2], used), folder,
			      "memory.high");
	} while (go_up(folder, place->mount_length));
	return *limit->file;
}

uint64_t memory_cgroup_available(char limit_file[CGROUP_FILE_MAX])
{
	struct memory_cgroup cgroup;

	limit_file[0] = '\0';
	if (memory_cgroup_read(&cgroup, "/proc/self/cgroup", "/proc/self/mounts"))
		return UINT64_MAX;
	memcpy(limit_file, cgroup.tightest.file, sizeof(cgroup.tightest.file));
	return cgroup.tightest.available_bytes;
}
