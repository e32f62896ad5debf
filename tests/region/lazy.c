/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Lazy regions, populate and discard, on both backends: what is there is what
 * was touched or asked for, what was discarded comes back as zeros.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common.h"

#define HALF	(LENGTH / 2)

static struct actmem_region *make_or_bail(struct actmem *am, char **memory)
{
	struct actmem_region *region;

	if (create_region(am, LENGTH, ACTMEM_REGION_LAZY, &region))
		tap_bail("a lazy region");
	*memory = memory_or_bail(region);
	return region;
}

static struct actmem_region *make_at(struct actmem *am, enum actmem_policy policy,
				     struct actmem_nodes nodes)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .policy = policy, .nodes = nodes,
		.flags = ACTMEM_REGION_LAZY, .name = "lazy",
	};
	struct actmem_region *region;

	if (actmem_region_create(am, &options, &region))
		tap_bail("a lazy region");
	return region;
}

static void holds(struct actmem *am, struct actmem_region *region, uint64_t bytes)
{
	struct actmem_region_info info = info_or_bail(region);
	uint64_t on_nodes = bytes_on_nodes(&info);

	ok(info.allocated_bytes == bytes && on_nodes == bytes,
	   "%llu bytes are there (%llu are, %llu on nodes)", (unsigned long long)bytes,
	   (unsigned long long)info.allocated_bytes, (unsigned long long)on_nodes);
	ok(info.length == LENGTH && info.pinned_bytes == (on_driver(am) ? 0 : bytes),
	   "its length is as made, and what is there is locked (memfd)");
}

/* What others are told of it, to the byte. */
static void is_listed(struct actmem_region *region, uint64_t bytes)
{
	struct actmem_region_info *list, wanted = info_or_bail(region);
	uint64_t allocated = 0, on_nodes = 0;
	size_t count, i;

	returns(actmem_region_list(&list, &count), 0);
	for (i = 0; i < count; i++) {
		if (list[i].id != wanted.id || list[i].backend != wanted.backend)
			continue;
		allocated = list[i].allocated_bytes;
		on_nodes = bytes_on_nodes(&list[i]);
	}
	ok(allocated == bytes && on_nodes == bytes, "the list says so, too (%llu, %llu on nodes)",
	   (unsigned long long)allocated, (unsigned long long)on_nodes);
	free(list);
}

static void test_touch(struct actmem *am)
{
	uint64_t page = page_bytes_wanted();
	struct actmem_region *region;
	char *memory;

	region = make_or_bail(am, &memory);
	holds(am, region, 0);
	memory[HALF] = 1;
	memory[HALF + page - 1] = 2;
	ok(!memory[page - 1], "untouched memory is zeros");
	holds(am, region, 2 * page);
	ok(info_or_bail(region).demand_faults == (on_driver(am) ? 2 : 0),
	   "the driver counts touches");
	returns(actmem_region_close(region), 0);
}

static void test_populate(struct actmem *am)
{
	uint64_t page = page_bytes_wanted();
	struct actmem_region *region;
	char *memory;

	region = make_or_bail(am, &memory);
	memory[HALF] = 1;
	returns(actmem_region_populate(region, HALF - page, 2 * page), 0);
	holds(am, region, 2 * page);
	is_listed(region, 2 * page);
	ok(memory[HALF] == 1 && all_bytes(memory + HALF - page, page, 0),
	   "what was there stays, what was not is zeros");
	returns(actmem_region_populate(region, 0, LENGTH), 0);
	returns(actmem_region_populate(region, 0, LENGTH), 0);
	holds(am, region, LENGTH);
	ok(memory[HALF] == 1, "also the second time");
	ok(info_or_bail(region).demand_faults == (on_driver(am) ? 1 : 0), "populating is no touch");
	ok(info_or_bail(region).page_bytes == page && info_or_bail(region).pages == pages_wanted(),
	   "its pages are of the size asked for");

	memset(memory, 0x5a, LENGTH);
	returns(actmem_region_discard(region, page, HALF - page), 0);
	holds(am, region, LENGTH - HALF + page);
	is_listed(region, LENGTH - HALF + page);
	ok(memory[page - 1] == 0x5a && memory[HALF] == 0x5a, "what was not meant stays");
	ok(all_bytes(memory + page, HALF - page, 0), "what was discarded comes back as zeros");
	returns(actmem_region_discard(region, 0, LENGTH), 0);
	returns(actmem_region_discard(region, 0, LENGTH), 0);
	holds(am, region, 0);
	returns(actmem_region_populate(region, 0, LENGTH), 0);
	ok(all_bytes(memory, LENGTH, 0), "also when it is populated");
	returns(actmem_region_close(region), 0);
}

