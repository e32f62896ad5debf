/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Two GPUs at two nodes: each has its blocks on its own, and both share one budget. On a
 * machine of one node the second GPU's is not known, so that there are two stores as well.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "xla/memory.h"
#include "xla_play.h"

#define DEVICES	2
#define BLOCK	(256 * 1024UL)
#define BUDGET	(16 * MIB)
#define VALUES	60
#define GROW	(2 * MIB)
#define LARGE	(7 * MIB)

static struct xla_device devices[DEVICES];
static unsigned int home_of[DEVICES];	/* ACTMEM_NODES_MAX: not known */
static char folder[256];
static unsigned int large_refused;

static struct actmem_key key_on(uint32_t device)
{
	return (struct actmem_key){ .name = memory_name(0, device, 1, 0) };
}

/* In a /sys of the test's, each device is at a node of its own, as far as there are. */
static void place_devices(void)
{
	struct actmem_nodes usable = usable_nodes();
	char bus_id[16], text[16];
	unsigned int node = 0;
	int i;

	for (i = 0; i < DEVICES; i++) {
		while (node < ACTMEM_NODES_MAX && !has_node(&usable, node))
			node++;
		home_of[i] = node < ACTMEM_NODES_MAX ? node++ : node;
		snprintf(bus_id, sizeof(bus_id), "0000:%02x:00.0", 0x17 + i);
		snprintf(text, sizeof(text), "%d", home_of[i] < ACTMEM_NODES_MAX ? (int)home_of[i] : -1);
		device_is_at(bus_id, text);
	}
}

/* Of the regions that blocks are in. */
static uint64_t bytes_on(unsigned int node)
{
	struct actmem_region_info *regions;
	uint64_t bytes = 0;
	size_t count, i;

	if (actmem_region_list(&regions, &count))
		tap_bail("actmem_region_list");
	for (i = 0; i < count; i++)
		if (regions[i].pid == getpid() && !strcmp(regions[i].name, "activations") &&
		    node < regions[i].node_count)
			bytes += regions[i].node_bytes[node];
	free(regions);
	return bytes;
}

static uint64_t bytes_peak(void)
{
	return counters_of(actmem_xla_attached()).region_bytes_peak;
}

static struct xla_device *use(int device)
{
	cuda_ok(gpu.cuCtxSetCurrent(devices[device].context));
	return &devices[device];
}

static unsigned int put(int device, unsigned int first, unsigned int count)
{
	struct xla_device *used = use(device);
	unsigned int done = 0;

	while (done < count && xla_put_value(used, "nodes", first + done, BLOCK,
					     (uint32_t)(device * VALUES) + first + done))
		done++;
	cuda_ok(gpu.cuStreamSynchronize(used->xla.stream));
	return done;
}

static bool take(int device, unsigned int count)
{
	struct xla_device *used = use(device);

	return xla_take_step(used, NULL, count, BLOCK) &&
	       xla_good(used, count, BLOCK, (uint32_t)(device * VALUES)) == count;
}

static void begin_runs(void)
{
	int i;

	for (i = 0; i < DEVICES; i++)
		devices[i].xla.run++;
}

static void test_homes(void)
{
	uint64_t first;

	begin_runs();
	ok(put(0, 0, VALUES) == VALUES, "the first GPU puts its values");
	first = bytes_on(home_of[0]);
	ok(first >= VALUES * BLOCK, "they are on its node: %llu bytes", (unsigned long long)first);
	ok(!bytes_on(home_of[1]), "and nothing is on the other one");
	ok(put(1, 0, VALUES) == VALUES, "the second GPU puts its values");
	ok(bytes_on(home_of[0]) < first + VALUES * BLOCK || home_of[1] == ACTMEM_NODES_MAX,
	   "which are not on the first one's node");
	if (home_of[1] < ACTMEM_NODES_MAX)
		ok(bytes_on(home_of[1]) >= VALUES * BLOCK, "but on its own: %llu bytes",
		   (unsigned long long)bytes_on(home_of[1]));
	ok(xla_store_stats().blocks == 2 * VALUES &&
	   xla_store_stats().memory_bytes >= 2 * VALUES * BLOCK, "statistics add up");
	ok(take(0, VALUES) && take(1, VALUES), "each gets its own back");
	ok(xla_store_stats().puts_total == 2 * VALUES, "totals, too");
}

