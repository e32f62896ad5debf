/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * CUDA does not register regions: the driver's own memory takes their place, which is told
 * once and counted, and goes as regions do; or it is an error that says why not.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xla_play.h"

#define BLOCK	(256 * 1024UL)
#define VALUES	24
#define GROW	(2 * MIB)
#define ALWAYS	100000

static struct cuda cuda;
static struct xla_device its;

static void refuse(const char *function, unsigned int first, CUresult result)
{
	cuda.standin_fail(function, first, ALWAYS, result);
}

static void refuse_nothing(void)
{
	unsigned int i;

	for (i = 0; i < 4; i++)
		cuda.standin_fail("", 0, 0, 0);
}

static bool put(unsigned int value, uint32_t content)
{
	return xla_put_value(&its, "own", value, BLOCK, content + value);
}

/* Puts all and takes all; how many came back as they were. */
static unsigned int step(uint32_t content)
{
	unsigned int i;

	its.xla.run++;
	for (i = 0; i < VALUES; i++) {
		if (!put(i, content)) {
			printf("# %s\n", its.xla.words);
			return 0;
		}
	}
	for (i = VALUES; i-- > 0; ) {
		if (!xla_take(&its.xla, its.tokens + XLA_TOKEN_BYTES * i, its.results + i * BLOCK, BLOCK)) {
			printf("# %s\n", its.xla.words);
			return 0;
		}
	}
	return xla_good(&its, VALUES, BLOCK, content);
}

static struct actmem_store_stats store_stats(void)
{
	struct actmem_store_stats stats = { .size = sizeof(stats) };

	actmem_xla_store_stats(&stats);
	return stats;
}

static void nothing_is_own(void)
{
	ok(!xla_stats().own_bytes && !counts_of(&cuda).registered,
	   "no memory of the driver's own is left in the counters, and nothing registered");
}

/* The first time in this process, so that it is told. */
static void test_all_refused(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);
	uint64_t allocated = counts_of(&cuda).allocated_bytes;
	struct actmem_counters counters = { .size = sizeof(counters) };

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	stderr_keep();
	ok(step(1) == VALUES, "all values come back as they were");
	ok(step(2) == VALUES, "and once more");
	ok(stderr_lines("CUDA_ERROR_OPERATING_SYSTEM") == 1, "one line tells the error");
	ok(!counts_of(&cuda).registered, "nothing is registered");
	ok(xla_stats().own_bytes >= VALUES * BLOCK &&
	   counts_of(&cuda).allocated_bytes - allocated >= xla_stats().own_bytes &&
	   xla_stats().own_bytes == store_stats().memory_bytes,
	   "%llu bytes are the driver's own, all that the store has",
	   (unsigned long long)xla_stats().own_bytes);
	returns(actmem_get_counters(am, &counters), 0);
	ok(counters.region_bytes == xla_stats().own_bytes && !counters.fallbacks_total,
	   "the handle counts them as regions");
	refuse_nothing();
	xla_close(am, &cuda);
	nothing_is_own();
	ok(xla_stats().own_bytes_total >= VALUES * BLOCK, "the total stays");
}

/* Some regions are registered, one is not, and the line was told before. */
static void test_one_refused(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);

	cuda.standin_fail("cuMemHostRegister_v2", 2, 1, CUDA_ERROR_OUT_OF_MEMORY);
	stderr_keep();
	ok(step(3) == VALUES, "all values come back from both kinds of memory");
	ok(!stderr_lines("actmem"), "nothing is told again");
	ok(xla_stats().own_bytes && counts_of(&cuda).registered,
	   "%llu bytes are the driver's own, %llu registered",
	   (unsigned long long)xla_stats().own_bytes,
	   (unsigned long long)counts_of(&cuda).registered_bytes);
	refuse_nothing();
	xla_close(am, &cuda);
	nothing_is_own();
}

