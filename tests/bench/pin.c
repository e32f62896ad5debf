/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * How fast CUDA pins a region, and how long a neighbour waits for the driver meanwhile, in
 * pieces of several lengths and in one call:
 *
 *	pin [MiB]
 *
 * The output is the table of docs/benchmarks.md.
 * With whatever libcuda.so.1 is found first. The neighbour wants cuMemGetInfo() each
 * millisecond; what it waits counts from when it wanted it, however many it has missed.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "actmem_region.h"
#include "actmem_runtime.h"
#include "base/base.h"
#include "cuda/cuda.h"
#include "machine/machine.h"

#define MIB		(1ULL << 20)
#define EACH_NS		NS_PER_MS
#define WAITS_MAX	(1 << 20)

#define CALLS(f)						\
	f(cuInit, (unsigned int flags))				\
	f(cuDevicePrimaryCtxRetain, (cuda_context *context, int device))	\
	f(cuCtxPushCurrent_v2, (cuda_context context))		\
	f(cuMemGetInfo_v2, (size_t *left, size_t *total))

#define CALL_FIELD(name, parameters)	cuda_result (*name) parameters;
static struct {
	CALLS(CALL_FIELD)
} driver;

static cuda_context context;
static atomic_bool is_ending;
static uint64_t waits[WAITS_MAX];
static unsigned int wait_count;

static void end_by(const char *what)
{
	fprintf(stderr, "pin: %s: %s\n", what, actmem_error());
	exit(1);
}

static void find_calls(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (!library)
		end_by(dlerror());
#define CALL_FIND(name, parameters)				\
	*(void **)&driver.name = dlsym(library, #name);		\
	if (!driver.name)						\
		end_by(#name);
	CALLS(CALL_FIND)
	if (driver.cuInit(0) || driver.cuDevicePrimaryCtxRetain(&context, 0) ||
	    driver.cuCtxPushCurrent_v2(context))
		end_by("no context of device 0");
}

static void *want(void *unused)
{
	uint64_t wanted = clock_ns();
	size_t left, total;

	if (driver.cuCtxPushCurrent_v2(context))
		end_by("cuCtxPushCurrent");
	/* At least once: this thread's first call may wait until all is pinned. */
	do {
		struct timespec until;

		wanted += EACH_NS;
		until = clock_time(wanted);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		if (driver.cuMemGetInfo_v2(&left, &total))
			end_by("cuMemGetInfo");
		waits[wait_count++] = clock_ns() - wanted;
	} while (!is_ending && wait_count < WAITS_MAX);
	return unused;
}

static int compare(const void *a, const void *b)
{
	uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;

	return (first > second) - (first < second);
}

static double wait_ms(unsigned int part, unsigned int of)
{
	return (double)waits[(uint64_t)(wait_count - 1) * part / of] / (double)NS_PER_MS;
}

static void print_bytes(uint64_t bytes)
{
	bool is_gib = !(bytes % (1024 * MIB));

	printf("| %llu %s", (unsigned long long)(bytes / (is_gib ? 1024 * MIB : MIB)),
	       is_gib ? "GiB" : "MiB");
}

static void report(const struct actmem_runtime_info *info, uint64_t took_ns)
{
	static const unsigned int shares[] = { 50, 99, 100 };
	bool is_one = info->chunk_bytes >= info->bytes;
	size_t i;

	qsort(waits, wait_count, sizeof(waits[0]), compare);
	print_bytes(is_one ? info->bytes : info->chunk_bytes);
	printf("%s | %.1f GB/s |", is_one ? ", at once" : "",
	       (double)info->bytes / (double)took_ns);
	for (i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		double wait = wait_ms(shares[i], 100);

		printf(" %.*f ms |", wait < 9.95, wait);
	}
	printf("\n");
}

/* In pieces of as many bytes; 0: all in one. */
static void pin(struct actmem *am, struct actmem_region *region, uint64_t piece_bytes)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options), .kind = ACTMEM_RUNTIME_CUDA, .chunk_bytes = piece_bytes,
	};
	struct actmem_runtime_info info = { .size = sizeof(info) };
	struct actmem_runtime *runtime;
	uint64_t began, took;
	pthread_t thread;

	if (actmem_runtime_open(am, &options, &runtime))
		end_by("no runtime");
	if (!wait_count)
		fprintf(stderr, "%s\n", actmem_runtime_describe(runtime));
	is_ending = false;
	wait_count = 0;
	if (pthread_create(&thread, NULL, want, NULL))
		end_by("pthread_create");
	began = clock_ns();
	if (actmem_region_register(region, runtime, 0))
		end_by("not pinned");
	took = clock_ns() - began;
	is_ending = true;
	pthread_join(thread, NULL);
	actmem_runtime_get_info(runtime, &info);
	report(&info, took);
	if (actmem_region_unregister(region) || actmem_runtime_close(runtime))
		end_by("not let go of");
}

int main(int argc, char **argv)
{
	static const uint64_t pieces[] = { 64 * MIB, 128 * MIB, 256 * MIB, 1024 * MIB, 0 };
	struct actmem_region_options options = {
		.size = sizeof(options),
		.length = (argc > 1 ? strtoull(argv[1], NULL, 10) : 4096) * MIB,
	};
	struct actmem_region *region;
	struct actmem *am;
	unsigned int i;

	find_calls();
	if (actmem_open(&am, NULL) || actmem_region_create(am, &options, &region))
		end_by("no memory");
	printf("| Piece | Pinned | Neighbour: median | p99 | longest |\n|---|---|---|---|---|\n");
	for (i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++)
		pin(am, region, pieces[i]);
	if (actmem_region_close(region) || actmem_close(am))
		end_by("not closed");
	return 0;
}
