/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions that are files: found as they were left, also after kill -9, locked for
 * one, limited by their mount, and gone when removed. Of many that make one at once,
 * one makes it, whoever finds it finds it complete, and nothing is left half made.
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

#define RACERS		6
#define ROUNDS		8

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

	snprintf(path, sizeof(path), "%s/region", mount_folder);
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
	const uint32_t create = ACTMEM_OPEN_CREATE;
	char other[sizeof(path)], beyond[sizeof(path)];
	const struct {
		const char *name;
		uint64_t length;
		uint32_t flags;
		int error;
		const char *words;
	} bad[] = {
		{ path, 0, create, -EINVAL, "length is 0" },
		{ path, LENGTH, 1u << 31, -EINVAL, "flags 0x80000000" },
		{ path, LENGTH, ACTMEM_OPEN_EXCLUSIVE, -EINVAL, "needs ACTMEM_OPEN_CREATE" },
		{ path, LENGTH, create | ACTMEM_OPEN_READ, -EINVAL, "cannot be combined" },
		{ "", LENGTH, create, -EINVAL, "name of a region is empty" },
		{ mount_folder, LENGTH, create, -EINVAL, "is a folder; add a name: " },
		{ beyond, LENGTH, create, -ENOENT, "cannot check" },
		{ other, LENGTH, create, -EINVAL, "not the name of a file" },
		{ "/proc/region", LENGTH, create, -EOPNOTSUPP, "proc" },
	};
	struct actmem_region *region;
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .name = "label",
	};
	unsigned int i;

	returns(open_name(am, path, LENGTH, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_EXCLUSIVE, &region),
		-EEXIST);
	says("exists already");
	returns(open_name(am, path, 2 * LENGTH, ACTMEM_OPEN_CREATE, &region), -EEXIST);
	says("with 8.0 MiB, but 16.0 MiB were requested");
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
	snprintf(beyond, sizeof(beyond), "%s/no/such", mount_folder);
	snprintf(other, sizeof(other), "%s/", mount_folder);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		returns(open_name(am, bad[i].name, bad[i].length, bad[i].flags, &region), bad[i].error);
		says(bad[i].words);
	}
	says("mount -t actmem");
	returns(actmem_region_open(am, path, &options, 0, &region), -EINVAL);
	snprintf(other, sizeof(other), "%s/more", mount_folder);
	returns(open_name(am, other, MOUNT_BYTES, ACTMEM_OPEN_CREATE, &region), -ENOSPC);
	says("size=");
	says(on_driver(am) || pages_wanted() != ACTMEM_PAGES_2M ? "remount" : "mount another hugetlbfs");
	ok(count_files(mount_folder) == 1, "and nothing is left of it");
}

