/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A heap whose regions are files: the next process with its name takes them as
 * they are, one process at a time.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heap_test.h"

#define GROW	(4 * MIB)

static char name[64];

static const char *path_of(unsigned int number)
{
	static char path[sizeof(name) + 16];

	snprintf(path, sizeof(path), "%s.%u", name, number);
	return path;
}

static bool file(unsigned int number, struct stat *stat_of)
{
	struct stat ignored;

	return !stat(path_of(number), stat_of ? stat_of : &ignored);
}

static bool hold_blocks(void *context)
{
	struct actmem *am = open_named(name);
	struct actmem_heap *heap = make_heap(am, GROW, 0);
	void *first, *second;

	if (actmem_heap_alloc(heap, GROW, 0, &first) || actmem_heap_alloc(heap, GROW, 0, &second))
		return false;
	memset(first, 'a', GROW);
	memset(second, 'b', GROW);
	return true;
}

/* The other process has it, then is killed; this one finds what it left. */
static void test_next_process(void)
{
	pid_t child = holder(hold_blocks, NULL);
	struct actmem *am = open_named(name);
	struct actmem_heap *heap = make_heap(am, GROW, 0);
	struct actmem_counters counters;
	struct stat before[2], now[2];
	char *first, *second;
	char words[32];

	ok(file(0, &before[0]) && file(1, &before[1]) && !file(2, NULL), "two files are there");
	returns(actmem_heap_alloc(heap, 1, 0, (void **)&first), -EBUSY);
	snprintf(words, sizeof(words), "process %d", child);
	says(words);
	says("heap_name");
	kill_and_wait(child);

	returns(actmem_heap_alloc(heap, GROW, 0, (void **)&first), 0);
	returns(actmem_heap_alloc(heap, GROW, 0, (void **)&second), 0);
	ok(first[0] == 'a' && first[GROW - 1] == 'a' && second[0] == 'b' && second[GROW - 1] == 'b',
	   "what a killed process left in its blocks is there");
	ok(file(0, &now[0]) && file(1, &now[1]) && !file(2, NULL) &&
	   now[0].st_ino == before[0].st_ino && now[0].st_blocks == before[0].st_blocks &&
	   now[1].st_ino == before[1].st_ino && now[1].st_blocks == before[1].st_blocks,
	   "nothing was allocated anew");
	counters = counters_of(am);
	ok(counters.regions == 2 && counters.region_bytes == 2 * GROW, "two regions are counted");
	returns(actmem_heap_free(heap, first), 0);
	returns(actmem_heap_free(heap, second), 0);
	returns(actmem_heap_trim(heap), 0);
	ok(counters_of(am).regions == 2, "they stay open when the heap is trimmed");
	returns(actmem_heap_destroy(heap), 0);
	ok(file(0, NULL) && file(1, NULL), "and the files when it is destroyed");
	counters_are_zero(am);
	returns(actmem_close(am), 0);
}

static void test_heaps_of_one_process(void)
{
	struct actmem *am = open_named(name), *other = open_named(name);
	struct actmem_heap *one = make_heap(am, GROW, 0), *two = make_heap(am, GROW, 0);
	struct actmem_heap *three = make_heap(other, GROW, 0);
	char *first, *second, *third;

	returns(actmem_heap_alloc(one, 1, 0, (void **)&first), 0);
	returns(actmem_heap_alloc(two, 1, 0, (void **)&second), 0);
	ok(*first == 'a' && *second == 'b', "two heaps of a handle share the files out");
	returns(actmem_heap_alloc(three, 1, 0, (void **)&third), -EBUSY);
	returns(actmem_heap_free(one, first), 0);
	returns(actmem_heap_destroy(one), 0);
	returns(actmem_heap_free(two, second), 0);
	returns(actmem_heap_alloc(two, GROW, 0, (void **)&second), 0);
	returns(actmem_heap_alloc(two, GROW, 0, (void **)&first), 0);
	ok(*first == 'a' && *second == 'b', "what one has given back the other one takes");
	returns(actmem_heap_free(two, first), 0);
	returns(actmem_heap_free(two, second), 0);
	returns(actmem_heap_destroy(two), 0);
	returns(actmem_heap_alloc(three, 1, 0, (void **)&third), 0);
	returns(actmem_heap_free(three, third), 0);
	returns(actmem_heap_destroy(three), 0);
	returns(actmem_close(other), 0);
	returns(actmem_close(am), 0);
}

static void test_other_lengths(void)
{
	struct actmem *am = open_named(name);
	struct actmem_heap *heap = make_heap(am, GROW, 2 * MIB);
	char *block;

	returns(actmem_heap_alloc(heap, 1, 0, (void **)&block), -ENOMEM);
	says("limit_bytes");
	says(name);
	returns(actmem_heap_destroy(heap), 0);
	heap = make_heap(am, GROW, 0);
	/* Both files are too short for it; they are taken, and a third one is made. */
	returns(actmem_heap_alloc(heap, 3 * GROW, 0, (void **)&block), 0);
	ok(file(2, NULL) && !block[0] && !block[3 * GROW - 1], "a longer one is made, zeroed");
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_destroy(heap), 0);
	returns(actmem_close(am), 0);
}

