/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions that are files: found as they were left, also after kill -9, locked for
 * one, limited by their mount, and gone when removed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"

static const char *folder;
static char path[64];

static int open_name(struct actmem *am, const char *name, uint64_t length, uint32_t flags,
		     struct actmem_region **region)
{
	struct actmem_region_options options = { .size = sizeof(options), .length = length };

	return actmem_region_open(am, name, &options, flags, region);
}

static struct actmem_region *opened(struct actmem *am, uint32_t flags)
{
	struct actmem_region *region;

	if (open_name(am, path, LENGTH, flags, &region))
		tap_bail("actmem_region_open");
	return region;
}

static struct stat file_of(const char *name)
{
	struct stat file;

	if (stat(name, &file))
		tap_bail("%s: %s", name, strerror(errno));
	return file;
}

/* What `actmem list` has it from. */
static bool is_shown_by_name(const struct actmem_region *region)
{
	char link[64], shown[PATH_MAX] = "", full[PATH_MAX];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", actmem_region_fd(region));
	if (readlink(link, shown, sizeof(shown) - 1) < 0 || !realpath(path, full))
		tap_bail("readlink: %s", strerror(errno));
	return !strcmp(shown, full);
}

static void test_made_and_found(struct actmem *am)
{
	struct actmem_region *region, *second;
	struct actmem_region_info info;
	struct stat before, now;
	char *memory;

	returns(open_name(am, path, LENGTH, 0, &region), -ENOENT);
	says(path);
	region = opened(am, ACTMEM_OPEN_CREATE);
	ok(!actmem_region_found(region), "it was made");
	info = info_or_bail(region);
	ok(info.named && !strcmp(info.name, "region") && info.length == LENGTH &&
	   info.allocated_bytes == LENGTH && info.pages == pages_wanted(),
	   "it is called as its file, and is complete");
	ok(is_shown_by_name(region), "/proc shows its name");
	memory = memory_or_bail(region);
	ok(all_bytes(memory, LENGTH, 0), "it is zeroed");
	memset(memory, 0x5a, LENGTH);
	before = file_of(path);
	ok(before.st_size == LENGTH && before.st_blocks * 512 == LENGTH &&
	   (before.st_mode & 07777) == 0600, "ls and du tell its length, and that it is private");
	second = opened(am, ACTMEM_OPEN_CREATE);
	ok(actmem_region_found(second) && memory_or_bail(second) != memory &&
	   !memcmp(memory_or_bail(second), memory, LENGTH), "a second opening is the same memory");
	returns(actmem_region_close(second), 0);
	returns(actmem_region_close(region), 0);

	returns(open_name(am, path, 0, 0, &region), 0);
	memory = memory_or_bail(region);
	now = file_of(path);
	ok(actmem_region_found(region) && actmem_region_length(region) == LENGTH,
	   "it is found, of whatever length it has");
	ok(memory[0] == 0x5a && !memcmp(memory, memory + 1, LENGTH - 1), "it is as it was left");
	ok(now.st_ino == before.st_ino && now.st_blocks == before.st_blocks,
	   "nothing was allocated anew");
	ok(!info_or_bail(region).demand_faults, "no page had to come");
	ok(info_or_bail(region).id && info_or_bail(region).mapped_bytes == LENGTH, "and it is told of");
	returns(actmem_region_close(region), 0);
}

