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

#include "xla_play.h"

#define DEVICES	2
#define BLOCK	(256 * 1024UL)
#define BUDGET	(16 * MIB)
#define VALUES	60
#define GROW	(2 * MIB)

static struct cuda cuda;
static struct xla_device devices[DEVICES];
static unsigned int home_of[DEVICES];	/* ACTMEM_NODES_MAX: not known */
static char root[256], folder[256];

static void make_folder(char *path, size_t size, const char *parent)
{
	snprintf(path, size, "%s/nodes-XXXXXX", parent);
	if (!mkdtemp(path))
		tap_bail("%s", path);
}

/* A folder for /sys that has both devices. */
static void place_devices(void)
{
	char command[1024];
	int i;

	make_folder(root, sizeof(root), getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	for (i = 0; i < DEVICES; i++) {
		snprintf(command, sizeof(command),
			 "mkdir -p %s/sys/bus/pci/devices/0000:%02x:00.0 && echo %d >%s/sys/bus/pci/devices/0000:%02x:00.0/numa_node",
			 root, 0x17 + i, home_of[i] < ACTMEM_NODES_MAX ? (int)home_of[i] : -1,
			 root, 0x17 + i);
		if (system(command))
			tap_bail("%s", command);
	}
	sysfs_is_in(root);
}

static void find_nodes(void)
{
	struct actmem_nodes usable = usable_nodes();
	unsigned int node = 0;
	int i;

	for (i = 0; i < DEVICES; i++) {
		while (node < ACTMEM_NODES_MAX && !has_node(&usable, node))
			node++;
		home_of[i] = node < ACTMEM_NODES_MAX ? node++ : node;
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

static struct actmem_store_stats store_stats(void)
{
	struct actmem_store_stats stats = { .size = sizeof(stats) };

	returns(actmem_xla_store_stats(&stats), 0);
	return stats;
}

static uint64_t peak_of(struct actmem *am)
{
	struct actmem_counters counters = { .size = sizeof(counters) };

	returns(actmem_get_counters(am, &counters), 0);
	return counters.region_bytes_peak;
}

static struct xla_device *use(int device)
{
	cuda_returns(cuda.cuCtxSetCurrent(devices[device].context), CUDA_SUCCESS);
	return &devices[device];
}

static unsigned int put(int device, unsigned int first, unsigned int count)
{
	struct xla_device *its = use(device);
	unsigned int done = 0;

	while (done < count && xla_put_value(its, "nodes", first + done, BLOCK,
					     (uint32_t)(device * VALUES) + first + done))
		done++;
	cuda_returns(cuda.cuStreamSynchronize(its->xla.stream), CUDA_SUCCESS);
	return done;
}

static bool take(int device, unsigned int count)
{
	struct xla_device *its = use(device);
	unsigned int good = 0, i;

	for (i = count; i-- > 0; )
		good += xla_take(&its->xla, its->tokens + XLA_TOKEN_BYTES * i,
				 its->results + i * BLOCK, BLOCK);
	return good == count &&
	       xla_good(its, count, BLOCK, (uint32_t)(device * VALUES)) == count;
}

static void begin_runs(void)
{
	int i;

	for (i = 0; i < DEVICES; i++)
		devices[i].xla.run++;
}

static void test_homes(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);
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
	ok(store_stats().blocks == 2 * VALUES &&
	   store_stats().memory_bytes >= 2 * VALUES * BLOCK, "statistics add up");
	ok(take(0, VALUES) && take(1, VALUES), "each gets its own back");
	ok(store_stats().puts_total == 2 * VALUES, "totals, too");
	xla_close(am, &cuda);
	ok(!bytes_on(home_of[0]) && !bytes_on(home_of[1]) && !store_stats().memory_bytes,
	   "nothing is left on either node");
}

/* Bound to both nodes, as to those of a socket, a heap takes that of its GPU first. */
static void test_nearest_first(int device)
{
	struct actmem_region_options region = { .size = sizeof(region),
						.policy = ACTMEM_PLACE_BIND };
	struct actmem_heap_options options = { .size = sizeof(options), .region = &region };
	struct actmem_runtime_options its = { .size = sizeof(its), .kind = ACTMEM_RUNTIME_CUDA,
					      .device = device };
	struct actmem *am = open_or_bail();
	struct actmem_runtime *runtime;
	struct actmem_heap *heap;
	void *block;
	int i;

	for (i = 0; i < DEVICES; i++)
		if (home_of[i] < ACTMEM_NODES_MAX)
			region.nodes.word[home_of[i] / 64] |= 1ULL << home_of[i] % 64;
	returns(actmem_runtime_open(am, &its, &runtime), 0);
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
	struct memory memory = { .grow_bytes = GROW };
	struct actmem *am = xla_open(&memory);
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
	xla_close(am, &cuda);
}

/* The first GPU has nearly all of the budget when the second one comes. */
static void test_budget(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW, .budget_bytes = BUDGET,
				 .spill = folder };
	struct actmem *am = xla_open(&memory);
	unsigned int step;

	for (step = 0; step < 3; step++) {
		begin_runs();
		ok(put(0, 0, VALUES) == VALUES && put(1, 0, VALUES) == VALUES,
		   "step %u: both put more than the budget", step);
		ok(store_stats().budget_bytes <= BUDGET && store_stats().memory_bytes <= BUDGET &&
		   store_stats().spilled_bytes, "within the budget of both: %llu bytes",
		   (unsigned long long)store_stats().memory_bytes);
		ok(take(0, VALUES) && take(1, VALUES), "each gets its own back");
	}
	ok(store_stats().budget_bytes == BUDGET, "both have their part of it");
	ok(peak_of(am) <= BUDGET, "they never had more together: %llu bytes",
	   (unsigned long long)peak_of(am));
	xla_close(am, &cuda);
	ok(!store_stats().memory_bytes && !store_stats().file_bytes, "nothing is left");
}

/* Without files, each may have what the other does not use, except for one page. */
static void test_limit(void)
{
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW, .limit_bytes = BUDGET };
	unsigned int most = (unsigned int)((BUDGET - page_bytes_wanted()) / BLOCK);
	struct actmem *am = xla_open(&memory);

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
	ok(peak_of(am) <= BUDGET, "both never had more together: %llu bytes",
	   (unsigned long long)peak_of(am));
	actmem_xla_reset();
	xla_close(am, &cuda);
}

