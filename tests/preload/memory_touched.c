/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Long mappings that are registered with one page of them written to, wherever that is:
 * what is in it stays. Pages are looked at in several reads.
 */
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory_test.h"

#define PAGE	4096UL
#define BYTES	(24 * MIB)

/* The lowest one that is free. */
static int next_descriptor(void)
{
	int descriptor = dup(STDERR_FILENO);

	close(descriptor);
	return descriptor;
}

static bool one_touched(void)
{
	static const uint64_t pages[] = { 0, 1, 2047, 2048, 4095, 4096, BYTES / PAGE - 1 };
	int free_descriptor = next_descriptor();
	uint64_t listed;
	unsigned int i;
	char *memory;

	for (i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		memory = map_untouched(BYTES);
		madvise(memory, BYTES, MADV_NOHUGEPAGE);
		memory[pages[i] * PAGE + 7] = 'x';
		CHECK(!api.cuMemHostRegister_v2(memory, BYTES, 0));
		CHECK(memory[pages[i] * PAGE + 7] == 'x');
		CHECK(!is_in_region(memory) && !is_in_region(memory + BYTES - 1));
		CHECK(!api.cuMemHostUnregister(memory));
		CHECK(!munmap(memory, BYTES));
	}
	CHECK(!own_regions(&listed));
	CHECK(next_descriptor() == free_descriptor);
	return true;
}

static bool none_touched(void)
{
	char *memory = map_untouched(BYTES);
	uint64_t listed;

	CHECK(!api.cuMemHostRegister_v2(memory, BYTES, 0));
	CHECK(is_in_region(memory) && is_in_region(memory + BYTES - 1));
	CHECK(own_regions(&listed) == 1 && listed == BYTES);
	CHECK(!api.cuMemHostUnregister(memory));
	CHECK(!munmap(memory, BYTES));
	return true;
}

int main(void)
{
	skip_without_cuda();
	run_quiet("one page that was written to keeps a mapping as it is", one_touched, NULL);
	run_case("the same one gets a region if none was", none_touched, NULL);
	return tap_end();
}