/* Bound to both nodes, as to those of a socket, a heap takes that of its GPU first. */
static void test_nearest_first(int device)
{
	struct actmem_region_options region = { .size = sizeof(region),
						.policy = ACTMEM_PLACE_BIND };
	struct actmem_heap_options options = { .size = sizeof(options), .region = &region };
	struct actmem_runtime_options wanted = { .size = sizeof(wanted),
						 .kind = ACTMEM_RUNTIME_CUDA, .device = device };
	struct actmem *am = open_or_bail();
	struct actmem_runtime *runtime;
	struct actmem_heap *heap;
	void *block;
	int i;

	for (i = 0; i < DEVICES; i++)
		if (home_of[i] < ACTMEM_NODES_MAX)
			region.nodes.word[home_of[i] / 64] |= 1ULL << home_of[i] % 64;
	returns(actmem_runtime_open(am, &wanted, &runtime), 0);
	returns(actmem_heap_create(am, &options, &heap), 0);
	returns(actmem_heap_register(heap, runtime, 0), 0);
	returns(actmem_heap_alloc(heap, BLOCK, 0, &block), 0);
	ok(home_of[device] == ACTMEM_NODES_MAX || node_of(block) == (int)home_of[device],
	   "a heap of GPU %d takes its node first", device);
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_destroy(heap), 0);
	returns(actmem_runtime_close(runtime), 0);
	returns(actmem_close(am), 0);
}

static uint64_t array_bytes(void)
{
	struct actmem_xla_array_stats stats = { .size = sizeof(stats) };

	returns(actmem_xla_array_stats(&stats), 0);
	return stats.region_bytes;
}

static void test_arrays(void)
{
	struct actmem_xla_array *arrays[DEVICES];
	char words[1024] = "";
	void *address;
	int i;

	for (i = 0; i < DEVICES; i++) {
		returns(actmem_xla_array_new(BLOCK, ACTMEM_XLA_ARRAY_CUDA, (uint32_t)i, &arrays[i],
					     &address, words, sizeof(words)), 0);
		memset(address, 1, BLOCK);
		ok(home_of[i] == ACTMEM_NODES_MAX || node_of(address) == (int)home_of[i],
		   "an array of GPU %d is on its node %s", i, words);
	}
	ok(array_bytes() == DEVICES * GROW, "each has a heap");
	for (i = 0; i < DEVICES; i++)
		actmem_xla_array_drop(arrays[i]);
	returns(actmem_xla_trim(), 0);
	ok(!array_bytes(), "which go with the arrays");
}

/* The first GPU has nearly all of the budget when the second one comes. */
static void test_budget(void)
{
	unsigned int step;

	for (step = 0; step < 3; step++) {
		begin_runs();
		ok(put(0, 0, VALUES) == VALUES && put(1, 0, VALUES) == VALUES,
		   "step %u: both put more than the budget", step);
		ok(xla_store_stats().budget_bytes <= BUDGET && xla_store_stats().memory_bytes <= BUDGET &&
		   xla_store_stats().spilled_bytes, "within the budget of both: %llu bytes",
		   (unsigned long long)xla_store_stats().memory_bytes);
		ok(take(0, VALUES) && take(1, VALUES), "each gets its own back");
	}
	ok(xla_store_stats().budget_bytes == BUDGET, "both have their part of it");
	ok(bytes_peak() <= BUDGET, "they never had more together: %llu bytes",
	   (unsigned long long)bytes_peak());
}

/* Runs right after the first refusal of the second GPU's block, like another thread. */
static void (*meanwhile)(void);

int __real_actmem_store_reserve(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
				void **memory, uint64_t timeout_ns);
int __wrap_actmem_store_reserve(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
				void **memory, uint64_t timeout_ns);
int __wrap_actmem_store_reserve(struct actmem_store *store, struct actmem_key key, uint64_t bytes,
				void **memory, uint64_t timeout_ns)
{
	int error = __real_actmem_store_reserve(store, key, bytes, memory, timeout_ns);

	if (error == -ENOMEM && bytes == LARGE && !large_refused++)
		meanwhile();
	return error;
}

static void drop_first(void)
{
	memory_drop(key_on(0));
}

/* Reserves a block, which must succeed. */
static void reserve(struct actmem_key key, uint64_t bytes)
{
	char words[1024] = "";
	bool has_store;
	void *memory;

	ok(!memory_reserve(key, bytes, &memory, &has_store, words, sizeof(words)),
	   "%llu bytes are reserved: %s", (unsigned long long)bytes, words);
}

/* Leaves too little for a large block on the second GPU. */
static void reserve_first(void (*then)(void))
{
	large_refused = 0;
	meanwhile = then;
	reserve(key_on(0), BUDGET - LARGE + MIB);
}

/* A store that gets its share between a refusal and the next attempt tries again. */
static void test_late_share(void)
{
	reserve_first(drop_first);
	reserve(key_on(1), LARGE);
	ok(large_refused == 1, "right after it was refused");
	memory_drop(key_on(1));
}

/* Borrows for a block of its own, which it drops. */
static void borrow_for_other(void)
{
	struct actmem_key other = key_on(1);

	other.instance++;
	reserve(other, LARGE);
	memory_drop(other);
}

/* The same without files, if another thread has borrowed for the store. */
static void test_late_loan(void)
{
	reserve_first(borrow_for_other);
	reserve(key_on(1), MIB);
	memory_drop(key_on(1));
	memory_drop(key_on(0));
	reserve(key_on(1), LARGE);
	ok(large_refused > 1, "right after it was refused");
	memory_drop(key_on(1));
}

