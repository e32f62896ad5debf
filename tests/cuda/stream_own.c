/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * CUDA does not register regions: the driver's own memory takes their place, which is told
 * once and counted, and goes as regions do; or it is an error that says why not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xla_play.h"

#define BLOCK	(256 * 1024UL)
#define VALUES	24
#define GROW	(2 * MIB)
#define ALWAYS	100000

static void refuse(const char *function, unsigned int first, CUresult result)
{
	gpu.standin_fail(function, first, ALWAYS, result);
}

static void refuse_nothing(void)
{
	unsigned int i;

	for (i = 0; i < 4; i++)
		gpu.standin_fail("", 0, 0, 0);
}

static bool put(unsigned int value, uint32_t content)
{
	return xla_put_value(&its, "own", value, BLOCK, content + value);
}

/* Puts all and takes all; how many came back as they were. */
static unsigned int step(uint32_t content)
{
	its.xla.run++;
	if (xla_put_step(&its, "own", VALUES, BLOCK, content) &&
	    xla_take_step(&its, NULL, VALUES, BLOCK))
		return xla_good(&its, VALUES, BLOCK, content);
	printf("# %s\n", its.xla.words);
	return 0;
}

/* The first time in this process, so that it is told. */
static void test_all_refused(void)
{
	uint64_t allocated = counts_of(&gpu).allocated_bytes;
	struct actmem_counters counters;

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	stderr_keep();
	ok(step(1) == VALUES, "all values come back as they were");
	ok(step(2) == VALUES, "and once more");
	ok(stderr_lines("CUDA_ERROR_OPERATING_SYSTEM") == 1, "one line tells the error");
	ok(!counts_of(&gpu).registered, "nothing is registered");
	ok(xla_stats().own_bytes >= VALUES * BLOCK &&
	   counts_of(&gpu).allocated_bytes - allocated >= xla_stats().own_bytes &&
	   xla_stats().own_bytes == xla_store_stats().memory_bytes,
	   "%llu bytes are the driver's own, all that the store has",
	   (unsigned long long)xla_stats().own_bytes);
	counters = counters_of(actmem_xla_attached());
	ok(counters.region_bytes == xla_stats().own_bytes && !counters.fallbacks_total,
	   "the handle counts them as regions");
	ok(xla_stats().own_bytes_total >= VALUES * BLOCK, "the total stays");
}

/* Some regions are registered, one is not, and the line was told before. */
static void test_one_refused(void)
{
	gpu.standin_fail("cuMemHostRegister_v2", 2, 1, CUDA_ERROR_OUT_OF_MEMORY);
	stderr_keep();
	ok(step(3) == VALUES, "all values come back from both kinds of memory");
	ok(!stderr_lines("actmem"), "nothing is told again");
	ok(xla_stats().own_bytes && counts_of(&gpu).registered,
	   "%llu bytes are the driver's own, %llu registered",
	   (unsigned long long)xla_stats().own_bytes,
	   (unsigned long long)counts_of(&gpu).registered_bytes);
}

static void test_limit(void)
{
	unsigned int done = 0;

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	its.xla.run++;
	while (done < VALUES && put(done, 4))
		done++;
	ok(done == 2 * GROW / BLOCK && xla_stats().own_bytes == 2 * GROW,
	   "the limit holds for the driver's own memory: %s", its.xla.words);
	actmem_xla_reset(NULL, 0);
}

static void test_error(const char *why, const char *part)
{
	ok(!put(0, 5) && strstr(its.xla.words, "CUDA_ERROR_OPERATING_SYSTEM") &&
	   strstr(its.xla.words, part), "%s: %s", why, its.xla.words);
	ok(!xla_stats().own_bytes && !xla_stats().live_blocks, "and nothing stays");
	refuse_nothing();
	ok(step(6) == VALUES, "a step that is registered is right");
}

