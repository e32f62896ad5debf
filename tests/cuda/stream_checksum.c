/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Checksums of blocks that a GPU puts: a block whose bytes changed in host memory is neither copied
 * to the GPU ahead of its take nor by the take, which fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xla_play.h"

#define BLOCK	(128 * 1024UL)
#define VALUES	3
#define TRIES	2000		/* of a millisecond */

/* Finds the block with a value in the store's regions. */
static char *find_block(uint32_t content)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512], *start, *end, *found = NULL;

	while (!found && fgets(line, sizeof(line), maps)) {
		if (!strstr(line, "actmem:activations") ||
		    sscanf(line, "%p-%p", (void **)&start, (void **)&end) != 2)
			continue;
		for (; start + BLOCK <= end && !found; start += 4096)
			if (xla_is_content(start, BLOCK, content))
				found = start;
	}
	fclose(maps);
	if (!found)
		tap_bail("no block has value %u", content);
	return found;
}

static bool take(unsigned int value)
{
	return xla_take(&its.xla, xla_token(&its, value),
			its.results + value * BLOCK, BLOCK);
}

static void wait_until_idle(void)
{
	while (xla_transfers().unfinished)
		usleep(1000);
}

static void put_all(void)
{
	unsigned int i;

	its.xla.run++;
	for (i = 0; i < VALUES; i++)
		ok(xla_put_value(&its, "checksum", i, BLOCK, i + 1), "put %u", i);
	gpu.cuStreamSynchronize(its.xla.stream);
	wait_until_idle();
}

/* Only a block that is not longer than the slots for takes goes ahead. */
static void test_changed(uint64_t ring_bytes, bool goes_ahead)
{
	struct memory memory = { .ring_bytes = ring_bytes };
	struct actmem *am = xla_open(&memory);
	const struct actmem_xla_stats before = xla_stats();
	unsigned int try;

	put_all();
	find_block(2)[BLOCK - 1] ^= 1;
	ok(take(2), "a take of an unchanged block: %s", its.xla.words);
	for (try = 0; goes_ahead && try < TRIES && !xla_transfers().staged_bytes &&
	     xla_stats().checksums_total < before.checksums_total + 2; try++)
		usleep(1000);
	ok(!xla_transfers().staged_bytes, "a changed block is not copied ahead");
	ok(!take(1) && strstr(its.xla.words, "131072 bytes saved at checksum") &&
	   strstr(its.xla.words, "checksum is wrong"), "and its take fails: %s", its.xla.words);
	ok(xla_stats().lost_blocks_total == before.lost_blocks_total + 1, "it is counted as lost");
	ok(take(0), "the next one is as it was put");
	xla_see(&its, VALUES * BLOCK);
	ok(xla_is_content(its.seen, BLOCK, 1) && xla_is_content(its.seen + 2 * BLOCK, BLOCK, 3),
	   "the others have their values");
	xla_close(am);
}

/* A store that exists computes checksums of the blocks that are put after they are switched on. */
static void test_switched_on(void)
{
	actmem_xla_set_checksum(0);
	its.xla.run++;
	ok(xla_put_value(&its, "checksum", 0, BLOCK, VALUES + 1) && take(0), "a block has no checksum");
	actmem_xla_set_checksum(1);
	put_all();
	find_block(2)[BLOCK - 1] ^= 1;
	ok(!take(1) && strstr(its.xla.words, "checksum is wrong"), "a changed block is found: %s",
	   its.xla.words);
	actmem_xla_reset(NULL, 0);
}

int main(void)
{
	xla_start(VALUES, BLOCK);
	XLA_RUN(test_switched_on, .ring_bytes = 32 * BLOCK);
	test_changed(32 * BLOCK, true);
	test_changed(32 * 4096, false);
	return xla_stop();
}