/* One that was not made lazy, received by its descriptor with a part missing. */
static void test_received(struct actmem *am)
{
	struct actmem_region *region = region_or_bail(am, "whole"), *second;
	/* A descriptor does not tell that pages were to be huge. */
	uint64_t page = pages_wanted() == ACTMEM_PAGES_THP ? 4096 : page_bytes_wanted();
	char *memory;

	returns(actmem_region_discard(region, HALF, HALF), 0);
	holds(am, region, HALF);
	returns(actmem_region_from_fd(am, actmem_region_fd(region), &second), 0);
	ok(info_or_bail(second).allocated_bytes == HALF, "what is missing stays so");
	memory = memory_or_bail(second);
	memory[LENGTH - 1] = 3;
	ok(info_or_bail(region).allocated_bytes == HALF + page, "both see the same pages");
	returns(actmem_region_populate(second, 0, LENGTH), 0);
	ok(memory[LENGTH - 1] == 3 && info_or_bail(region).allocated_bytes == LENGTH,
	   "either can populate it");
	returns(actmem_region_discard(second, 0, LENGTH), 0);
	ok(!memory[LENGTH - 1] && info_or_bail(region).allocated_bytes == page, "and discard");
	returns(actmem_region_close(second), 0);
	returns(actmem_region_close(region), 0);
}

/* The kernel tells it of pages that are mapped. */
static int node_of_page(const volatile char *memory)
{
	*memory;
	return node_of((void *)memory);
}

static void test_placement(struct actmem *am)
{
	struct actmem_nodes usable = usable_nodes(), one = { { 0 } };
	unsigned int wanted[ACTMEM_NODES_MAX], count = 0, node;
	uint64_t page = page_bytes_wanted(), at;
	struct actmem_region *region;
	char *memory;
	bool right;

	for (node = 0; node < ACTMEM_NODES_MAX; node++)
		if (has_node(&usable, node))
			wanted[count++] = node;
	add_node(&one, wanted[count - 1]);
	region = make_at(am, ACTMEM_PLACE_BIND, one);
	memory = memory_or_bail(region);
	memory[HALF] = 1;
	returns(actmem_region_populate(region, 0, HALF), 0);
	ok(node_of_page(memory + HALF) == (int)wanted[count - 1] &&
	   node_of_page(memory + HALF - page) == (int)wanted[count - 1],
	   "pages come from node %u, touched or populated", wanted[count - 1]);
	returns(actmem_region_close(region), 0);

	region = make_at(am, ACTMEM_PLACE_INTERLEAVE, usable);
	memory = memory_or_bail(region);
	/* From the back, so that it matters where the range begins. */
	returns(actmem_region_populate(region, LENGTH - page, page), 0);
	returns(actmem_region_populate(region, page, LENGTH - 2 * page), 0);
	returns(actmem_region_populate(region, 0, page), 0);
	for (at = 0, right = true; at < LENGTH; at += page)
		right = right && node_of_page(memory + at) == (int)wanted[at / page % count];
	ok(right, "page i is on the i-th of the %u nodes in turn", count);
	returns(actmem_region_close(region), 0);
}

static void test_bad_ranges(struct actmem *am)
{
	uint64_t page = page_bytes_wanted();
	const struct {
		uint64_t offset, length;
	} bad[] = {
		{ 0, 0 }, { 0, page - 1 }, { 1, page }, { page / 2, page }, { 0, LENGTH + page },
		{ LENGTH, page }, { page, LENGTH }, { 0, -page }, { -page, page },
		{ -page, 2 * page }, { UINT64_MAX, UINT64_MAX }, { 1ULL << 63, 1ULL << 63 },
	};
	struct actmem_region *region;
	char *memory;
	unsigned int i;

	region = make_or_bail(am, &memory);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		returns(actmem_region_populate(region, bad[i].offset, bad[i].length), -EINVAL);
		says("whole pages");
		returns(actmem_region_discard(region, bad[i].offset, bad[i].length), -EINVAL);
	}
	returns(actmem_region_populate(NULL, 0, page), -EINVAL);
	returns(actmem_region_discard(NULL, 0, page), -EINVAL);
	holds(am, region, 0);
	returns(actmem_region_close(region), 0);
}