static void test_strict(void)
{
	setenv("ACTMEM_STRICT", "1", 1);
	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	test_error("an error where it is to be one", "ACTMEM_STRICT=1");
	unsetenv("ACTMEM_STRICT");
}

static void test_spill(void)
{
	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	test_error("an error where values may spill", "only registered regions can be spilled");
}

static void test_neither(void)
{
	/* What the ring has of its own is allocated before. */
	ok(step(7) == VALUES, "a step that is registered");
	/* A block is free when the copy from it has ended, of which another thread learns. */
	while (xla_stats().live_blocks || xla_store_stats().blocks)
		usleep(1000);
	returns(actmem_xla_trim(), 0);
	ok(!xla_store_stats().memory_bytes, "nothing that is registered is left for a block");
	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	refuse("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
	test_error("an error where the driver has none either", "cannot register");
}

/* It does not let go of the memory at first: that stays, counted, until it does. */
static void test_not_freed(void)
{
	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	ok(step(8) == VALUES, "a step");
	actmem_xla_trim_devices();
	gpu.standin_fail("cuMemFreeHost", 1, 1, CUDA_ERROR_UNKNOWN);
	ok(!actmem_xla_trim() && !xla_stats().own_bytes, "memory goes at the second try");
}

static bool has_nothing(void *unused)
{
	return !put(1, 9) && actmem_xla_trim() == -EOWNERDEAD;
}

/* The child has none of it, and says so; what the parent has is as it was. */
static void test_fork(void)
{
	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	its.xla.run++;
	ok(put(0, 9), "a value is put");
	ok(in_child(has_nothing, NULL), "the child can use nothing, and ends");
	ok(xla_take(&its.xla, its.tokens, its.results, BLOCK) && xla_good(&its, 1, BLOCK, 9) == 1,
	   "the parent has its value");
}

/* Its device's context is reset with all that was in it: nothing is freed twice. */
static void test_reset(void)
{
	struct actmem_xla_array *array;
	char words[1024];
	void *address;

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	returns(actmem_xla_array_new(BLOCK, ACTMEM_XLA_ARRAY_CUDA, 0, &array, &address, words,
				     sizeof(words)), 0);
	memset(address, 1, BLOCK);
	ok(xla_stats().own_bytes, "an array is in %llu bytes of the driver's own",
	   (unsigned long long)xla_stats().own_bytes);
	cuda_ok(gpu.cuDevicePrimaryCtxReset_v2(0));
	actmem_xla_array_drop(array);
	returns(actmem_xla_trim(), 0);
}

static void run(void (*test)(void), uint64_t limit_bytes, uint64_t budget_bytes, const char *spill)
{
	struct memory memory = {
		.ring_bytes = MIB, .grow_bytes = GROW, .limit_bytes = limit_bytes,
		.budget_bytes = budget_bytes, .spill = spill,
	};
	const struct standin_counts before = counts_of(&gpu);
	struct actmem *am = xla_open(&memory);

	test();
	refuse_nothing();
	xla_close(am);
	ok(!xla_stats().own_bytes && !counts_of(&gpu).registered,
	   "no memory of the driver's own is left in the counters, and nothing registered");
	ok(counts_of(&gpu).allocated == before.allocated &&
	   counts_of(&gpu).wrong_frees == before.wrong_frees, "all of it was freed, once");
}

int main(void)
{
	char folder[256];

	xla_start(VALUES, BLOCK);
	xla_standin_or_skip();
	make_folder(folder, sizeof(folder));
	run(test_all_refused, 0, 0, NULL);
	run(test_one_refused, 0, 0, NULL);
	run(test_limit, 2 * GROW, 0, NULL);
	run(test_strict, 0, 0, NULL);
	run(test_spill, 0, 4 * GROW, folder);
	run(test_neither, 0, 0, NULL);
	run(test_not_freed, 0, 0, NULL);
	run(test_fork, 0, 0, NULL);
	rmdir(folder);
	xla_end(&its);
	run(test_reset, 0, 0, NULL);
	return xla_finish(1, 1);
}
