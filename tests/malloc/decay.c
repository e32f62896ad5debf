/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * When what is freed goes back to the kernel:
 *	decay at-once     ACTMEM_MALLOC_DECAY=0
 *	decay in-a-while  ACTMEM_MALLOC_DECAY=1
 *	decay limit       ACTMEM_MALLOC_DECAY=never
 *	decay pressure    ACTMEM_MALLOC_DECAY=never, in a memory cgroup of 1 GiB
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "malloc_test.h"

#define BLOCKS	10
#define BYTES	(8 * MIB)

static char *keep[60];

static void use_and_free(void)
{
	char *memory[BLOCKS];
	size_t i;

	for (i = 0; i < BLOCKS; i++) {
		memory[i] = memalign(64, BYTES);
		memset(memory[i], 1, BYTES);
	}
	for (i = 0; i < BLOCKS; i++)
		free(memory[i]);
}

static bool has_shrunk(size_t most)
{
	size_t before = resident_bytes();
	char *memory = memalign(64, 200 * MIB);
	bool good;

	memset(memory, 1, 200 * MIB);
	memory = realloc(memory, MIB);
	good = resident_bytes() <= before + most;
	free(memory);
	return good;
}

static uint64_t pooled(void)
{
	return counters_now().pooled_bytes;
}

/* Waits for at least a minute. The block that it takes is too small to need all of the pool. */
static bool becomes_less_than(uint64_t bytes)
{
	unsigned int tries;

	for (tries = 0; tries < 6000 && pooled() >= bytes; tries++) {
		usleep(10000);
		free(memalign(64, MIB));
	}
	return pooled() < bytes;
}

/* Blocks that do not fit into the gaps that others left: the gaps' memory goes back. */
static void test_limit(size_t before)
{
	char *memory[BLOCKS], *longer[3];
	size_t i;

	malloc_trim(0);
	for (i = 0; i < BLOCKS; i++) {
		memory[i] = memalign(64, BYTES);
		memset(memory[i], 1, BYTES);
	}
	for (i = 0; i < BLOCKS; i += 2)
		free(memory[i]);
	ok(resident_bytes() >= before + BLOCKS * BYTES, "the memory of freed blocks stays");
	for (i = 0; i < 3; i++) {
		longer[i] = memalign(64, 13 * MIB);
		memset(longer[i], 1, 13 * MIB);
	}
	ok(resident_bytes() <= before + BLOCKS * BYTES * 9 / 8 + 4 * MIB,
	   "but no more than an eighth more than the peak of blocks (%zu MiB)",
	   (resident_bytes() - before) / MIB);
	for (i = 0; i < 3; i++)
		free(longer[i]);
	for (i = 1; i < BLOCKS; i += 2)
		free(memory[i]);
	ok(counters_now().pooled_bytes >= BLOCKS * BYTES / 2, "freed blocks are pooled");
}

/* The kernel kills this process if the pool keeps its memory. No call of the pool follows. */
static void test_pressure(void)
{
	size_t i;
	char *memory;

	for (i = 0; i < 60; i++) {
		memory = memalign(64, BYTES);
		memset(memory, 1, BYTES);
		keep[i] = memory;
	}
	for (i = 0; i < 60; i++)
		free(keep[i]);
	ok(pooled() >= 480 * MIB, "480 MiB are pooled");
	for (i = 0; i < 700 * MIB; i += 1000) {
		memory = malloc(1000);
		memset(memory, 1, 1000);
	}
	ok(true, "and small blocks of 700 MiB fit into a cgroup of 1 GiB");
}

int main(int argc, char **argv)
{
	const char *when = argc == 2 ? argv[1] : "";
	size_t before = resident_bytes();

	if (!strcmp(when, "pressure")) {
		test_pressure();
		return tap_end();
	}
	use_and_free();
	if (!strcmp(when, "at-once")) {
		ok(pooled() == 0, "freed blocks go back at once");
		ok(resident_bytes() <= before + 4 * MIB, "and are not resident");
		ok(has_shrunk(4 * MIB), "nor is what realloc makes a block shorter by");
	} else if (!strcmp(when, "in-a-while")) {
		ok(pooled() > 0, "freed blocks are pooled");
		ok(becomes_less_than(BYTES), "and go back in a while");
		ok(resident_bytes() <= before + 4 * MIB, "so that they are not resident");
	} else {
		test_limit(before);
	}
	return tap_end();
}
