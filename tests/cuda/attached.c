/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a program attaches for JAX's memory: who has it, until when, and the knobs that
 * cannot be meant together. It needs no GPU.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/actmem_xla.h"
#include "xla/counts.h"
#include "xla/knobs.h"
#include "xla/memory.h"
#include "cuda_test.h"

static char words[1024];

static void words_have(const char *what)
{
	ok(strstr(words, what), "the words have \"%s\": %s", what, words);
}

static struct actmem *attach_own(void)
{
	struct actmem *am = open_or_bail();
	struct actmem_xla_options options = { .size = sizeof(options), .grow_bytes = 4 * MIB };

	returns(actmem_xla_attach(am, &options), 0);
	ok(actmem_xla_attached() == am, "it is attached");
	return am;
}

/* Whoever has some of it keeps it attached. */
static void stays(struct actmem *am, const char *who)
{
	returns(actmem_xla_close(am), -EBUSY);
	ok(actmem_xla_attached() == am, "it stays attached for %s", who);
}

static void goes(struct actmem *am)
{
	returns(actmem_xla_trim(), 0);
	counters_are_zero(am);
	returns(actmem_xla_close(am), 0);
	ok(!actmem_xla_attached(), "it goes with the last who has some of it");
}

static void test_refused(void)
{
	struct actmem *am = open_or_bail();
	struct actmem_xla_options options;

	ACTMEM_INIT(&options);
	options.size = sizeof(options) - 1;
	returns(actmem_xla_attach(am, &options), -EINVAL);
	ok(!actmem_xla_attached(), "options without their size attach nothing");
	returns(actmem_close(am), 0);
	am = attach_own();
	ACTMEM_INIT(&options);
	returns(actmem_xla_attach(am, &options), -EBUSY);
	returns(actmem_xla_close(NULL), -EINVAL);
	ok(actmem_xla_attached() == am, "nothing else detaches it");
	goes(am);
}

static void test_arrays(void)
{
	struct actmem *am = attach_own();
	struct actmem_xla_tensor_options options;
	struct actmem_xla_array *arrays[2];
	size_t *shorter = malloc(sizeof(*shorter));
	void *address, *tensor;

	if (!shorter)
		tap_bail("malloc");
	returns(actmem_xla_array_new(100, 0, 0, &arrays[0], &address, words, sizeof(words)), 0);
	ok((uintptr_t)address % 256 == 0, "a small array is aligned as XLA wants it");
	returns(actmem_xla_array_new(8192, 0, 0, &arrays[1], &address, words, sizeof(words)), 0);
	ok((uintptr_t)address % 4096 == 0, "a larger one, as direct I/O wants it");
	memset(&options, 0, sizeof(options));
	returns(actmem_xla_tensor_new(arrays[1], &options, &tensor), -EINVAL);
	/* The sanitizer sees it if a field beyond the size is read. */
	*shorter = sizeof(*shorter);
	returns(actmem_xla_tensor_new(arrays[1], (void *)shorter, &tensor), -EINVAL);
	free(shorter);
	stays(am, "arrays");
	actmem_xla_array_drop(arrays[0]);
	actmem_xla_array_drop(arrays[1]);
	stays(am, "their heap");
	goes(am);
}

static void test_store(void)
{
	static const struct actmem_key key = { .name = 3 };
	struct actmem *am = attach_own();
	const void *back;
	bool has_store;
	void *block;

	returns(memory_reserve(key, LENGTH, &block, &has_store, words, sizeof(words)), 0);
	ok(has_store, "there is a store");
	memory_commit(key);
	stays(am, "blocks");
	returns(memory_hold(key, &back, words, sizeof(words)), 0);
	ok(back == block, "the block is where it was put");
	memory_release(key);
	stays(am, "the store");
	goes(am);
}

/* A heap that cannot be made has nothing that stays. */
static void test_no_heap(void)
{
	struct actmem_xla_array *array;
	struct actmem_xla_options options = { .size = sizeof(options), .grow_bytes = 3 };
	struct actmem *am = open_or_bail();
	void *address;

	returns(actmem_xla_attach(am, &options), 0);
	returns(actmem_xla_array_new(LENGTH, 0, 0, &array, &address, words, sizeof(words)), -EINVAL);
	words_have("heap_grow= (ACTMEM_HEAP_GROW) is 3");
	returns(actmem_xla_close(am), 0);
	ok(!actmem_xla_attached(), "nothing has to be given back first");
}

static bool is_told(void *am)
{
	struct actmem_xla_options options = { .size = sizeof(options) };
	struct actmem_xla_array *array;
	struct actmem_store_stats stats = { .size = sizeof(stats) };
	void *address;

	return actmem_xla_array_new(LENGTH, 0, 0, &array, &address, words, sizeof(words)) ==
	       -EOWNERDEAD && strstr(words, "forked") && actmem_xla_trim() == -EOWNERDEAD &&
	       actmem_xla_store_stats(&stats) == -EOWNERDEAD &&
	       actmem_xla_attach(am, &options) == -EOWNERDEAD;
}

