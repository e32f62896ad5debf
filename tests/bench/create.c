// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Making a region, by the library, as programs do.
 *
 * warm_create_1g	create, map (MAP_POPULATE) and touch every page of 1 GiB from a
 *			warm pool, against the same calls on hugetlb memory
 * cold_create		create 1 GiB with no pool, against as many threads as there
 *			are processors that clear as much memory that they have
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

#define NODE		0
#define THREADS_MAX	256

/* Negative seconds, too, where not all of it is zero; or where there is none. */
static double make(int (*create)(size_t bytes), size_t bytes)
{
	double spent, begun = bench_seconds();
	int fd = create(bytes);
	char *memory;
	size_t at;

	if (fd < 0)
		return -1;
	memory = bench_map(fd, bytes, MAP_POPULATE);
	if (memory)
		bench_touch(memory, bytes);
	spent = bench_seconds() - begun;
	close(fd);
	if (!memory)
		return -1;
	for (at = 0; at < bytes; at += PAGE_BYTES / 8) {
		if (memory[at] != (at % PAGE_BYTES == 0)) {
			fprintf(stderr, "bench: what is new is not zero\n");
			spent = -1;
			break;
		}
	}
	munmap(memory, bytes);
	return spent;
}

static int create_region(size_t bytes)
{
	return bench_region(NODE, bytes);
}

/* The pool is full again first, so that nothing goes on in the background. */
static double warm_ours(const struct contest *contest)
{
	return bench_pool(NODE, contest->bytes) ? -1 : make(create_region, contest->bytes);
}

static double warm_peer(const struct contest *contest)
{
	return bench_pool(NODE, contest->bytes) ? -1 : make(bench_hugetlb, contest->bytes);
}

static double cold_ours(const struct contest *contest)
{
	double spent, begun = bench_seconds();
	int fd = bench_region(NODE, contest->bytes);

	spent = bench_seconds() - begun;
	if (fd < 0)
		return -1;
	close(fd);
	return spent;
}

static char *cleared;
static pthread_barrier_t barrier;

struct part {
	pthread_t thread;
	char *memory;
	size_t bytes;
	double begun;
	double ended;
};

static void *clear(void *data)
{
	struct part *part = data;

	pthread_barrier_wait(&barrier);
	part->begun = bench_seconds();
	memset(part->memory, 0, part->bytes);
	part->ended = bench_seconds();
	return NULL;
}

static double cold_peer(const struct contest *contest)
{
	static struct part parts[THREADS_MAX];
	int count = bench_processors(), i;
	double begun = 0, ended = 0;

	if (count > THREADS_MAX)
		count = THREADS_MAX;
	pthread_barrier_init(&barrier, NULL, count);
	for (i = 0; i < count; i++) {
		size_t from = contest->bytes / count * i;
		size_t to = i == count - 1 ? contest->bytes : contest->bytes / count * (i + 1);

		parts[i].memory = cleared + from;
		parts[i].bytes = to - from;
		if (pthread_create(&parts[i].thread, NULL, clear, &parts[i]))
			return bench_fail("pthread_create");
	}
	for (i = 0; i < count; i++) {
		pthread_join(parts[i].thread, NULL);
		if (!i || parts[i].begun < begun)
			begun = parts[i].begun;
		if (!i || parts[i].ended > ended)
			ended = parts[i].ended;
	}
	pthread_barrier_destroy(&barrier);
	return ended - begun;
}

static int measure_warm(size_t bytes)
{
	const struct contest contest = {
		.bench = "warm_create_1g",
		.peer_name = "hugetlb memfd, MAP_POPULATE, 2 MiB pages",
		.unit = "ms",
		.bytes = bytes,
		.rounds = 9,
		.ours = warm_ours,
		.peer = warm_peer,
	};
	int failed;

	if (bench_reserve(NODE, bytes))
		return 1;
	bench_run_on(NODE);
	failed = bench_run(&contest);
	bench_run_on(-1);
	return failed | !!bench_pool(NODE, 0) | !!bench_reserve(NODE, 0);
}

static int measure_cold(size_t bytes)
{
	const struct contest contest = {
		.bench = "cold_create",
		.peer_name = "parallel memset of memory already there",
		.unit = "GiB/s",
		.bytes = bytes,
		.rounds = 9,
		.ours = cold_ours,
		.peer = cold_peer,
	};
	int failed, fd;

	/* Of the same huge pages, on the same node. */
	if (bench_reserve(NODE, bytes))
		return 1;
	fd = bench_hugetlb(bytes);
	cleared = fd < 0 ? NULL : bench_map(fd, bytes, MAP_POPULATE);
	failed = !cleared || bench_run(&contest);
	if (cleared)
		munmap(cleared, bytes);
	if (fd >= 0)
		close(fd);
	return failed | !!bench_reserve(NODE, 0);
}

int main(int argc, char **argv)
{
	size_t bytes;
	int failed;

	bench_begin(argc, argv, NULL);
	bytes = bench_size(1UL << 30, 16UL << 20);
	failed = measure_warm(bytes);
	return failed | measure_cold(bytes);
}
