/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Takes that are announced: the host waits once for those of a layer, and they keep their
 * order with what XLA's stream does before and after, whether their blocks are on the
 * device already or not. What cannot be told apart is looked at.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "xla_play.h"

#define BLOCK	(128 * 1024UL)
#define LAYERS	4
#define OF_LAYER	5
#define VALUES	(LAYERS * OF_LAYER)
#define SLOW	1000		/* microseconds */
#define FULL	16		/* values that need 2 MiB */
#define MANY	300		/* more than go into one mailbox */

static struct cuda cuda;
static struct xla_device its;

static uint64_t waits_of_this_thread(void)
{
	return counts_of(&cuda).own_waits;
}

static uint32_t content_of(unsigned int value)
{
	return (uint32_t)its.xla.run * VALUES + value;
}

static bool put_all(const char *site)
{
	its.xla.run++;
	return xla_put_step(&its, site, VALUES, BLOCK, content_of(0));
}

/* To where the last one was, which is used before. */
static bool take(const char *site, unsigned int value)
{
	if (!xla_take_announced(&its.xla, site, (int32_t)(value % OF_LAYER),
				its.tokens + XLA_TOKEN_BYTES * value, its.work, BLOCK)) {
		printf("# %s\n", its.xla.words);
		return false;
	}
	cuda.cuMemcpyDtoDAsync_v2(its.results + value * BLOCK, its.work, BLOCK, its.xla.stream);
	xla_compute(&its.xla, its.work, BLOCK, 0);
	return true;
}

/* As the step of a loop over layers, in which all of them are of one site. */
static bool take_layers(const char *site, bool announces)
{
	unsigned int layer, i;
	bool done = true;

	for (layer = LAYERS; layer-- > 0; ) {
		if (announces)
			done = done && xla_tie(&its.xla, its.tokens + XLA_TOKEN_BYTES * layer * OF_LAYER,
						    OF_LAYER);
		for (i = OF_LAYER; i-- > 0; )
			done = done && take(site, layer * OF_LAYER + i);
	}
	return done;
}

static unsigned int good_values(void)
{
	return xla_good(&its, VALUES, BLOCK, content_of(0));
}

/* Of blocks that are read late, or ahead; the waits of the takes alone. */
static void test_waits(uint64_t ring_bytes, const char *slow_function)
{
	static const unsigned int wanted[] = { VALUES, LAYERS };
	struct memory memory = { .ring_bytes = ring_bytes };
	struct actmem *am = xla_open(&memory);
	struct actmem_xla_transfer_stats before, after;
	unsigned int announces, good;
	uint64_t waits, counted;

	slow(&cuda, slow_function, SLOW);
	for (announces = 0; announces < 2; announces++) {
		ok(put_all("waits"), "put");
		before = xla_transfers();
		waits = waits_of_this_thread();
		ok(take_layers("waits", announces), "take, %s", announces ? "announced" : "not announced");
		waits = waits_of_this_thread() - waits;
		after = xla_transfers();
		counted = after.token_waits_total - before.token_waits_total;
		good = good_values();
		ok(good == VALUES, "slow %s: %u of %u come back as they were", slow_function, good,
		   VALUES);
		ok(counted == wanted[announces], "%llu waits for %u values of %u layers",
		   (unsigned long long)counted, VALUES, LAYERS);
		if (cuda.standin_counts)
			ok(waits == counted, "and %llu by CUDA's count", (unsigned long long)waits);
	}
	slow(&cuda, slow_function, 0);
	xla_close(am, &cuda);
}

/* Two turns of a loop that go into each other, as where XLA has unrolled it. */
static bool take_two(unsigned int layer, unsigned int other)
{
	bool done = xla_tie(&its.xla, its.tokens + XLA_TOKEN_BYTES * layer * OF_LAYER, OF_LAYER) &&
		    xla_tie(&its.xla, its.tokens + XLA_TOKEN_BYTES * other * OF_LAYER, OF_LAYER);
	unsigned int i;

	for (i = 0; i < OF_LAYER; i++)
		done = done && take("overlap", layer * OF_LAYER + i) &&
		       take("overlap", other * OF_LAYER + i);
	return done;
}

static void test_overlap(void)
{
	struct memory memory = { .ring_bytes = MIB };
	struct actmem *am = xla_open(&memory);
	unsigned int good;
	bool done;

	slow(&cuda, "cuMemcpyDtoDAsync_v2", SLOW / 4);
	done = put_all("overlap");
	/* By another execution as well, which failed before it took them. */
	its.xla.run++;
	done = done && xla_tie(&its.xla, its.tokens + XLA_TOKEN_BYTES * 3 * OF_LAYER, OF_LAYER);
	its.xla.run--;
	/* Those taken first were announced first, and last. */
	done = done && take_two(3, 2);
	done = done && xla_tie(&its.xla, its.tokens, OF_LAYER) && take_two(1, 0);
	slow(&cuda, "cuMemcpyDtoDAsync_v2", 0);
	good = good_values();
	ok(done && good == VALUES, "layers that go into each other: %u of %u", good, VALUES);
	xla_close(am, &cuda);
}

