/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Batches of the handlers for CUDA: one put makes a block of many examples, and takes get
 * tokens in any order, of several blocks, or of none. With a ring that holds a block, and
 * with one that is shorter.
 */
#include <stdio.h>
#include <string.h>

#include "xla_play.h"

#define EXAMPLES	6
#define EXAMPLE		(64 * 1024UL)
#define BYTES		(EXAMPLES * EXAMPLE)
#define BLOCKS		2
/* Takes of so many tokens are read in several parts. */
#define LONG_EXAMPLES	700

static struct xla *xla = &its.xla;
static uint64_t ids[BLOCKS];

static uint32_t content_of(unsigned int block, unsigned int example)
{
	return 1 + block * LONG_EXAMPLES + example;
}

/* Puts a block, whose id it reads as the program reads the token. */
static void put_block(unsigned int block, unsigned int examples, uint64_t example_bytes)
{
	struct token token;
	unsigned int i;

	for (i = 0; i < examples; i++)
		xla_compute(xla, its.work + i * example_bytes, example_bytes,
			    content_of(block, i));
	ok(xla_put_batch(xla, "batch", its.work, examples, example_bytes, its.tokens), "put");
	xla_compute(xla, its.work, examples * example_bytes, 0);
	if (gpu.cuStreamSynchronize(xla->stream) ||
	    gpu.cuMemcpyDtoH_v2(&token, its.tokens, sizeof(token)))
		tap_bail("a token");
	ids[block] = token.id;
	ok(token.id && !token.example && !token.changed, "the token of example 0");
}

/* Writes the tokens of examples: 10 * block + example, or -1 for none. */
static void write_tokens(const int *which, unsigned int count)
{
	struct token tokens[EXAMPLES * BLOCKS] = { 0 };
	unsigned int i;

	for (i = 0; i < count; i++) {
		if (which[i] < 0)
			continue;
		tokens[i].id = ids[which[i] / 10];
		tokens[i].example = (uint32_t)which[i] % 10;
	}
	if (gpu.cuMemcpyHtoD_v2(its.tokens, tokens, count * sizeof(*tokens)))
		tap_bail("tokens");
}

/* Takes what the tokens name, and returns how many examples are right. */
static unsigned int take(const int *which, unsigned int count, bool ends)
{
	unsigned int good = 0, i;
	const char *at;

	write_tokens(which, count);
	xla_compute(xla, its.results, count * EXAMPLE, 0xffff);
	if (!xla_take_batch(xla, its.tokens, count, its.results, EXAMPLE, ends)) {
		printf("# %s\n", xla->words);
		return 0;
	}
	xla_see(&its, count * EXAMPLE);
	for (i = 0; i < count; i++) {
		at = its.seen + i * EXAMPLE;
		good += which[i] < 0 ? all_bytes(at, EXAMPLE, 0) :
			xla_is_content(at, EXAMPLE,
				       content_of((unsigned int)which[i] / 10,
						  (unsigned int)which[i] % 10));
	}
	return good;
}

static void test_orders(void)
{
	static const int in_order[] = { 0, 1, 2, 3, 4, 5 }, reversed[] = { 5, 4, 3, 2, 1, 0 },
		mixed[] = { 0, 11, -1, 3, 14, 15 }, others[] = { 10, 1, 2, 12, 13, 4, 5, -1 },
		some[] = { 2, 3, 4 };

	xla->run++;
	put_block(0, EXAMPLES, EXAMPLE);
	ok(take(in_order, EXAMPLES, false) == EXAMPLES, "all in order");
	ok(take(reversed, EXAMPLES, false) == EXAMPLES, "all in reverse");
	ok(take(some, 3, false) == 3, "some");
	ok(xla_stats().live_blocks == 1, "takes that do not end it leave it");
	put_block(1, EXAMPLES, EXAMPLE);
	ok(take(mixed, EXAMPLES, true) == EXAMPLES, "some of each block, and none");
	ok(xla_stats().live_blocks == 2, "blocks with examples left stay");
	ok(take(others, 8, true) == 8, "the others");
	ok(!xla_stats().live_blocks, "each block ends with its last example");
}

static void test_references(void)
{
	static const int half[] = { 1, 3, 5 }, all[] = { 0, 1, 2, 3, 4, 5 };

	xla->run++;
	put_block(0, EXAMPLES, EXAMPLE);
	write_tokens(half, 3);
	ok(xla_hold(xla, its.tokens, 3, xla_token(&its, 8)), "hold three");
	write_tokens(all, EXAMPLES);
	ok(xla_drop(xla, its.tokens, EXAMPLES, its.work) && xla_stats().live_blocks == 1,
	   "a block that is held stays when all are dropped");
	ok(take(half, 3, true) == 3 && !xla_stats().live_blocks, "and ends with the held ones");
}

static void is_refused(unsigned int examples, uint64_t bytes, const char *why)
{
	ok(!xla_take_batch(xla, its.tokens, examples, its.results, bytes, false) &&
	   strstr(xla->words, "the program needs"), "%s: %s", why, xla->words);
}

static void test_refusals(void)
{
	static const int all[] = { 0, 1, 2, 3, 4, 5 }, beyond[] = { 4, 5, 6 };

	xla->run++;
	put_block(0, EXAMPLES, EXAMPLE);
	write_tokens(all, EXAMPLES);
	is_refused(EXAMPLES, EXAMPLE - 4, "another shape");
	is_refused(EXAMPLES / 2, 2 * EXAMPLE, "fewer examples, which are longer");
	ok(!xla_take_as_rows(xla, its.tokens, its.results, 2, EXAMPLE / 2) &&
	   strstr(xla->words, "the program needs"), "as many bytes of another shape: %s", xla->words);
	write_tokens(beyond, 3);
	is_refused(3, EXAMPLE, "more than there are");
	ok(take(all, EXAMPLES, true) == EXAMPLES, "after that, all");
	ok(xla_put_batch(xla, "batch", its.work, 0, EXAMPLE, its.tokens) &&
	   xla_take_batch(xla, its.tokens, 0, its.results, EXAMPLE, true) &&
	   !xla_stats().live_blocks, "a batch of nothing");
}

static void test_long(void)
{
	struct token tokens[LONG_EXAMPLES] = { 0 };
	unsigned int good = 0, i;

	xla->run++;
	put_block(0, LONG_EXAMPLES, 64);
	for (i = 0; i < LONG_EXAMPLES; i++) {
		tokens[i].id = ids[0];
		tokens[i].example = (i + 1) % LONG_EXAMPLES;
	}
	if (gpu.cuMemcpyHtoD_v2(its.tokens, tokens, sizeof(tokens)))
		tap_bail("tokens");
	ok(xla_take_batch(xla, its.tokens, LONG_EXAMPLES, its.results, 64, true), "take");
	xla_see(&its, LONG_EXAMPLES * 64);
	for (i = 0; i < LONG_EXAMPLES; i++)
		good += xla_is_content(its.seen + i * 64, 64, content_of(0, tokens[i].example));
	ok(good == LONG_EXAMPLES && !xla_stats().live_blocks, "%u examples of a long batch", good);
}

int main(void)
{
	xla_start(LONG_EXAMPLES, BYTES);
	XLA_RUN(test_orders, .ring_bytes = 32 * BYTES);
	XLA_RUN(test_orders, .ring_bytes = 32 * 4096);
	XLA_RUN(test_references, .ring_bytes = 32 * BYTES);
	XLA_RUN(test_refusals, .ring_bytes = 32 * BYTES);
	XLA_RUN(test_long, .ring_bytes = 32 * BYTES);
	return xla_stop();
}