/* Without files, each may have what the other does not use, except for one page. */
static void test_limit(void)
{
	unsigned int most = (unsigned int)((BUDGET - page_bytes_wanted()) / BLOCK);

	most = most < VALUES ? most : VALUES;
	begin_runs();
	ok(put(0, 0, 40) == 40 && put(1, 0, 20) == 20, "10 MiB and 5 MiB of 16 MiB");
	ok(take(0, 40) && take(1, 20), "are taken");
	begin_runs();
	ok(put(1, 0, most) == most, "%llu MiB by the other one alone", most * BLOCK / MIB);
	ok(put(0, 0, VALUES) < VALUES, "more than that is refused");
	ok(strstr(devices[0].xla.words, "of 16 MiB, which GPUs on 2 nodes share") ||
	   strstr(devices[0].xla.words, "use up the budget of 16 MiB"),
	   "and the error says who has it: %s", devices[0].xla.words);
	ok(take(1, most) && put(1, 0, most) == most, "the other one goes on");
	ok(take(1, most) && put(0, VALUES - 8, 8) == 8, "and gives back what it has borrowed");
	ok(put(1, 0, VALUES) <= BUDGET / BLOCK - 8, "and then borrows only what the first one leaves");
	ok(bytes_peak() <= BUDGET, "both never had more together: %llu bytes",
	   (unsigned long long)bytes_peak());
	actmem_xla_reset(NULL, 0);
}

/* A store needs two pages. */
static void test_small_budget(void)
{
	begin_runs();
	ok(xla_put(&use(0)->xla, "small", devices[0].work, 4096, devices[0].tokens) &&
	   xla_put(&use(1)->xla, "small", devices[1].work, 4096, devices[1].tokens),
	   "two GPUs share a store if the budget is too small for two");
	ok(xla_store_stats().budget_bytes == 3 * page_bytes_wanted(), "which has all of it");
	ok(xla_take(&use(0)->xla, devices[0].tokens, devices[0].work, 4096) &&
	   xla_take(&use(1)->xla, devices[1].tokens, devices[1].work, 4096), "and is taken from");
}

/* The child has no part of either store; the parent's blocks are as they were. */
static bool use_in_child(void *unused)
{
	struct actmem_store_stats stats = { .size = sizeof(stats) };
	int i;

	for (i = 0; i < DEVICES; i++) {
		struct xla *xla = &devices[i].xla;

		if (xla_put(xla, "nodes", devices[i].work, BLOCK, devices[i].tokens) ||
		    !strstr(xla->words, "forked") ||
		    xla_take(xla, devices[i].tokens, devices[i].results, BLOCK) ||
		    !strstr(xla->words, "forked"))
			return false;
	}
	actmem_xla_trim_devices();
	return actmem_xla_store_stats(&stats) == -EOWNERDEAD && actmem_xla_trim() == -EOWNERDEAD;
}

static void test_fork(void)
{
	begin_runs();
	ok(put(0, 0, VALUES) == VALUES && put(1, 0, VALUES) == VALUES,
	   "two stores have values in memory and in files");
	ok(in_child(use_in_child, NULL), "a forked child is refused by both");
	ok(take(0, VALUES) && take(1, VALUES), "the parent has all its values");
	begin_runs();
	ok(put(1, 0, VALUES) == VALUES && put(0, 0, VALUES) == VALUES, "and puts others");
	ok(take(0, VALUES) && take(1, VALUES), "and takes them");
}

static void run(void (*test)(void), struct memory memory)
{
	xla_run(test, memory);
	ok(!bytes_on(home_of[0]) && !bytes_on(home_of[1]) && !xla_store_stats().memory_bytes &&
	   !xla_store_stats().file_bytes, "nothing is left on either node");
}

int main(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW };
	int i;

	unsetenv("STANDIN_CUDA_BUS_IDS");
	xla_devices_or_skip(DEVICES);
	xla_standin_or_skip();
	place_devices();
	make_folder(folder, sizeof(folder));
	for (i = 0; i < DEVICES; i++)
		xla_begin(&devices[i], i, VALUES, BLOCK);
	run(test_homes, memory);
	ok(xla_store_stats().puts_total == 2 * VALUES, "the totals outlast the stores");
	for (i = 0; i < DEVICES; i++)
		test_nearest_first(i);
	run(test_arrays, memory);
	memory.budget_bytes = BUDGET;
	memory.spill = folder;
	run(test_budget, memory);
	run(test_fork, memory);
	run(test_late_share, memory);
	run(test_late_loan, (struct memory){ .ring_bytes = MIB, .grow_bytes = GROW,
					     .limit_bytes = BUDGET });
	run(test_limit, (struct memory){ .ring_bytes = MIB, .grow_bytes = GROW, .limit_bytes = BUDGET });
	run(test_small_budget, (struct memory){ .ring_bytes = MIB, .spill = folder,
						.budget_bytes = 3 * page_bytes_wanted() });
	for (i = 0; i < DEVICES; i++)
		xla_end(use(i));
	sysfs_is_true();
	returns(rmdir(folder), 0);
	return xla_finish(DEVICES, 1);
}
