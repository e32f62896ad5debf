/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of queues share: queues of both engines, files beside the
 * program, where the file system of the build lies, and a way to wait.
 */
#ifndef TESTS_QUEUE_TEST_H
#define TESTS_QUEUE_TEST_H

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "common.h"

#define KIB		1024ULL
#define PATHS_MAX	4

static const enum actmem_engine engines[] = { ACTMEM_ENGINE_URING, ACTMEM_ENGINE_WORKERS };
static const char *const engine_names[] = { "auto", "io_uring", "workers" };

static inline struct actmem_queue *queue_or_bail(struct actmem *am, enum actmem_engine engine,
						 uint64_t block_bytes, unsigned int depth)
{
	struct actmem_queue_options options = {
		.size = sizeof(options), .engine = engine, .block_bytes = block_bytes,
		.depth = depth,
	};
	struct actmem_queue *queue;

	if (actmem_queue_create(am, &options, &queue))
		tap_bail("actmem_queue_create with %s", engine_names[engine]);
	return queue;
}

/* Whether this machine lets its users have io_uring. */
static inline bool uring_is_there(struct actmem *am)
{
	struct actmem_queue_options options;
	struct actmem_queue *queue;
	int error;

	ACTMEM_INIT(&options);
	options.engine = ACTMEM_ENGINE_URING;
	error = actmem_queue_create(am, &options, &queue);
	if (!error)
		error = actmem_queue_destroy(queue);
	else if (error != -EPERM && error != -EACCES && error != -ENOSYS)
		tap_bail("actmem_queue_create");
	return !error;
}

static inline bool engine_is_there(struct actmem *am, enum actmem_engine engine)
{
	if (engine != ACTMEM_ENGINE_URING || uring_is_there(am))
		return true;
	tap_skip("%s", actmem_error());
	return false;
}

/* All of a program: the test with each engine that is there, and that nothing is left. */
static inline int test_engines(void (*test)(struct actmem *am, enum actmem_engine engine))
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();
	unsigned int i;

	for (i = 0; i < 2; i++)
		if (engine_is_there(am, engines[i]))
			test(am, engines[i]);
	return end_tests(am, before);
}

/* A path beside this program; of several programs and calls it is never the same. */
static inline const char *path_of(char path[PATH_MAX], unsigned int number)
{
	char program[PATH_MAX] = "";

	if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0)
		tap_bail("/proc/self/exe");
	if (snprintf(path, PATH_MAX, "%.3900s/queue-%d-%u", dirname(program), getpid(), number) >=
	    PATH_MAX)
		tap_bail("the path is too long");
	return path;
}

struct set {
	struct actmem_file *file;
	struct actmem_file_info info;
	unsigned int count;
	char paths[PATHS_MAX][PATH_MAX];
	int fds[PATHS_MAX];		/* of the test itself, buffered */
};

/* Opens new files of @length bytes altogether, direct where that is possible. */
static inline struct set set_or_bail(struct actmem_queue *queue, unsigned int count,
				     uint64_t stripe_bytes, uint64_t length)
{
	static unsigned int next;
	struct actmem_file_options options = { .size = sizeof(options) };
	const char *paths[PATHS_MAX];
	struct set set = { .count = count };
	unsigned int i;

	for (i = 0; i < count; i++)
		paths[i] = path_of(set.paths[i], next++);
	options.paths = paths;
	options.path_count = count;
	options.flags = ACTMEM_FILE_CREATE | ACTMEM_FILE_ALLOW_BUFFERED;
	options.stripe_bytes = stripe_bytes;
	options.length = length;
	if (actmem_file_open(queue, &options, &set.file))
		tap_bail("actmem_file_open");
	ACTMEM_INIT(&set.info);
	if (actmem_file_get_info(set.file, &set.info))
		tap_bail("actmem_file_get_info");
	for (i = 0; i < count; i++) {
		set.fds[i] = open(set.paths[i], O_RDWR | O_CLOEXEC);
		if (set.fds[i] < 0)
			tap_bail("%s: %s", set.paths[i], strerror(errno));
	}
	return set;
}

static inline void set_close(struct set *set)
{
	unsigned int i;

	returns(actmem_file_close(set->file), 0);
	for (i = 0; i < set->count; i++) {
		close(set->fds[i]);
		unlink(set->paths[i]);
	}
}

/* Byte by byte where a set says that its bytes lie. */
static inline bool set_transfer(const struct set *set, char *memory, uint64_t offset,
				uint64_t length, bool write)
{
	while (length) {
		uint64_t stripe = offset / set->info.stripe_bytes;
		uint64_t within = offset % set->info.stripe_bytes;
		uint64_t part = set->info.stripe_bytes - within;
		off_t at = (off_t)(stripe / set->count * set->info.stripe_bytes + within);
		int fd = set->fds[stripe % set->count];

		if (part > length)
			part = length;
		if ((write ? pwrite(fd, memory, part, at) : pread(fd, memory, part, at)) !=
		    (ssize_t)part)
			return false;
		memory += part;
		offset += part;
		length -= part;
	}
	return !write || set->count > 0;
}

/* Bytes that tell where they belong. */
static inline void pattern(char *memory, uint64_t length, uint64_t seed)
{
	uint64_t i, state = seed * 0x9E3779B97F4A7C15ULL + 1;

	for (i = 0; i < length; i++) {
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		memory[i] = (char)(state >> 56);
	}
}

/* The only request's completion. */
static inline struct actmem_completion wait_or_bail(struct actmem_queue *queue)
{
	struct actmem_completion completion;

	if (actmem_queue_wait(queue, &completion, 1, ACTMEM_WAIT_FOREVER) != 1)
		tap_bail("actmem_queue_wait");
	return completion;
}

static inline int result_of(struct actmem_queue *queue, int submitted)
{
	return submitted ? submitted : wait_or_bail(queue).result;
}

static inline int fill_result(struct actmem_queue *queue, struct actmem_file *file, uint64_t at,
			      struct actmem_region *region, uint64_t offset, uint64_t length)
{
	return result_of(queue, actmem_queue_fill(queue, file, at, region, offset, length, NULL));
}

static inline int spill_result(struct actmem_queue *queue, struct actmem_file *file, uint64_t at,
			       struct actmem_region *region, uint64_t offset, uint64_t length)
{
	return result_of(queue, actmem_queue_spill(queue, file, at, region, offset, length, NULL));
}

/* It has nothing left to do, and ends. */
static inline void destroy_idle(struct actmem_queue *queue)
{
	struct actmem_queue_stats stats = { .size = sizeof(stats) };

	returns(actmem_queue_get_stats(queue, &stats), 0);
	ok(!stats.requests && !stats.completions && !stats.files && !stats.regions &&
	   !stats.registered_bytes, "the queue's counters returned to 0");
	returns(actmem_queue_destroy(queue), 0);
}

#endif /* TESTS_QUEUE_TEST_H */
