/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Jobs with a name: the second start finds the files of the first, and makes no page.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory_test.h"

#define POOLS	4

static char folder[] = "/dev/shm/actmem-memory-XXXXXX";
static char name[128];

struct files {
	unsigned int count;
	uint64_t bytes, inodes;		/* the sums */
};

static struct files files_now(void)
{
	struct files files = { 0 };
	DIR *directory = opendir(folder);
	struct dirent *entry;
	struct stat stat;

	while (directory && (entry = readdir(directory))) {
		if (*entry->d_name == '.' || fstatat(dirfd(directory), entry->d_name, &stat, 0))
			continue;
		files.count++;
		files.bytes += (uint64_t)stat.st_blocks * 512;
		files.inodes += stat.st_ino;
	}
	if (directory)
		closedir(directory);
	return files;
}

static void remove_files(void)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;

	while (directory && (entry = readdir(directory)))
		if (*entry->d_name != '.')
			unlinkat(dirfd(directory), entry->d_name, 0);
	if (directory)
		closedir(directory);
}

/*
 * Each start finds in its blocks what the last one left: the pages are the same. What it
 * maps itself is zero, as mmap() promises, though in files that are not.
 */
static bool start(bool again)
{
	void *pools[POOLS];
	char *mapped[2], *another;
	unsigned int i;

	for (i = 0; i < POOLS; i++) {
		CHECK(!api.cuMemHostAlloc(&pools[i], 2 * MIB << i, 0) && is_in_region(pools[i]));
		CHECK(!again || is_filled(pools[i], 2 * MIB << i, i));
		fill(pools[i], 2 * MIB << i, i);
	}
	for (i = 0; i < 2; i++) {
		mapped[i] = map_untouched(4 * MIB);
		CHECK(!api.cuMemHostRegister_v2(mapped[i], 4 * MIB, 0) && is_in_region(mapped[i]));
		CHECK(all_bytes(mapped[i], 4 * MIB, 0));
		fill(mapped[i], 4 * MIB, i);
	}
	/* Unregistered and still mapped, its file is not anybody's yet. */
	CHECK(!api.cuMemHostUnregister(mapped[0]));
	another = map_untouched(4 * MIB);
	CHECK(!api.cuMemHostRegister_v2(another, 4 * MIB, 0) && is_in_region(another));
	CHECK(all_bytes(another, 4 * MIB, 0));
	fill(another, 4 * MIB, 9);
	CHECK(is_filled(mapped[0], 4 * MIB, 0));
	CHECK(!munmap(mapped[0], 4 * MIB));
	/* Now it is free again. */
	mapped[0] = map_untouched(4 * MIB);
	CHECK(!api.cuMemHostRegister_v2(mapped[0], 4 * MIB, 0) && all_bytes(mapped[0], 4 * MIB, 0));
	CHECK(is_filled(another, 4 * MIB, 9) && !api.cuMemHostUnregister(another));
	return true;
}

static bool first_start(void)
{
	return start(false);
}

static bool second_start(void)
{
	return start(true);
}

/* Those of the library and its own, as the Python module would have beside it. */
static bool beside_the_library(void)
{
	struct actmem_heap *heap;
	struct actmem *am;
	void *block;

	CHECK(!actmem_open(&am, NULL) && !actmem_heap_create(am, NULL, &heap));
	CHECK(!actmem_heap_alloc(heap, MIB, 0, &block));
	CHECK(block_is_in_region(4 * MIB));
	actmem_heap_free(heap, block);
	actmem_heap_destroy(heap);
	CHECK(!actmem_close(am));
	return true;
}

static bool while_another_has_them(void)
{
	unsigned int i;

	CHECK(block_is_of_driver(4 * MIB));
	/* Nor does it take other numbers in time. */
	for (i = 0; i < 4; i++)
		CHECK(range_is_of_driver(4 * MIB));
	return true;
}

/* Another process has the files of that name. */
static void lock_files(int fds[2])
{
	static const char *const endings[] = { "cuda0.0", "cuda.4M.0" };
	char path[256];
	unsigned int i;

	for (i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/job.%s", folder, endings[i]);
		fds[i] = open(path, O_RDWR | O_CLOEXEC);
		if (fds[i] < 0 || flock(fds[i], LOCK_EX | LOCK_NB))
			tap_bail("cannot lock %s (%s)", path, strerror(errno));
	}
}

/* The file that somebody else has put there is not written to. */
static void put_link(void)
{
	char path[256], other[256];
	int fd;

	snprintf(path, sizeof(path), "%s/job.cuda.4M.0", folder);
	snprintf(other, sizeof(other), "%s/other", folder);
	fd = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, 4 * MIB) || symlink(other, path))
		tap_bail("cannot make a link (%s)", strerror(errno));
	close(fd);
}

static bool with_a_link(void)
{
	return range_is_of_driver(4 * MIB);
}

int main(void)
{
	struct files first, second;
	int fds[2];

	skip_without_cuda();
	if (!mkdtemp(folder))
		tap_bail("mkdtemp: %s", strerror(errno));
	snprintf(name, sizeof(name), "ACTMEM_NAME=%s/job", folder);
	run_quiet("the first start makes files", first_start, name, NULL);
	first = files_now();
	/* 16 MiB for the first pools, 16 for the last, and three ranges of 4. */
	ok(first.count == 5 && first.bytes == 44 * MIB, "they are %u, of %llu bytes", first.count,
	   (unsigned long long)first.bytes);
	run_quiet("the second start finds what was in them", second_start, name, NULL);
	second = files_now();
	ok(second.count == first.count && second.bytes == first.bytes &&
	   second.inodes == first.inodes, "no page and no file is new");
	lock_files(fds);
	run_case("files that another process has are left to it", while_another_has_them, name, NULL);
	told(2, "job.cuda0.0 is in use by process");
	close(fds[0]);
	close(fds[1]);
	remove_files();
	run_quiet("the library's own names are others", beside_the_library, name, NULL);
	remove_files();
	put_link();
	run_told("symbolic link", "a symbolic link is not followed", with_a_link, name, NULL);
	remove_files();
	ok(!rmdir(folder), "nothing is left");
	return tap_end();
}
