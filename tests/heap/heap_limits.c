/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A heap under a limit that it shares, here size= of a mount: it grows by regions as long
 * as it was asked for, and when there is no room for one, by what its blocks need, down
 * to the last page.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "heap_test.h"

#define SIZE	(40 * MIB)	/* of the mount */
#define GROW	(24 * MIB)
#define BLOCK	(4 * MIB)
#define BLOCKS	(SIZE / BLOCK)
#define AFTER	(BLOCKS - GROW / BLOCK)		/* for which there is no room of GROW */

static char name[64];

static void remove_files(unsigned int count)
{
	char path[sizeof(name) + 16];
	unsigned int i;

	for (i = 0; i < count; i++) {
		snprintf(path, sizeof(path), "%s.%u", name, i);
		if (unlink(path))
			tap_bail("%s: %s", path, strerror(errno));
	}
}

static void test_to_the_last_page(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, GROW, 0);
	struct actmem_counters counters;
	void *blocks[BLOCKS], *more;
	unsigned int i, failed = 0;

	for (i = 0; i < BLOCKS; i++)
		failed += !!actmem_heap_alloc(heap, BLOCK, 0, &blocks[i]);
	ok(!failed, "%u blocks fill %u MiB (%u are refused: %s)", (unsigned int)BLOCKS,
	   (unsigned int)(SIZE / MIB), failed, failed ? actmem_error() : "");
	counters = counters_of(am);
	ok(counters.region_bytes == SIZE && counters.regions == 1 + AFTER,
	   "in a region of %u MiB and %u short ones", (unsigned int)(GROW / MIB), (unsigned int)AFTER);
	ok(actmem_heap_alloc(heap, BLOCK, 0, &more) < 0 && count_files(mount_folder) == 1 + AFTER,
	   "one more is refused, and leaves no file: %s", actmem_error());
	for (i = 0; i < BLOCKS && !failed; i++)
		failed += !!actmem_heap_free(heap, blocks[i]);
	ok(!failed, "all are freed");
	returns(actmem_heap_destroy(heap), 0);
	remove_files(1 + AFTER);
}

static void test_first_region(struct actmem *am)
{
	struct actmem_heap *heap = make_heap(am, SIZE + BLOCK, 0);
	void *block;

	ok(actmem_heap_alloc(heap, BLOCK, 0, &block) < 0,
	   "the first region is as long as asked for, or none");
	says("4.0 MiB are needed, but regions are created with 44.0 MiB; lower grow_bytes");
	ok(!count_files(mount_folder), "no file is left");
	returns(actmem_heap_destroy(heap), 0);
}

static void test_named(struct actmem *unnamed)
{
	struct actmem *am;

	snprintf(name, sizeof(name), "%s/job", mount_folder);
	am = open_named(name);
	test_to_the_last_page(am);
	test_first_region(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
}

int main(void)
{
	return RUN_MOUNTED_TESTS(test_named);
}
