/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A memory cgroup that is too small refuses a region in words, and nobody is
 * killed. The cgroup is made for the test, in whichever version is there.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

#define LIMIT		(32 * MIB)
#define TOO_LONG	(64 * MIB)

struct group {
	char mount[32];
	char folder[64];
	const char *limit_file;
};

static bool put(const char *folder, const char *file, const char *text)
{
	char path[128];
	bool written;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return written;
}

/* The mount is this process's own and goes with it. */
static bool make_group(struct group *group)
{
	char limit[32];

	snprintf(group->mount, sizeof(group->mount), "/tmp/actmem-XXXXXX");
	if (!mkdtemp(group->mount) || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return false;
	/*
	 * The first version only where the controller is in use there already:
	 * moving it to another version with pages charged makes the kernel's
	 * counters underflow, of which it warns.
	 */
	group->limit_file = "memory.max";
	if (mount("cgroup", group->mount, "cgroup2", 0, NULL) ||
	    !put(group->mount, "cgroup.subtree_control", "+memory")) {
		umount2(group->mount, MNT_DETACH);
		group->limit_file = "memory.limit_in_bytes";
		if (mount("cgroup", group->mount, "cgroup", 0, "memory"))
			return false;
	}
	snprintf(group->folder, sizeof(group->folder), "%s/actmem-test-%d", group->mount, getpid());
	snprintf(limit, sizeof(limit), "%llu", LIMIT);
	return !mkdir(group->folder, 0755) && put(group->folder, group->limit_file, limit);
}

static void remove_group(const struct group *group)
{
	if (*group->folder)
		rmdir(group->folder);
	umount2(group->mount, MNT_DETACH);
	rmdir(group->mount);
}

/* Hugetlb pages are counted by another controller. */
static bool is_counted(struct actmem *am)
{
	return on_driver(am) || pages_wanted() != ACTMEM_PAGES_2M;
}

static bool refused_within(void *context)
{
	const struct group *group = context;
	struct actmem_region_options options;
	struct actmem_region *region;
	struct actmem *am;
	int error;

	if (!put(group->folder, "cgroup.procs", "0") || actmem_open(&am, NULL))
		return false;
	ACTMEM_INIT(&options);
	options.length = TOO_LONG;
	error = actmem_region_create(am, &options, &region);
	if (!is_counted(am))
		return !error && !actmem_region_close(region) && !actmem_close(am);
	printf("# %s\n", actmem_error());
	if (error != -ENOMEM || !strstr(actmem_error(), "memory cgroup") ||
	    !strstr(actmem_error(), "64.0 MiB wanted") ||
	    !strstr(actmem_error(), strrchr(group->folder, '/')) ||
	    !strstr(actmem_error(), group->limit_file))
		return false;
	options.length = LENGTH;
	return !actmem_region_create(am, &options, &region) && !actmem_region_close(region) &&
	       !actmem_close(am);
}

int main(void)
{
	struct group group = { 0 };

	if (make_group(&group))
		ok(in_child(refused_within, &group),
		   "a memory cgroup refuses: bytes and knob are named, and less can be had");
	else
		tap_skip("no memory cgroup can be made here (%s)", strerror(errno));
	remove_group(&group);
	return tap_end();
}
