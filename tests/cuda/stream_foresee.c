/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Takes that are foreseen: a step that goes as the last ones did never waits for the
 * device, also where that is slow; and one that goes otherwise has the right values all the
 * same, whatever it wants instead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "random.h"
#include "xla_play.h"

#define BLOCK	(128 * 1024UL)
#define VALUES	12
#define SLOW	2000		/* microseconds */
#define STEPS	150		/* of orders at random */

static struct cuda cuda;
static struct xla_device its;

static uint32_t content_of(unsigned int value)
{
	return (uint32_t)its.xla.run * VALUES + value;
}

static uint64_t own_waits(void)
{
	return counts_of(&cuda).own_waits;
}

static bool put_all(const char *site)
{
	its.xla.run++;
	return xla_put_step(&its, site, VALUES, BLOCK, content_of(0));
}

/* To where the last one was, which is used before; kept as the result of that number. */
static bool take_from(const char *site, CUdeviceptr token, unsigned int result)
{
	if (!xla_take_announced(&its.xla, site, 0, token, its.work, BLOCK)) {
		printf("# %s\n", its.xla.words);
		return false;
	}
	cuda.cuMemcpyDtoDAsync_v2(its.results + result * BLOCK, its.work, BLOCK, its.xla.stream);
	xla_compute(&its.xla, its.work, BLOCK, 0);
	return true;
}

static bool take(const char *site, unsigned int value)
{
	unsigned int one = value;

	return xla_tie_these(&its.xla, its.tokens, &one, 1) &&
	       take_from(site, its.tokens + XLA_TOKEN_BYTES * value, value);
}

/* In this order; NULL: as a backward pass does. How many came back as they were. */
static unsigned int step(const char *site, const unsigned int *order)
{
	unsigned int i;
	bool done = put_all(site);

	for (i = 0; i < VALUES; i++)
		done = done && take(site, order ? order[i] : VALUES - 1 - i);
	return done ? xla_good(&its, VALUES, BLOCK, content_of(0)) : 0;
}

/* Until the next one is foreseen. */
static unsigned int learn(const char *site)
{
	return step(site, NULL) + step(site, NULL);
}

/* Else what is left of the last step may be in the way of this one's. */
static void finish_last_step(void)
{
	struct actmem_xla_transfer_stats now;

	do {
		usleep(100);
		now = xla_transfers();
	} while (now.unfinished || now.staged_bytes);
}

static void test_steady(uint64_t ring_bytes, const char *slow_function)
{
	struct memory memory = { .ring_bytes = ring_bytes };
	struct actmem *am = xla_open(&memory);
	struct actmem_xla_transfer_stats before, after;
	unsigned int good, i;
	uint64_t waits;
	bool done;

	its.xla.fixed = true;
	good = learn("steady");
	ok(good == 2 * VALUES, "two steps are waited for");
	finish_last_step();
	slow(&cuda, slow_function, SLOW);
	before = xla_transfers();
	waits = own_waits();
	done = put_all("steady");
	for (i = VALUES; i-- > 0; )
		done = done && take("steady", i);
	waits = own_waits() - waits;
	after = xla_transfers();
	good = xla_good(&its, VALUES, BLOCK, content_of(0));
	slow(&cuda, slow_function, 0);
	ok(done && good == VALUES, "slow %s: %u of %u come back as they were", slow_function, good,
	   VALUES);
	ok(after.foreseen_total - before.foreseen_total == VALUES &&
	   after.mended_total == before.mended_total, "all are foreseen, and rightly");
	ok(after.token_waits_total == before.token_waits_total, "no token is waited for");
	if (ring_bytes >= 64 * BLOCK)
		ok(after.host_waits_total == before.host_waits_total && !waits,
		   "nor anything else (%llu, %llu by CUDA's count)",
		   (unsigned long long)(after.host_waits_total - before.host_waits_total),
		   (unsigned long long)waits);
	xla_close(am, &cuda);
}