/* Also if no thread of the parent was at it, and nothing of it was used yet. */
static void test_fork(void)
{
	struct actmem *am = attach_own();

	ok(in_child(is_told, am), "a forked child has none of it");
	goes(am);
}

static void test_together(void)
{
	static const struct {
		const char *name, *text, *other, *its, *says;
	} wrong[] = {
		{ "ACTMEM_HEAP_GROW", "1X", NULL, NULL, "heap_grow= (ACTMEM_HEAP_GROW) is '1X'" },
		{ "ACTMEM_BUDGET", "-1", NULL, NULL, "budget= (ACTMEM_BUDGET) is '-1'" },
		{ "ACTMEM_HEAP_LIMIT", "-1", NULL, NULL, "heap_limit= (ACTMEM_HEAP_LIMIT) is '-1'" },
		{ "ACTMEM_SPILL_LIMIT", "1e9", NULL, NULL, "spill_limit= (ACTMEM_SPILL_LIMIT) is '1e9'" },
		{ "ACTMEM_SPILL_ALLOW", "memory,", NULL, NULL, "spill_allow= (ACTMEM_SPILL_ALLOW) is 'memory,'" },
		{ "ACTMEM_SPILL", "/tmp:", "ACTMEM_BUDGET", "64M", "spill= (ACTMEM_SPILL) is '/tmp:'" },
		{ "ACTMEM_BUDGET", "64M", "ACTMEM_HEAP_LIMIT", "64M", "are both set" },
		{ "ACTMEM_SPILL", "/tmp", NULL, NULL, "there is no budget" },
		{ "ACTMEM_SPILL_LIMIT", "64M", "ACTMEM_BUDGET", "64M", "no directory to spill to" },
		{ "ACTMEM_DEVICE_RING", "127K", NULL, NULL, "device_ring= (ACTMEM_DEVICE_RING) is '127K', but must be a number of bytes from 128K on" },
	};
	static const struct knobs given = { 0 };
	struct knobs knobs = { 0 };
	unsigned int i;

	for (i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		setenv(wrong[i].name, wrong[i].text, 1);
		if (wrong[i].other)
			setenv(wrong[i].other, wrong[i].its, 1);
		words[0] = 0;
		returns(knobs_complete(&knobs, &given, ACTMEM_NAMES_PYTHON, words, sizeof(words)), -EINVAL);
		words_have(wrong[i].says);
		ok(!knobs.budget_bytes && !knobs.spill_path_count, "and nothing is set");
		unsetenv(wrong[i].name);
		if (wrong[i].other)
			unsetenv(wrong[i].other);
	}
	setenv("ACTMEM_SPILL", "/tmp:/var/tmp", 1);
	setenv("ACTMEM_BUDGET", "64M", 1);
	setenv("ACTMEM_SPILL_ALLOW", "buffered,Memory", 1);
	returns(knobs_complete(&knobs, &given, ACTMEM_NAMES_PYTHON, words, sizeof(words)), 0);
	ok(knobs.budget_bytes == 64 * MIB && knobs.spill_path_count == 2 &&
	   !strcmp(knobs.spill_paths[1], "/var/tmp") &&
	   knobs.spill_allow == (ACTMEM_STORE_ALLOW_MEMORY | ACTMEM_STORE_ALLOW_BUFFERED),
	   "what can be meant together is taken");
	knobs_forget(&knobs);
	ok(!knobs.spill_path_count && !knobs.budget_bytes, "and forgotten");
	unsetenv("ACTMEM_SPILL");
	unsetenv("ACTMEM_BUDGET");
	unsetenv("ACTMEM_SPILL_ALLOW");
}

/* All that there is of a store, but what it has at the time, goes on with the next one. */
static void test_totals(void)
{
	const struct actmem_store_stats of_now = {
		.size = 1, .budget_bytes = 1, .blocks = 1, .block_bytes = 1, .memory_bytes = 1,
		.resident_bytes = 1, .spilled_bytes = 1, .file_bytes = 1, .window_bytes = 1,
		.write_bandwidth = 1, .read_bandwidth = 1, .beyond_budget_bytes = 1,
		.refused_bytes = 1,
	};
	uint64_t its[sizeof(of_now) / sizeof(uint64_t)], sum[sizeof(its) / sizeof(its[0])];
	struct actmem_store_stats added = { 0 }, other;
	unsigned int i, wrong = 0;

	memset(&other, 1, sizeof(other));
	counts_add_store(&added, &other);
	memcpy(its, &of_now, sizeof(its));
	memcpy(sum, &added, sizeof(sum));
	for (i = 0; i < sizeof(its) / sizeof(its[0]); i++)
		wrong += !its[i] != !!sum[i];
	ok(!wrong, "%u numbers of a store that was ended are lost, or kept", wrong);
}

int main(void)
{
	struct usage before = usage_now();

	test_refused();
	test_arrays();
	test_store();
	test_no_heap();
	test_fork();
	test_together();
	test_totals();
	same_usage_of_ours(before);
	return tap_end();
}