static void test_refusals(struct actmem *am)
{
	struct actmem_region *region;
	char other[sizeof(path)];
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .name = "label",
	};

	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_EXCLUSIVE, &region),
		-EEXIST);
	says("there already");
	returns(open_name(am, path, 2 * LENGTH, ACTMEM_OPEN_CREATE, &region), -EEXIST);
	says("8.0 MiB, not with 16.0 MiB");
	returns(open_name(am, path, 2 * LENGTH, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_ANY_LENGTH,
			  &region), 0);
	ok(actmem_region_length(region) == LENGTH, "any length will do if that is said");
	returns(actmem_region_close(region), 0);
	returns(chown(path, 65534, (gid_t)-1), 0);
	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_OWN, &region), -EACCES);
	says("belongs to user 65534");
	returns(chown(path, geteuid(), (gid_t)-1), 0);
	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_OWN, &region), 0);
	returns(actmem_region_close(region), 0);
	returns(open_name(am, path, 0, ACTMEM_OPEN_CREATE, &region), -EINVAL);
	returns(open_name(am, path, LENGTH, 1u << 31, &region), -EINVAL);
	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_EXCLUSIVE, &region), -EINVAL);
	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_READ, &region), -EINVAL);
	returns(open_name(am, "", LENGTH, ACTMEM_OPEN_CREATE, &region), -EINVAL);
	returns(open_name(am, folder, LENGTH, ACTMEM_OPEN_CREATE, &region), -EINVAL);
	says("is a folder; add a name: ");
	returns(actmem_region_open(am, path, &options, 0, &region), -EINVAL);
	snprintf(other, sizeof(other), "%s/no/such", folder);
	returns(open_name(am, other, LENGTH, ACTMEM_OPEN_CREATE, &region), -ENOENT);
	snprintf(other, sizeof(other), "%s/", folder);
	returns(open_name(am, other, LENGTH, ACTMEM_OPEN_CREATE, &region), -EINVAL);
	returns(open_name(am, "/proc/region", LENGTH, ACTMEM_OPEN_CREATE, &region), -EOPNOTSUPP);
	says("proc");
	says("mount -t actmem");
	snprintf(other, sizeof(other), "%s/more", folder);
	returns(open_name(am, other, MOUNT_BYTES, ACTMEM_OPEN_CREATE, &region), -ENOSPC);
	says("size=");
	says(on_driver(am) || pages_wanted() != ACTMEM_PAGES_2M ? "remount" : "mount another one");
	ok(count_files(folder) == 1, "and nothing is left of it");
}

static void test_other_backend(struct actmem *am)
{
	struct actmem_options options;
	struct actmem_region *region;
	struct actmem *memfd;

	if (!on_driver(am)) {
		returns(open_name(am, "bare", LENGTH, ACTMEM_OPEN_CREATE, &region), -ENOENT);
		says("no actmem file system is mounted");
		says(folder);
		return;
	}
	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	if (actmem_open(&memfd, &options))
		tap_bail("actmem_open");
	returns(open_name(memfd, path, LENGTH, 0, &region), -EINVAL);
	says("memfd");
	returns(actmem_close(memfd), 0);
	options.backend = ACTMEM_BACKEND_DRIVER;
	returns(open_name(am, "/dev/shm/region", LENGTH, ACTMEM_OPEN_CREATE, &region), -EINVAL);
	/* In the file system that is mounted first, which is the only one. */
	returns(open_name(am, "region", LENGTH, 0, &region), 0);
	returns(actmem_region_close(region), 0);
}

static void test_read_only(struct actmem *am)
{
	struct actmem_region *region;
	char *memory;

	returns(open_name(am, path, 0, ACTMEM_OPEN_READ, &region), 0);
	memory = memory_or_bail(region);
	ok(memory[0] == 0x5a && memory[LENGTH - 1] == 0x5a, "it can be read");
	ok(mprotect(memory, LENGTH, PROT_READ | PROT_WRITE) && errno == EACCES,
	   "not even mprotect makes it writable");
	returns(actmem_region_populate(region, 0, LENGTH), -EPERM);
	returns(actmem_region_discard(region, 0, LENGTH), -EPERM);
	returns(actmem_region_close(region), 0);
}

static void test_passed(struct actmem *am)
{
	struct actmem_region *region = opened(am, 0), *second;
	int fd = dup(actmem_region_fd(region));

	returns(actmem_region_close(region), 0);
	returns(actmem_region_from_fd(am, fd, &second), 0);
	close(fd);
	ok(memory_or_bail(second)[0] == 0x5a && info_or_bail(second).named && !strcmp(info_or_bail(second).name, "region"),
	   "its descriptor is the region, name and all");
	returns(actmem_region_close(second), 0);
}

static bool hold_locked(void *context)
{
	struct actmem_region *region;
	struct actmem *am;

	if (actmem_open(&am, NULL) ||
	    open_name(am, path, LENGTH, ACTMEM_OPEN_LOCK, &region))
		return false;
	strcpy(memory_or_bail(region), "by the one that was killed");
	return true;
}

