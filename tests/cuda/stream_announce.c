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
				xla_token(&its, value), its.work, BLOCK)) {
		printf("# %s\n", its.xla.words);
		return false;
	}
	gpu.cuMemcpyDtoDAsync_v2(its.results + value * BLOCK, its.work, BLOCK, its.xla.stream);
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
			done = done && xla_tie(&its.xla, xla_token(&its, layer * OF_LAYER), OF_LAYER);
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

	slow(&gpu, slow_function, SLOW);
	for (announces = 0; announces < 2; announces++) {
		ok(put_all("waits"), "put");
		before = xla_transfers();
		waits = counts_of(&gpu).own_waits;
		ok(take_layers("waits", announces), "take, %s", announces ? "announced" : "not announced");
		waits = counts_of(&gpu).own_waits - waits;
		after = xla_transfers();
		counted = after.token_waits_total - before.token_waits_total;
		good = good_values();
		ok(good == VALUES, "slow %s: %u of %u come back as they were", slow_function, good,
		   VALUES);
		ok(counted == wanted[announces], "%llu waits for %u values of %u layers",
		   (unsigned long long)counted, VALUES, LAYERS);
		if (gpu.standin_counts)
			ok(waits == counted, "and %llu by CUDA's count", (unsigned long long)waits);
	}
	slow(&gpu, slow_function, 0);
	xla_close(am);
}

static bool announce_layer(unsigned int layer)
{
	return xla_tie(&its.xla, xla_token(&its, layer * OF_LAYER), OF_LAYER);
}

/* Takes two layers in turns, as a loop does that XLA has unrolled. */
static bool take_two(unsigned int layer, unsigned int other)
{
	bool done = true;
	unsigned int i;

	for (i = 0; i < OF_LAYER; i++)
		done = done && take("overlap", layer * OF_LAYER + i) &&
		       take("overlap", other * OF_LAYER + i);
	return done;
}

static void test_overlap(void)
{
	unsigned int good;
	bool done;

	slow(&gpu, "cuMemcpyDtoDAsync_v2", SLOW / 4);
	done = put_all("overlap");
	/* By another execution as well, which failed before it took them. */
	its.xla.run++;
	done = done && announce_layer(3);
	its.xla.run--;
	/* The layer that is taken first was announced first, or last. */
	done = done && announce_layer(3) && announce_layer(2) && take_two(3, 2);
	done = done && announce_layer(0) && announce_layer(1) && take_two(1, 0);
	slow(&gpu, "cuMemcpyDtoDAsync_v2", 0);
	good = good_values();
	ok(done && good == VALUES, "layers that go into each other: %u of %u", good, VALUES);
}

static void test_errors(void)
{
	ok(put_all("errors"), "put");
	ok(xla_tie(&its.xla, its.tokens, OF_LAYER), "announce");
	ok(take("errors", 0), "take one");
	ok(!take("errors", 0) && strstr(its.xla.words, "after its last use"), "it is there once: %s",
	   its.xla.words);
	/* Another execution, and another site, have to look. */
	its.xla.run++;
	ok(take("errors", 1), "in another execution");
	its.xla.run--;
	ok(take("nowhere", 2), "from another site");
	ok(actmem_xla_reset(NULL, 0) == VALUES - 3, "reset");
	ok(!take("errors", 3) && strstr(its.xla.words, "reset()"), "what was announced is gone: %s",
	   its.xla.words);
	ok(!xla_tie(&its.xla, its.tokens, OF_LAYER) && strstr(its.xla.words, "reset()"),
	   "and cannot be announced again: %s", its.xla.words);
	if (gpu.standin_fail) {
		gpu.standin_fail("cuEventSynchronize", 1, 1, CUDA_ERROR_UNKNOWN);
		ok(!xla_tie(&its.xla, its.tokens, OF_LAYER) &&
		   strstr(its.xla.words, "read a token"), "CUDA fails at it: %s", its.xla.words);
		gpu.standin_fail("", 0, 0, 0);
	}
}