/* A step is foreseen, and wants this instead. */
static void test_other(const char *name, const unsigned int *order)
{
	struct memory memory = { .ring_bytes = 64 * BLOCK };
	struct actmem *am = xla_open(&memory);
	struct actmem_xla_transfer_stats before, after;
	unsigned int good, again, learned = learn(name);

	slow(&cuda, "cuMemsetD32Async", 200);
	before = xla_transfers();
	good = step(name, order);
	after = xla_transfers();
	slow(&cuda, "cuMemsetD32Async", 0);
	ok(learned == 2 * VALUES && good == VALUES, "%s: %u of %u come back as they were", name,
	   good, VALUES);
	ok(after.mended_total > before.mended_total, "%llu of them mended",
	   (unsigned long long)(after.mended_total - before.mended_total));
	before = xla_transfers();
	again = step(name, order);
	after = xla_transfers();
	ok(again == VALUES && after.foreseen_total == before.foreseen_total,
	   "the next step is waited for");
	again = step(name, order) + step(name, order);
	before = after;
	after = xla_transfers();
	ok(again == 2 * VALUES && after.foreseen_total - before.foreseen_total >= VALUES &&
	   after.mended_total == before.mended_total, "and foreseen again when it was as the last");
	xla_close(am, &cuda);
}

static void test_orders(uint64_t ring_bytes)
{
	struct memory memory = { .ring_bytes = ring_bytes };
	struct actmem_xla_transfer_stats before = xla_transfers(), after;
	unsigned int order[VALUES], wrong = 0, i, n, other, value;
	struct actmem *am = xla_open(&memory);
	uint64_t seed = 1;

	for (n = 0; n < STEPS; n++) {
		for (i = 0; i < VALUES; i++)
			order[i] = VALUES - 1 - i;
		/* Every third one goes its own way, more or less. */
		for (i = 0; n % 3 == 2 && i < VALUES; i++) {
			other = (unsigned int)random_below(&seed, 1 + random_below(&seed, VALUES));
			value = order[i];
			order[i] = order[other];
			order[other] = value;
		}
		wrong += step("orders", order) != VALUES;
	}
	after = xla_transfers();
	ok(!wrong, "%u of %u steps have others' values", wrong, STEPS);
	ok(after.foreseen_total > before.foreseen_total && after.mended_total > before.mended_total,
	   "%llu foreseen, %llu mended",
	   (unsigned long long)(after.foreseen_total - before.foreseen_total),
	   (unsigned long long)(after.mended_total - before.mended_total));
	xla_close(am, &cuda);
}

/* A layer that was left out this time has no token; its block is still there. */
static void test_no_token(void)
{
	struct memory memory = { .ring_bytes = 64 * BLOCK };
	struct actmem *am = xla_open(&memory);
	const CUdeviceptr none = its.tokens + XLA_TOKEN_BYTES * VALUES;
	unsigned int i, good, learned = learn("none");
	bool done = put_all("none");

	cuda.cuMemsetD32Async(none, 0, 2, its.xla.stream);
	done = done && take_from("none", none, VALUES);
	for (i = VALUES - 1; i-- > 0; )
		done = done && take("none", i);
	done = done && take("none", VALUES - 1);
	good = xla_good(&its, VALUES, BLOCK, content_of(0));
	xla_see(&its, (VALUES + 1) * BLOCK);
	ok(learned == 2 * VALUES && done && good == VALUES &&
	   all_bytes(its.seen + VALUES * BLOCK, BLOCK, 0),
	   "no token takes zeros, and nobody's block: %u of %u", good, VALUES);
	xla_close(am, &cuda);
}

/* What it wants is not to be had: that is no value, and an error as soon as can be. */
static void test_lost(void)
{
	struct memory memory = { .ring_bytes = 64 * BLOCK };
	struct actmem *am = xla_open(&memory);
	unsigned int learned = learn("lost");
	bool done = put_all("lost");

	cuda.cuMemsetD32Async(its.tokens, 1, 2, its.xla.stream);
	done = done && take_from("lost", its.tokens, 0);
	xla_see(&its, BLOCK);
	ok(learned == 2 * VALUES && done && all_bytes(its.seen, BLOCK, 0xff),
	   "a token of nobody's has no number");
	ok(!take("lost", 1) && strstr(its.xla.words, "not made by this process"),
	   "and the next call tells: %s", its.xla.words);
	actmem_xla_reset();
	ok(learn("lost") == 2 * VALUES && step("lost", NULL) == VALUES, "the one behind it does not");
	xla_close(am, &cuda);
}