/* Files that are found are cut into chunks by the lengths that they have. */
static void test_chunks(void)
{
	const uint64_t chunk = 2 * MIB, length = chunk / 4 * 3;
	struct actmem *am = open_named(name);
	struct actmem_runtime *runtime = open_chunks(am, chunk);
	struct actmem_heap *heap = make_chunked(am, GROW, 0, runtime);
	char *blocks[10];
	bool within = true;
	unsigned int i;

	for (i = 0; i < 10; i++) {
		if (actmem_heap_alloc(heap, length, 0, (void **)&blocks[i]))
			tap_bail("actmem_heap_alloc");
		within = within &&
			 (uintptr_t)blocks[i] / chunk == ((uintptr_t)blocks[i] + length - 1) / chunk;
	}
	ok(within, "no block lies across two chunks");
	ok(!file(3, NULL), "and each chunk of what was found has one");
	for (i = 0; i < 10; i++)
		returns(actmem_heap_free(heap, blocks[i]), 0);
	returns(actmem_heap_destroy(heap), 0);
	returns(actmem_runtime_close(runtime), 0);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
}

/* One that is found is there as a whole, once it is a heap's; on tmpfs it may not be. */
static void test_sparse(struct actmem *am)
{
	char sparse[sizeof(name) + 16], path[sizeof(name) + 16];
	struct actmem_heap *heap;
	struct stat now;
	void *block;
	int fd;

	if (on_driver(am) || pages_wanted() != ACTMEM_PAGES_4K)
		return;
	snprintf(sparse, sizeof(sparse), "%s-sparse", name);
	snprintf(path, sizeof(path), "%s-sparse.0", name);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, GROW - 1))
		tap_bail("%s", path);
	am = open_named(sparse);
	heap = make_heap(am, GROW, 0);
	returns(actmem_heap_alloc(heap, 1, 0, &block), -EINVAL);
	says("4194303 bytes in pages of 4.0 KiB");
	if (ftruncate(fd, GROW - 4096))
		tap_bail("%s", path);
	returns(actmem_heap_alloc(heap, 1, 0, &block), 0);
	ok(!fstat(fd, &now) && (uint64_t)now.st_blocks * 512 >= GROW - 4096,
	   "its missing pages are made");
	close(fd);
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_destroy(heap), 0);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	returns(unlink(path), 0);
}

/* Somebody else may have made it, to have this user's file written to. */
static void test_link(void)
{
	char link[sizeof(name) + 16], target[sizeof(name) + 16];
	struct actmem_heap *heap;
	struct actmem *am;
	void *block;

	snprintf(target, sizeof(target), "%s.0", name);
	snprintf(link, sizeof(link), "%s-link", name);
	am = open_named(link);
	/* Neither hugetlbfs nor actmem has symbolic links. */
	if (on_driver(am) || pages_wanted() == ACTMEM_PAGES_2M) {
		returns(actmem_close(am), 0);
		return;
	}
	snprintf(link, sizeof(link), "%s-link.0", name);
	returns(symlink(target, link), 0);
	heap = make_heap(am, GROW, 0);
	returns(actmem_heap_alloc(heap, 1, 0, &block), -ELOOP);
	says(link);
	says("symbolic link");
	returns(unlink(link), 0);
	returns(actmem_heap_destroy(heap), 0);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
}

static void test_refusals(void)
{
	static const struct {
		const char *name;
		int error;
	} bad[] = {
		{ "", -EINVAL }, { "/proc/job", -EOPNOTSUPP },
		{ "/no/such/folder/job", -ENOENT }, { "/tmp/", -EINVAL },
	};
	struct actmem_options options = { .size = sizeof(options) };
	struct actmem *am;
	unsigned int i;

	if (actmem_options_from_environment(&options))
		tap_bail("actmem_options_from_environment");
	for (i = 0; i < 4; i++) {
		options.heap_name = bad[i].name;
		returns(actmem_open(&am, &options), bad[i].error);
	}
}

/* Each goes on with the files that the last one left. */
static void test_files(struct actmem *am)
{
	unsigned int i;

	snprintf(name, sizeof(name), "%s/job", mount_folder);
	test_sparse(am);
	test_next_process();
	test_heaps_of_one_process();
	test_other_lengths();
	test_chunks();
	test_link();
	test_refusals();
	for (i = 0; i < 3; i++)
		returns(unlink(path_of(i)), 0);
}

int main(void)
{
	return RUN_MOUNTED_TESTS(test_files);
}