/* A tie must not announce a token with that mark: the take would not read the token. */
static void test_changed(void)
{
	uint32_t token[4];
	bool is_put = put_all("changed");

	cuda_ok(gpu.cuStreamSynchronize(its.xla.stream));
	cuda_ok(gpu.cuMemcpyDtoH_v2(token, its.tokens, sizeof(token)));
	token[3] = 1;
	cuda_ok(gpu.cuMemcpyHtoD_v2(its.tokens, token, sizeof(token)));
	ok(is_put && announce_layer(0), "announce a layer with a changed value");
	ok(!take("changed", 0) && strstr(its.xla.words, "could not change the value"),
	   "the take of that value fails: %s", its.xla.words);
	ok(take("changed", 1), "take another value");
	ok(actmem_xla_reset(NULL, 0) == VALUES - 1, "reset");
}

/* Each has one byte more. */
static void test_many(void)
{
	struct xla_device many;
	struct actmem_xla_transfer_stats before, after;
	unsigned int i, taken = 0;

	xla_begin(&many, 0, MANY, 4096);
	many.xla.run = ++its.xla.run;
	for (i = 0; i < MANY; i++)
		taken += xla_put(&many.xla, "many", many.work, 1 + i,
				 xla_token(&many, i));
	before = xla_transfers();
	ok(taken == MANY && xla_tie(&many.xla, many.tokens, MANY), "announce %u", MANY);
	for (i = 0; i < MANY; i++)
		taken -= xla_take_announced(&many.xla, "many", (int32_t)i,
					    xla_token(&many, i), many.work,
					    1 + i);
	after = xla_transfers();
	ok(!taken && after.token_waits_total - before.token_waits_total == 2,
	   "all are taken, for two waits");
	cuda_ok(gpu.cuStreamSynchronize(many.xla.stream));
	xla_end(&many);
	cuda_ok(gpu.cuDevicePrimaryCtxRelease_v2(0));
}

static void test_full(void)
{
	unsigned int n, good;
	bool done = true;

	slow(&gpu, "cuMemcpyHtoDAsync_v2", 5 * SLOW);
	for (n = 0; n < 4; n++) {
		its.xla.run++;
		done = done && xla_put_step(&its, "full", FULL, BLOCK, content_of(0)) &&
		       xla_tie(&its.xla, its.tokens, FULL) &&
		       xla_take_step(&its, "full", FULL, BLOCK);
	}
	slow(&gpu, "cuMemcpyHtoDAsync_v2", 0);
	good = xla_good(&its, FULL, BLOCK, content_of(0));
	ok(done && good == FULL, "steps that fill all memory, one behind the other: %s",
	   done ? "good" : its.xla.words);
}

int main(void)
{
	xla_start(VALUES, BLOCK);
	/* All go ahead; and none do, as none goes into the ring at once. */
	test_waits(64 * BLOCK, "cuMemcpyDtoDAsync_v2");
	test_waits(64 * BLOCK, "cuMemsetD32Async");
	test_waits(BLOCK, "cuMemcpyHtoDAsync_v2");
	test_waits(BLOCK, "cuMemcpyDtoDAsync_v2");
	XLA_RUN(test_overlap, .ring_bytes = MIB);
	XLA_RUN(test_errors, .ring_bytes = MIB);
	XLA_RUN(test_changed, .ring_bytes = MIB);
	XLA_RUN(test_many, .ring_bytes = MIB);
	/* It holds one step's values: the next step's puts wait until the takes free them. */
	XLA_RUN(test_full, .ring_bytes = 64 * BLOCK, .limit_bytes = FULL * BLOCK,
		.grow_bytes = FULL * BLOCK);
	if (gpu.standin_counts)
		ok(!counts_of(&gpu).unpinned_copies, "all copies were of memory that CUDA knows");
	return xla_stop();
}