static void test_errors(void)
{
	struct memory memory = { .ring_bytes = MIB };
	struct actmem *am = xla_open(&memory);

	ok(put_all("errors"), "put");
	ok(xla_tie(&its.xla, its.tokens, OF_LAYER), "announce");
	ok(take("errors", 0), "take one");
	ok(!take("errors", 0) && strstr(its.xla.words, "after its last take"), "it is there once: %s",
	   its.xla.words);
	/* Another execution, and another site, have to look. */
	its.xla.run++;
	ok(take("errors", 1), "in another execution");
	its.xla.run--;
	ok(take("nowhere", 2), "from another site");
	ok(actmem_xla_reset() == VALUES - 3, "reset");
	ok(!take("errors", 3) && strstr(its.xla.words, "reset()"), "what was announced is gone: %s",
	   its.xla.words);
	ok(!xla_tie(&its.xla, its.tokens, OF_LAYER) && strstr(its.xla.words, "reset()"),
	   "and cannot be announced again: %s", its.xla.words);
	if (cuda.standin_fail) {
		cuda.standin_fail("cuEventSynchronize", 1, 1, CUDA_ERROR_UNKNOWN);
		ok(!xla_tie(&its.xla, its.tokens, OF_LAYER) &&
		   strstr(its.xla.words, "read a token"), "CUDA fails at it: %s", its.xla.words);
		cuda.standin_fail("", 0, 0, 0);
	}
	xla_close(am, &cuda);
}

/* Each has one byte more. */
static void test_many(void)
{
	struct memory memory = { .ring_bytes = MIB };
	struct actmem *am = xla_open(&memory);
	struct xla_device many;
	struct actmem_xla_transfer_stats before, after;
	unsigned int i, taken = 0;

	xla_begin(&many, &cuda, 0, MANY, 4096);
	many.xla.run = ++its.xla.run;
	for (i = 0; i < MANY; i++)
		taken += xla_put(&many.xla, "many", many.work, 1 + i,
				 many.tokens + XLA_TOKEN_BYTES * i);
	before = xla_transfers();
	ok(taken == MANY && xla_tie(&many.xla, many.tokens, MANY), "announce %u", MANY);
	for (i = 0; i < MANY; i++)
		taken -= xla_take_announced(&many.xla, "many", (int32_t)i,
					    many.tokens + XLA_TOKEN_BYTES * i, many.work,
					    1 + i);
	after = xla_transfers();
	ok(!taken && after.token_waits_total - before.token_waits_total == 2,
	   "all are taken, for two waits");
	cuda_returns(cuda.cuStreamSynchronize(many.xla.stream), CUDA_SUCCESS);
	xla_end(&many);
	cuda_returns(cuda.cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	xla_close(am, &cuda);
}

/* The memory holds one step's values: the next step's puts wait until the takes free them. */
static void test_full(void)
{
	struct memory memory = {
		.ring_bytes = 64 * BLOCK,
		.limit_bytes = FULL * BLOCK,
		.grow_bytes = FULL * BLOCK,
	};
	struct actmem *am = xla_open(&memory);
	unsigned int n, i, good;
	bool done = true;

	slow(&cuda, "cuMemcpyHtoDAsync_v2", 5 * SLOW);
	for (n = 0; n < 4; n++) {
		its.xla.run++;
		done = done && xla_put_step(&its, "full", FULL, BLOCK, content_of(0)) &&
		       xla_tie(&its.xla, its.tokens, FULL);
		for (i = FULL; i-- > 0; )
			done = done && xla_take_announced(&its.xla, "full", (int32_t)i,
							  its.tokens + XLA_TOKEN_BYTES * i,
							  its.results + i * BLOCK, BLOCK);
	}
	slow(&cuda, "cuMemcpyHtoDAsync_v2", 0);
	good = xla_good(&its, FULL, BLOCK, content_of(0));
	ok(done && good == FULL, "steps that fill all memory, one behind the other: %s",
	   done ? "good" : its.xla.words);
	xla_close(am, &cuda);
}

int main(void)
{
	cuda = xla_devices_or_skip(1);
	xla_begin(&its, &cuda, 0, VALUES, BLOCK);
	/* All go ahead; and none do, as none goes into the ring at once. */
	test_waits(64 * BLOCK, "cuMemcpyDtoDAsync_v2");
	test_waits(64 * BLOCK, "cuMemsetD32Async");
	test_waits(BLOCK, "cuMemcpyHtoDAsync_v2");
	test_waits(BLOCK, "cuMemcpyDtoDAsync_v2");
	test_overlap();
	test_errors();
	test_many();
	test_full();
	if (cuda.standin_counts)
		ok(!counts_of(&cuda).unpinned_copies, "all copies were of memory that CUDA knows");
	xla_end(&its);
	return xla_finish(&cuda, 1, 1);
}
