/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program that clears its environment before it uses CUDA has what was set when it
 * began: blocks from regions, as it was to have them, however much was set.
 *
 * Started with: ACTMEM_CUDA_MIN=2M
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory_test.h"

#define MORE_VARIABLES	200
#define MORE_BYTES	1000	/* of each */

static bool blocks_from_regions(void)
{
	void *large, *small;

	CHECK(!getenv("ACTMEM_CUDA") && !getenv("ACTMEM_BACKEND"));
	CHECK(!api.cuMemHostAlloc(&large, 2 * MIB, 0) && is_in_region(large));
	CHECK(!api.cuMemHostAlloc(&small, MIB, 0) && !is_in_region(small));
	CHECK(!api.cuMemFreeHost(large) && !api.cuMemFreeHost(small));
	return true;
}

static bool blocks_of_the_driver(void)
{
	return block_is_of_driver(2 * MIB);
}

/* Begins again, with many variables before and behind those that it is to have. */
static void begin_with_more(char **argv)
{
	char name[32], text[MORE_BYTES + 1];
	unsigned int i;

	memset(text, 'x', MORE_BYTES);
	text[MORE_BYTES] = '\0';
	for (i = 0; i < MORE_VARIABLES; i++) {
		snprintf(name, sizeof(name), "ACTMEM_MORE%u", i);
		if (setenv(name, text, 1))
			tap_bail("setenv");
	}
	execv("/proc/self/exe", argv);
	tap_bail("execv");
}

int main(int argc, char **argv)
{
	skip_without_cuda();
	if (!getenv("ACTMEM_MORE0"))
		begin_with_more(argv);
	if (clearenv())
		tap_bail("the environment cannot be cleared");
	run_quiet("settings are those with which the program began", blocks_from_regions, NULL);
	run_case("unless it says itself that it wants none", blocks_of_the_driver, "ACTMEM_CUDA=0",
		 NULL);
	return tap_end();
}