static void test_lock(struct actmem *am)
{
	pid_t child = holder(hold_locked, NULL);
	struct actmem_region *region, *second;
	struct stat before = file_of(path), now;
	char words[32];

	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_LOCK, &region), -EBUSY);
	snprintf(words, sizeof(words), "process %d (names)", child);
	says(words);
	returns(open_name(am, path, LENGTH, 0, &region), 0);
	ok(memory_or_bail(region)[0] == 'b', "who asks for no lock is not kept out");
	returns(actmem_region_close(region), 0);
	kill_and_wait(child);

	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_LOCK, &region), 0);
	now = file_of(path);
	ok(!strcmp(memory_or_bail(region), "by the one that was killed"),
	   "what a killed process wrote is there");
	ok(memory_or_bail(region)[LENGTH - 1] == 0x5a && now.st_ino == before.st_ino &&
	   now.st_blocks == before.st_blocks, "and nothing was allocated anew");
	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_LOCK, &second), -EBUSY);
	returns(actmem_region_close(region), 0);
	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_LOCK, &second), 0);
	returns(actmem_region_close(second), 0);
}

static void test_removed(struct actmem *am)
{
	struct actmem_region *region = opened(am, 0), *second;
	uint64_t id = info_or_bail(region).id;

	returns(unlink(path), 0);
	ok(memory_or_bail(region)[LENGTH - 1] == 0x5a, "what is removed stays while it is used");
	second = opened(am, ACTMEM_OPEN_CREATE);
	ok(!actmem_region_found(second) && info_or_bail(second).id != id && !memory_or_bail(second)[LENGTH - 1],
	   "another one of that name is made, zeroed");
	returns(actmem_region_close(region), 0);
	returns(actmem_region_close(second), 0);
	returns(unlink(path), 0);
	ok(!count_files(folder), "no file is left");
}

/* Whoever may read a directory can lock it, and keeps nobody from making files in it. */
static void test_folder_locked(struct actmem *am)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct actmem_region *region;

	if (fd < 0 || chmod(folder, 0755) || flock(fd, LOCK_EX))
		tap_bail("%s: %s", folder, strerror(errno));
	region = opened(am, ACTMEM_OPEN_CREATE);
	ok(!actmem_region_found(region), "it is made in a directory that somebody else has locked");
	returns(actmem_region_close(region), 0);
	close(fd);
	returns(unlink(path), 0);
	if (chmod(folder, 0700))
		tap_bail("%s: %s", folder, strerror(errno));
}

/* An empty file is what touch(1) makes, or a driver's maker that was killed. */
static void test_empty(struct actmem *am)
{
	struct actmem_region *region;
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);

	close(fd);
	if (on_driver(am)) {
		returns(open_name(am, path, LENGTH, 0, &region), -ENOENT);
		region = opened(am, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_EXCLUSIVE);
		ok(!actmem_region_found(region) && info_or_bail(region).allocated_bytes == LENGTH,
		   "an empty file is completed");
		returns(actmem_region_close(region), 0);
	} else {
		returns(open_name(am, path, LENGTH, ACTMEM_OPEN_CREATE, &region), -EINVAL);
		says("not a region");
	}
	returns(unlink(path), 0);
}

static void test_lazy(struct actmem *am)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .flags = ACTMEM_REGION_LAZY,
	};
	struct actmem_region *region;

	returns(actmem_region_open(am, path, &options, ACTMEM_OPEN_CREATE, &region), 0);
	ok(!info_or_bail(region).allocated_bytes, "a lazy one has no pages");
	returns(actmem_region_populate(region, 0, LENGTH / 2), 0);
	memset(memory_or_bail(region), 1, LENGTH / 2);
	returns(actmem_region_close(region), 0);
	region = opened(am, 0);
	ok(info_or_bail(region).allocated_bytes == LENGTH / 2, "those that were missing still are");
	returns(actmem_region_populate(region, 0, LENGTH), 0);
	ok(memory_or_bail(region)[LENGTH / 2 - 1] == 1 && !memory_or_bail(region)[LENGTH / 2] &&
	   info_or_bail(region).allocated_bytes == LENGTH, "and can be had");
	returns(actmem_region_close(region), 0);
	returns(unlink(path), 0);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am;

	skip_without_root();
	am = open_or_bail();
	folder = mount_own(am);
	snprintf(path, sizeof(path), "%s/region", folder);
	test_made_and_found(am);
	test_refusals(am);
	test_other_backend(am);
	test_read_only(am);
	test_passed(am);
	test_lock(am);
	test_removed(am);
	test_folder_locked(am);
	test_empty(am);
	test_lazy(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	unmount_own(folder);
	return tap_end();
}
