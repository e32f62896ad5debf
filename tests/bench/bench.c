// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Rounds, and the memory that they are run on. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <linux/memfd.h>

#include "actmem.h"
#include "bench.h"

#define SMOKE_ROUNDS	1
/* A pool that is not full by then never will be. */
#define POOL_SECONDS	300

bool bench_is_smoke;

const char *bench_begin(int argc, char **argv, const char *operand)
{
	const char *program = argv[0];

	if (argc > 1 && !strcmp(argv[1], "--smoke")) {
		bench_is_smoke = true;
		argc--;
		argv++;
	}
	if (argc != (operand ? 2 : 1)) {
		fprintf(stderr, "usage: %s [--smoke]%s%s\n", program, operand ? " " : "",
			operand ? operand : "");
		exit(2);
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	return operand ? argv[1] : NULL;
}

size_t bench_size(size_t bytes, size_t smoke_bytes)
{
	return bench_is_smoke ? smoke_bytes : bytes;
}

double bench_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

double bench_fail(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	return -1;
}

static void print_rounds(const char *name, const double *seconds, int rounds)
{
	int i;

	printf(", \"%s\": [", name);
	for (i = 0; i < rounds; i++)
		printf("%s%.9f", i ? ", " : "", seconds[i]);
	printf("]");
}

int bench_run(const struct contest *contest)
{
	int rounds = bench_is_smoke ? SMOKE_ROUNDS : contest->rounds, round;
	double ours[ROUNDS_MAX], peer[ROUNDS_MAX], unused;

	/* The first of each finds caches cold that the others find warm. */
	for (round = bench_is_smoke ? 0 : -1; round < rounds; round++) {
		double *our = round < 0 ? &unused : &ours[round];
		double *their = round < 0 ? &unused : &peer[round];

		/* What one leaves behind is not always to the other's cost. */
		if (round % 2) {
			*their = contest->peer(contest);
			*our = contest->ours(contest);
		} else {
			*our = contest->ours(contest);
			*their = contest->peer(contest);
		}
		if (*our < 0 || *their < 0) {
			fprintf(stderr, "bench: %s failed\n", contest->bench);
			return 1;
		}
	}
	printf("{\"bench\": \"%s\", \"peer_name\": \"%s\", \"unit\": \"%s\", \"bytes\": %zu",
	       contest->bench, contest->peer_name, contest->unit, contest->bytes);
	if (contest->aim > 0)
		printf(", \"aim\": %g", contest->aim);
	print_rounds("ours_seconds", ours, rounds);
	print_rounds("peer_seconds", peer, rounds);
	printf("}\n");
	return 0;
}

void bench_leave_out(const char *bench, const char *why)
{
	printf("{\"bench\": \"%s\", \"left_out\": \"%s\"}\n", bench, why);
}

int bench_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) ? 1 : CPU_COUNT(&set);
}

static cpu_set_t all_processors(void)
{
	long i, count = sysconf(_SC_NPROCESSORS_CONF);
	cpu_set_t set;

	CPU_ZERO(&set);
	for (i = 0; i < count && i < CPU_SETSIZE; i++)
		CPU_SET(i, &set);
	return set;
}

void bench_run_on(int node)
{
	cpu_set_t all = all_processors(), set;
	char path[96];
	int i;

	CPU_ZERO(&set);
	for (i = 0; node >= 0 && i < CPU_SETSIZE; i++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/cpu%d", node, i);
		if (CPU_ISSET(i, &all) && !access(path, F_OK))
			CPU_SET(i, &set);
	}
	sched_setaffinity(0, sizeof(set), CPU_COUNT(&set) ? &set : &all);
}

static int write_number(const char *path, size_t number)
{
	char text[32];
	int fd = open(path, O_WRONLY | O_CLOEXEC), length, err = -1;

	if (fd >= 0) {
		length = snprintf(text, sizeof(text), "%zu", number);
		err = write(fd, text, length) == length ? 0 : -1;
		close(fd);
	}
	return err ? (int)bench_fail(path) : 0;
}

static long read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	long number = -1;

	if (!file || fscanf(file, "%ld", &number) != 1)
		number = -1;
	if (file)
		fclose(file);
	return number;
}

int bench_region(int node, size_t bytes)
{
	static struct actmem *am;
	struct actmem_region_options options;
	struct actmem_options wanted;
	struct actmem_region *region;
	int fd, error = 0;

	ACTMEM_INIT(&wanted);
	wanted.backend = ACTMEM_BACKEND_DRIVER;
	if (!am)
		error = actmem_open(&am, &wanted);
	ACTMEM_INIT(&options);
	options.length = bytes;
	options.policy = ACTMEM_PLACE_BIND;
	options.nodes.word[node / 64] = 1ULL << node % 64;
	if (!error)
		error = actmem_region_create(am, &options, &region);
	if (error) {
		errno = -error;
		return (int)bench_fail(actmem_error());
	}
	fd = dup(actmem_region_fd(region));
	actmem_region_close(region);
	return fd < 0 ? (int)bench_fail("dup") : fd;
}

int bench_hugetlb(size_t bytes)
{
	int fd = memfd_create("bench", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);

	if (fd < 0 || ftruncate(fd, bytes))
		return (int)bench_fail("a memfd of hugetlb pages");
	return fd;
}

int bench_reserve(int node, size_t bytes)
{
	long pages = bytes / PAGE_BYTES, got;
	char path[128];

	snprintf(path, sizeof(path),
		 "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/nr_hugepages", node);
	if (write_number(path, pages))
		return -1;
	got = read_number(path);
	if (got == pages)
		return 0;
	fprintf(stderr, "bench: node %d reserves %ld hugetlb pages of %ld\n", node, got, pages);
	return -1;
}

int bench_pool(int node, size_t bytes)
{
	double end = bench_seconds() + POOL_SECONDS;
	char path[96];

	snprintf(path, sizeof(path), "/sys/class/misc/actmem/node%d/pool_bytes", node);
	if ((size_t)read_number(path) != bytes && write_number(path, bytes))
		return -1;
	snprintf(path, sizeof(path), "/sys/class/misc/actmem/node%d/pool_free_bytes", node);
	while ((size_t)read_number(path) != bytes) {
		if (bench_seconds() > end) {
			fprintf(stderr, "bench: the pool of node %d holds %ld of %zu bytes\n",
				node, read_number(path), bytes);
			return -1;
		}
		usleep(10000);
	}
	return 0;
}

void *bench_map(int fd, size_t bytes, int flags)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);

	if (memory != MAP_FAILED)
		return memory;
	bench_fail("mmap");
	return NULL;
}

void bench_touch(void *memory, size_t bytes)
{
	size_t at;

	for (at = 0; at < bytes; at += PAGE_BYTES)
		((volatile char *)memory)[at] = 1;
}