static void test_limit(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW, .limit_bytes = 2 * GROW };
	struct actmem *am = xla_open(&memory);
	unsigned int done = 0;

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	its.xla.run++;
	while (done < VALUES && put(done, 4))
		done++;
	ok(done == 2 * GROW / BLOCK && xla_stats().own_bytes == 2 * GROW,
	   "the limit holds for the driver's own memory: %s", its.xla.words);
	refuse_nothing();
	actmem_xla_reset();
	xla_close(am, &cuda);
	nothing_is_own();
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
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);

	setenv("ACTMEM_STRICT", "1", 1);
	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	test_error("an error where it is to be one", "ACTMEM_STRICT=1");
	xla_close(am, &cuda);
	unsetenv("ACTMEM_STRICT");
	nothing_is_own();
}

static void test_spill(void)
{
	char folder[] = "build/tests/own-XXXXXX";
	struct memory memory = {
		.ring_bytes = MIB, .grow_bytes = GROW, .budget_bytes = 4 * GROW,
		.spill = mkdtemp(folder),
	};
	struct actmem *am;

	if (!memory.spill)
		tap_bail("%s", folder);
	am = xla_open(&memory);

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	test_error("an error where values may spill", "has to be in registered regions");
	xla_close(am, &cuda);
	rmdir(folder);
	nothing_is_own();
}

static void test_neither(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);

	/* What the ring has of its own is allocated before. */
	ok(step(7) == VALUES, "a step that is registered");
	/* A block is free when the copy from it has ended, of which another thread learns. */
	while (xla_stats().live_blocks || store_stats().blocks)
		usleep(1000);
	returns(actmem_xla_trim(), 0);
	ok(!store_stats().memory_bytes, "nothing that is registered is left for a block");
	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	refuse("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
	test_error("an error where the driver has none either", "cannot register");
	xla_close(am, &cuda);
	nothing_is_own();
}

/* It does not let go of the memory at first: that stays, counted, until it does. */
static void test_not_freed(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	ok(step(8) == VALUES, "a step");
	actmem_xla_trim_devices();
	cuda.standin_fail("cuMemFreeHost", 1, 1, CUDA_ERROR_UNKNOWN);
	ok(!actmem_xla_trim() && !xla_stats().own_bytes, "memory goes at the second try");
	refuse_nothing();
	xla_close(am, &cuda);
	nothing_is_own();
}

/* The child has none of it, and says so; what the parent has is as it was. */
static void test_fork(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);
	int status = -1;
	pid_t child;

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	its.xla.run++;
	ok(put(0, 9), "a value is put");
	child = fork();
	if (!child)
		_exit(put(1, 9) || actmem_xla_trim() != -EOWNERDEAD);
	ok(child > 0 && waitpid(child, &status, 0) == child && !status,
	   "the child can use nothing, and ends");
	ok(xla_take(&its.xla, its.tokens, its.results, BLOCK) && xla_good(&its, 1, BLOCK, 9) == 1,
	   "the parent has its value");
	refuse_nothing();
	xla_close(am, &cuda);
	nothing_is_own();
}

/* Its device's context is reset with all that was in it: nothing is freed twice. */
static void test_reset(void)
{
	struct memory memory = { .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);
	struct actmem_xla_array *array;
	char words[1024];
	void *address;

	refuse("cuMemHostRegister_v2", 1, CUDA_ERROR_OPERATING_SYSTEM);
	returns(actmem_xla_array_new(BLOCK, ACTMEM_XLA_ARRAY_CUDA, 0, &array, &address, words,
				     sizeof(words)), 0);
	memset(address, 1, BLOCK);
	ok(xla_stats().own_bytes, "an array is in %llu bytes of the driver's own",
	   (unsigned long long)xla_stats().own_bytes);
	cuda_returns(cuda.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	actmem_xla_array_drop(array);
	returns(actmem_xla_trim(), 0);
	refuse_nothing();
	xla_close(am, &cuda);
	nothing_is_own();
}

int main(void)
{
	cuda = xla_devices_or_skip(1);
	if (!cuda.standin_fail) {
		tap_skip("GPU: the real one refuses nothing that is asked for");
		return tap_end();
	}
	xla_begin(&its, &cuda, 0, VALUES, BLOCK);
	test_all_refused();
	test_one_refused();
	test_limit();
	test_strict();
	test_spill();
	test_neither();
	test_not_freed();
	test_fork();
	xla_end(&its);
	test_reset();
	return xla_finish(&cuda, 1, 1);
}
