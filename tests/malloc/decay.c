/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * When what is freed goes back to the kernel:
 *	decay at-once     ACTMEM_MALLOC_DECAY=0
 *	decay in-a-while  ACTMEM_MALLOC_DECAY=1, ACTMEM_MALLOC_KEEP=1G
 *	decay limit       ACTMEM_MALLOC_DECAY=never, ACTMEM_MALLOC_KEEP=32M
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "malloc_test.h"

#define BLOCKS	10
#define BYTES	(8 * MIB)

static void use_and_free(void)
{
	char *memory[BLOCKS];
	size_t i;

	for (i = 0; i < BLOCKS; i++) {
		memory[i] = malloc(BYTES);
		memset(memory[i], 1, BYTES);
	}
	for (i = 0; i < BLOCKS; i++)
		free(memory[i]);
}

static bool has_shrunk(size_t most)
{
	size_t before = resident_bytes();
	char *memory = malloc(200 * MIB);
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
		free(malloc(MIB));
	}
	return pooled() < bytes;
}

int main(int argc, char **argv)
{
	const char *when = argc == 2 ? argv[1] : "";
	size_t before = resident_bytes();

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
		ok(pooled() > 16 * MIB && pooled() <= 32 * MIB,
		   "of %d MiB no more are pooled than the limit (%llu MiB)",
		   (int)(BLOCKS * BYTES / MIB), (unsigned long long)(pooled() / MIB));
		ok(resident_bytes() <= before + 40 * MIB, "and the rest is not resident");
		ok(has_shrunk(40 * MIB), "nor is what realloc makes a block shorter by");
	}
	return tap_end();
}