static void test_other_backend(struct actmem *am)
{
	struct actmem_options options;
	struct actmem_region *region;
	struct actmem *memfd;

	if (!on_driver(am)) {
		returns(open_name(am, "bare", LENGTH, ACTMEM_OPEN_CREATE, &region), -ENOENT);
		says("no actmem file system is mounted");
		says(mount_folder);
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
	ok(!count_files(mount_folder), "no file is left");
}

/* Whoever may read a directory can lock it, and keeps nobody from making files in it. */
static void test_folder_locked(struct actmem *am)
{
	int fd = open(mount_folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct actmem_region *region;

	if (fd < 0 || chmod(mount_folder, 0755) || flock(fd, LOCK_EX))
		tap_bail("%s: %s", mount_folder, strerror(errno));
	region = opened(am, ACTMEM_OPEN_CREATE);
	ok(!actmem_region_found(region), "it is made in a directory that somebody else has locked");
	returns(actmem_region_close(region), 0);
	close(fd);
	returns(unlink(path), 0);
	if (chmod(mount_folder, 0700))
		tap_bail("%s: %s", mount_folder, strerror(errno));
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
		says("so this library did not create it");
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
	returns(actmem_region_populate(region, LENGTH / 4, LENGTH / 4), 0);
	memset(memory_or_bail(region) + LENGTH / 4, 1, LENGTH / 4);
	returns(actmem_region_close(region), 0);
	region = opened(am, 0);
	ok(info_or_bail(region).allocated_bytes == LENGTH / 4, "those that were missing still are");
	returns(actmem_region_populate(region, 0, LENGTH), 0);
	ok(memory_or_bail(region)[LENGTH / 2 - 1] == 1 && !memory_or_bail(region)[LENGTH / 2] &&
	   info_or_bail(region).allocated_bytes == LENGTH, "and can be had");
	returns(actmem_region_close(region), 0);
	returns(unlink(path), 0);
}

struct racer {
	int start;
	int result;
	unsigned int number;
};

static bool race(void *context)
{
	struct racer *racer = context;
	struct actmem_region *region;
	struct actmem *am;
	char byte, found;
	char *memory;

	if (actmem_open(&am, NULL))
		return false;
	/* All go when the parent closes its end. */
	while (read(racer->start, &byte, 1) > 0)
		;
	if (open_name(am, path, LENGTH, ACTMEM_OPEN_CREATE, &region))
		return false;
	found = actmem_region_found(region) ? 'f' : 'm';
	memory = memory_or_bail(region);
	memory[LENGTH / RACERS * racer->number] = (char)('A' + racer->number);
	return info_or_bail(region).allocated_bytes == LENGTH && write(racer->result, &found, 1) == 1 &&
	       !actmem_region_close(region) && !actmem_close(am);
}

static void race_once(struct actmem *am, unsigned int *made, unsigned int *found,
		      unsigned int *written)
{
	int start[2], result[2];
	struct actmem_region *region;
	pid_t children[RACERS];
	unsigned int i;
	bool passed = true;
	char byte;

	if (pipe2(start, O_CLOEXEC) || pipe2(result, O_CLOEXEC))
		tap_bail("pipe");
	fflush(stdout);
	for (i = 0; i < RACERS; i++) {
		struct racer racer = { start[0], result[1], i };

		children[i] = fork();
		if (!children[i]) {
			close(start[1]);
			passed = race(&racer);
			if (!passed)
				printf("# %s\n", actmem_error());
			fflush(stdout);
			_exit(!passed);
		}
	}
	close(start[1]);
	close(result[1]);
	for (i = 0; i < RACERS; i++)
		passed = child_passed(children[i]) && passed;
	while (read(result[0], &byte, 1) == 1) {
		*made += byte == 'm';
		*found += byte == 'f';
	}
	close(start[0]);
	close(result[0]);
	region = opened(am, 0);
	for (i = 0; i < RACERS; i++)
		*written += memory_or_bail(region)[LENGTH / RACERS * i] == (char)('A' + i);
	actmem_region_close(region);
	if (!passed || unlink(path))
		*made = 1000;
}

static void test_race(struct actmem *am)
{
	unsigned int round, made = 0, found = 0, written = 0;

	for (round = 0; round < ROUNDS; round++)
		race_once(am, &made, &found, &written);
	ok(made == ROUNDS && found == ROUNDS * (RACERS - 1),
	   "of %d at once, one makes it and the others find it complete (%u made, %u found)",
	   RACERS, made, found);
	ok(written == ROUNDS * RACERS, "all have the same memory");
	ok(!count_files(mount_folder), "no file is left");
}

static bool make_for_ever(void)
{
	struct actmem_region *region;
	struct actmem *am;

	if (actmem_open(&am, NULL))
		return false;
	for (;;) {
		if (open_name(am, path, LENGTH, ACTMEM_OPEN_CREATE, &region))
			return false;
		actmem_region_close(region);
		unlink(path);
	}
}

/* Wherever in making and removing it is killed, the next one goes on. */
static void test_killed(struct actmem *am)
{
	unsigned int round, complete = 0;
	struct actmem_region *region;

	for (round = 0; round < ROUNDS; round++) {
		pid_t child;

		fflush(stdout);
		child = fork();
		if (!child)
			_exit(!make_for_ever());
		usleep(3000 + 1700 * round);
		kill_and_wait(child);
		if (open_name(am, path, LENGTH, ACTMEM_OPEN_CREATE, &region))
			break;
		complete += info_or_bail(region).allocated_bytes == LENGTH;
		actmem_region_close(region);
		unlink(path);
	}
	ok(complete == ROUNDS, "after kill -9 at any point it is made or found, complete (%u of %d)",
	   complete, ROUNDS);
	ok(!count_files(mount_folder), "no file is left");
}

int main(void)
{
	return RUN_MOUNTED_TESTS(test_made_and_found, test_refusals, test_other_backend, test_read_only,
				 test_passed, test_lock, test_removed, test_folder_locked, test_empty,
				 test_lazy, test_race, test_killed);
}