/* Of a program that may choose, or with checksums, nothing is foreseen. */
static void test_never(void)
{
	struct memory memory = { .ring_bytes = 64 * BLOCK };
	struct actmem *am = xla_open(&memory);
	struct actmem_xla_transfer_stats before = xla_transfers();
	unsigned int good;

	its.xla.fixed = false;
	good = learn("never") + step("never", NULL);
	its.xla.fixed = true;
	actmem_xla_set_checksum(1);
	good += learn("summed") + step("summed", NULL);
	actmem_xla_set_checksum(0);
	ok(good == 6 * VALUES && xla_transfers().foreseen_total == before.foreseen_total,
	   "a program that chooses, and checksums");
	xla_close(am, &cuda);
}

/* No more than one step fits: the next one's puts wait for the device to have it. */
static void test_full(void)
{
	struct memory memory = {
		.ring_bytes = 64 * BLOCK,
		.limit_bytes = 2 * MIB,
		.grow_bytes = 2 * MIB,
	};
	struct actmem *am = xla_open(&memory);
	unsigned int good = learn("full"), n, i;
	bool done = true;

	slow(&cuda, "cuMemcpyDtoDAsync_v2", SLOW / 4);
	for (n = 0; n < 4; n++) {
		done = done && put_all("full");
		for (i = VALUES; i-- > 0; )
			done = done && take("full", i);
	}
	slow(&cuda, "cuMemcpyDtoDAsync_v2", 0);
	good += xla_good(&its, VALUES, BLOCK, content_of(0));
	ok(done && good == 3 * VALUES, "steps that fill all memory, one behind the other: %s",
	   done ? "good" : its.xla.words);
	xla_close(am, &cuda);
}

/* A device that knows no such wait. */
static void test_cannot(void)
{
	struct memory memory = { .ring_bytes = 64 * BLOCK };
	struct actmem_xla_transfer_stats before = xla_transfers();
	struct actmem *am = xla_open(&memory);
	unsigned int good;

	if (cuda.standin_fail) {
		cuda.standin_fail("cuStreamWaitValue32_v2", 1, 1, CUDA_ERROR_NOT_SUPPORTED);
		good = learn("cannot") + step("cannot", NULL);
		cuda.standin_fail("", 0, 0, 0);
		ok(good == 3 * VALUES && xla_transfers().foreseen_total == before.foreseen_total,
		   "without cuStreamWaitValue32 nothing is foreseen");
	}
	xla_close(am, &cuda);
}

static void test_told_not_to(void)
{
	struct memory memory = { .ring_bytes = 64 * BLOCK };
	struct actmem_xla_transfer_stats before = xla_transfers();
	struct actmem *am;
	unsigned int good;

	setenv("ACTMEM_DEVICE_FORESEE", "0", 1);
	am = xla_open(&memory);
	good = learn("told") + step("told", NULL);
	unsetenv("ACTMEM_DEVICE_FORESEE");
	ok(good == 3 * VALUES && xla_transfers().foreseen_total == before.foreseen_total,
	   "with ACTMEM_DEVICE_FORESEE=0 nothing is foreseen");
	xla_close(am, &cuda);
}

int main(void)
{
	static const unsigned int forward[VALUES] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
	static const unsigned int swapped[VALUES] = { 11, 9, 10, 8, 7, 6, 5, 4, 3, 2, 1, 0 };
	static const unsigned int turned[VALUES] = { 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11 };
	static const unsigned int last[VALUES] = { 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 0, 1 };

	cuda = xla_devices_or_skip(1);
	xla_begin(&its, &cuda, 0, VALUES + 1, BLOCK);
	/* All slots at once; a few; none, as no block goes into them. */
	test_steady(64 * BLOCK, "cuMemcpyDtoDAsync_v2");
	test_steady(64 * BLOCK, "cuMemcpyDtoHAsync_v2");
	test_steady(64 * BLOCK, "cuMemcpyHtoDAsync_v2");
	test_steady(8 * BLOCK, "cuMemcpyHtoDAsync_v2");
	test_steady(BLOCK, "cuMemcpyDtoDAsync_v2");
	test_other("forward", forward);
	test_other("swapped", swapped);
	test_other("turned", turned);
	test_other("last", last);
	test_orders(64 * BLOCK);
	test_orders(8 * BLOCK);
	test_orders(BLOCK);
	test_no_token();
	test_lost();
	test_never();
	test_full();
	test_cannot();
	test_told_not_to();
	if (cuda.standin_counts)
		ok(!counts_of(&cuda).unpinned_copies, "all copies were of memory that CUDA knows");
	xla_end(&its);
	return xla_finish(&cuda, 1, 1);
}