#define THREADS	4

struct populater {
	struct actmem_region *region;
	unsigned int number;
	bool passed;
};

static void *populate_pieces(void *context)
{
	struct populater *own = context;
	uint64_t at, piece = LENGTH / THREADS;
	unsigned int round, i;

	own->passed = true;
	for (round = 0; round < 8; round++) {
		for (i = 0; i < THREADS; i++) {
			at = (own->number + i) % THREADS * piece;
			if (actmem_region_populate(own->region, at, piece))
				own->passed = false;
		}
		info_or_bail(own->region);
	}
	return NULL;
}

static void test_threads(struct actmem *am)
{
	struct populater populaters[THREADS];
	pthread_t threads[THREADS];
	struct actmem_region *region;
	bool passed = true;
	unsigned int i;
	char *memory;

	region = make_or_bail(am, &memory);
	for (i = 0; i < THREADS; i++) {
		populaters[i] = (struct populater){ region, i, false };
		threads[i] = start_thread(populate_pieces, &populaters[i]);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		passed = passed && populaters[i].passed;
	}
	ok(passed, "threads populate at once");
	holds(am, region, LENGTH);
	returns(actmem_region_close(region), 0);
}

/* Only the driver knows who holds a page. */
static void test_busy(struct actmem *am)
{
	uint64_t page = page_bytes_wanted();
	struct actmem_region *region;
	struct iovec vector;
	char *memory, bytes[4096];
	int ends[2], error, tries = 1000;

	region = make_or_bail(am, &memory);
	memory[0] = 1;
	memory[HALF] = 2;
	vector = (struct iovec){ memory + HALF, 4096 };
	if (pipe(ends) || vmsplice(ends[1], &vector, 1, 0) != 4096)
		tap_bail("vmsplice");
	error = actmem_region_discard(region, 0, LENGTH);
	ok(error == (on_driver(am) ? -EBUSY : 0), "a page that a pipe holds is busy (driver)");
	ok(info_or_bail(region).allocated_bytes == (on_driver(am) ? page : 0),
	   "the others have gone");
	ok(memory[HALF] == (on_driver(am) ? 2 : 0) && !memory[0], "what stays is unchanged");
	if (on_driver(am)) {
		returns(actmem_region_discard(region, 0, LENGTH), -EBUSY);
		says("2.0 MiB of 8.0 MiB cannot be discarded");
	}
	ok(read(ends[0], bytes, 4096) == 4096 && bytes[0] == 2, "the pipe has what was written");
	close(ends[0]);
	close(ends[1]);
	do {
		error = actmem_region_discard(region, 0, LENGTH);
	} while (error == -EBUSY && --tries && !usleep(1000));
	ok(!error, "and it can go when the pipe has let go of it");
	holds(am, region, 0);
	returns(actmem_region_close(region), 0);
}

/* On memfd the whole length is asked for when the region is made. */
static bool memlock_refuses(void *context)
{
	struct actmem_region *region;
	struct actmem *am;
	int error;

	if (actmem_open(&am, NULL) || !lower_memlock(HALF))
		return false;
	error = create_region(am, LENGTH, ACTMEM_REGION_LAZY, &region);
	if (!on_driver(am))
		return error == (memlock_counts(am) ? -ENOMEM : 0);
	if (error || actmem_region_populate(region, 0, HALF))
		return false;
	error = actmem_region_populate(region, 0, LENGTH);
	return error == -ENOMEM && strstr(actmem_error(), "RLIMIT_MEMLOCK") &&
	       strstr(actmem_error(), "the first 4.0 MiB of the 8.0 MiB are populated") &&
	       info_or_bail(region).allocated_bytes == HALF && !actmem_region_close(region);
}

static void test_memlock(struct actmem *am)
{
	ok(in_child(memlock_refuses, NULL), "RLIMIT_MEMLOCK holds");
}

int main(void)
{
	return RUN_TESTS(test_touch, test_populate, test_received, test_placement, test_bad_ranges,
			 test_threads, test_busy, test_memlock);
}
