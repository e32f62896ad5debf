/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program that clears its environment before it uses CUDA has what was set when it
 * began: blocks from regions, as it was to have them.
 *
 * Started with: ACTMEM_CUDA_MIN=2M
 */
#include <stdlib.h>

#include "memory_test.h"

static bool blocks_from_regions(void)
{
	void *large, *small;

	CHECK(!getenv("ACTMEM_CUDA") && !getenv("ACTMEM_BACKEND"));
	CHECK(!cuda.cuMemHostAlloc(&large, 2 * MIB, 0) && is_shared(large));
	CHECK(!cuda.cuMemHostAlloc(&small, MIB, 0) && !is_shared(small));
	CHECK(!cuda.cuMemFreeHost(large) && !cuda.cuMemFreeHost(small));
	return true;
}

static bool blocks_of_the_driver(void)
{
	void *memory;

	CHECK(!cuda.cuMemHostAlloc(&memory, 2 * MIB, 0) && !is_shared(memory));
	CHECK(!cuda.cuMemFreeHost(memory));
	return true;
}

int main(void)
{
	skip_without_cuda();
	if (clearenv())
		tap_bail("the environment cannot be cleared");
	run_case("settings are those with which the program began", blocks_from_regions, NULL);
	told(0, "");
	run_case("unless it says itself that it wants none", blocks_of_the_driver, "ACTMEM_CUDA=0",
		 NULL);
	return tap_end();
}