/* A store needs two pages. */
static void test_small_budget(void)
{
	struct memory memory = { .ring_bytes = MIB, .budget_bytes = 3 * page_bytes_wanted(),
				 .spill = folder };
	struct actmem *am = xla_open(&memory);

	begin_runs();
	ok(xla_put(&use(0)->xla, "small", devices[0].work, 4096, devices[0].tokens) &&
	   xla_put(&use(1)->xla, "small", devices[1].work, 4096, devices[1].tokens),
	   "two GPUs share a store if the budget is too small for two");
	ok(store_stats().budget_bytes == memory.budget_bytes, "which has all of it");
	ok(xla_take(&use(0)->xla, devices[0].tokens, devices[0].work, 4096) &&
	   xla_take(&use(1)->xla, devices[1].tokens, devices[1].work, 4096), "and is taken from");
	xla_close(am, &cuda);
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
	struct memory memory = { .ring_bytes = MIB, .grow_bytes = GROW, .budget_bytes = BUDGET,
				 .spill = folder };
	struct actmem *am = xla_open(&memory);

	begin_runs();
	ok(put(0, 0, VALUES) == VALUES && put(1, 0, VALUES) == VALUES,
	   "two stores have values in memory and in files");
	ok(in_child(use_in_child, NULL), "a forked child is refused by both");
	ok(take(0, VALUES) && take(1, VALUES), "the parent has all its values");
	begin_runs();
	ok(put(1, 0, VALUES) == VALUES && put(0, 0, VALUES) == VALUES, "and puts others");
	ok(take(0, VALUES) && take(1, VALUES), "and takes them");
	xla_close(am, &cuda);
	ok(!store_stats().memory_bytes && !store_stats().file_bytes, "nothing is left");
}

int main(void)
{
	char command[1024];
	int i;

	unsetenv("STANDIN_CUDA_BUS_IDS");
	cuda = xla_devices_or_skip(DEVICES);
	if (!cuda.standin_counts) {
		tap_skip("where a real GPU is, its machine knows");
		return tap_end();
	}
	find_nodes();
	place_devices();
	make_folder(folder, sizeof(folder), getenv("SPILL") ? getenv("SPILL") : "build/tests");
	for (i = 0; i < DEVICES; i++)
		xla_begin(&devices[i], &cuda, i, VALUES, BLOCK);
	test_homes();
	for (i = 0; i < DEVICES; i++)
		test_nearest_first(i);
	test_arrays();
	test_budget();
	test_limit();
	test_fork();
	test_small_budget();
	for (i = 0; i < DEVICES; i++)
		xla_end(use(i));
	sysfs_is_in(NULL);
	snprintf(command, sizeof(command), "rm -r %s %s", root, folder);
	returns(system(command), 0);
	return xla_finish(&cuda, DEVICES, 1);
}
