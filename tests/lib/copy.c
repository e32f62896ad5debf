/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copying between regions, on both backends: at any offsets, from what is
 * missing and to what is missing, within a region; and what is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static struct actmem_region *lazy_or_bail(struct actmem *am)
{
	struct actmem_region_options options;
	struct actmem_region *region;

	ACTMEM_INIT(&options);
	options.length = LENGTH;
	options.flags = ACTMEM_REGION_LAZY;
	if (actmem_region_create(am, &options, &region))
		tap_bail("a lazy region");
	return region;
}

static void fill(unsigned char *memory, uint64_t seed)
{
	uint64_t i;

	for (i = 0; i < LENGTH; i++) {
		seed = seed * 6364136223846793005 + 1442695040888963407;
		memory[i] = (unsigned char)(seed >> 56);
	}
}

static unsigned char *map_or_bail(struct actmem_region *region)
{
	void *memory;

	if (actmem_region_map(region, &memory))
		tap_bail("actmem_region_map");
	return memory;
}

static void test_offsets(struct actmem *am)
{
	static const uint64_t offsets[] = { 0, 1, 7, 4095, 4096, 2 * MIB - 1, 2 * MIB, 3 * MIB + 5 };
	static const uint64_t lengths[] = { 1, 8, 13, 4096, 4097, 2 * MIB, 4 * MIB + 3 };
	struct actmem_region *to = region_or_bail(am, "to"), *from = region_or_bail(am, "from");
	unsigned char *target = map_or_bail(to), *source = map_or_bail(from);
	unsigned char *model = malloc(LENGTH);
	bool good = true;
	size_t i, j, k;

	fill(target, 1);
	fill(source, 2);
	memcpy(model, target, LENGTH);
	for (i = 0; i < 8; i++) {
		for (j = 0; j < 8; j++) {
			for (k = 0; k < 7; k++) {
				good = good && !actmem_region_copy(to, offsets[i], from, offsets[j],
								   lengths[k]);
				memcpy(model + offsets[i], source + offsets[j], lengths[k]);
			}
			good = good && !memcmp(target, model, LENGTH);
		}
	}
	ok(good, "bytes go from any offset to any, and no others change");
	returns(actmem_region_copy(to, 0, from, 0, LENGTH), 0);
	ok(!memcmp(target, source, LENGTH), "all of a region is copied");
	ok(!*actmem_error(), "there is no word of an error");
	returns(actmem_region_close(from), 0);
	returns(actmem_region_close(to), 0);
	free(model);
}

static void test_missing(struct actmem *am)
{
	struct actmem_region *to = lazy_or_bail(am), *from = lazy_or_bail(am);
	unsigned char *target, *source = map_or_bail(from);
	uint64_t had;

	source[3 * MIB] = 7;
	had = info_or_bail(from).allocated_bytes;
	ok(had && had < LENGTH, "the source has %llu bytes", (unsigned long long)had);
	returns(actmem_region_copy(to, 2 * MIB + 1, from, 2 * MIB, 2 * MIB), 0);
	ok(info_or_bail(from).allocated_bytes == had,
	   "what is missing in the source stays missing");
	ok(info_or_bail(to).allocated_bytes >= 2 * MIB && info_or_bail(to).allocated_bytes < LENGTH,
	   "what is missing where it is copied to is made, and no more (%llu bytes)",
	   (unsigned long long)info_or_bail(to).allocated_bytes);
	target = map_or_bail(to);
	ok(all_bytes(target + 2 * MIB, MIB + 1, 0) && target[3 * MIB + 1] == 7 &&
	   all_bytes(target + 3 * MIB + 2, MIB - 1, 0), "what is missing reads as zeros");
	memset(target, 0xff, LENGTH);
	returns(actmem_region_discard(from, 0, LENGTH), 0);
	returns(actmem_region_copy(to, 0, from, 0, LENGTH), 0);
	ok(all_bytes(target, LENGTH, 0) && !info_or_bail(from).allocated_bytes,
	   "a region of nothing is all zeros");
	returns(actmem_region_close(from), 0);
	returns(actmem_region_close(to), 0);
}

static void test_within(struct actmem *am)
{
	struct actmem_region *region = region_or_bail(am, "one"), *again;
	unsigned char *memory = map_or_bail(region), *model = malloc(LENGTH);

	fill(memory, 3);
	memcpy(model, memory, LENGTH);
	returns(actmem_region_copy(region, 100, region, 4 * MIB, 3 * MIB + 1), 0);
	memcpy(model + 100, model + 4 * MIB, 3 * MIB + 1);
	returns(actmem_region_copy(region, 1000, region, 1900, 900), 0);
	memcpy(model + 1000, model + 1900, 900);
	ok(!memcmp(memory, model, LENGTH), "a part of a region is copied to another part");
	returns(actmem_region_copy(region, 1000, region, 1899, 900), -EINVAL);
	says("overlap");
	returns(actmem_region_copy(region, 1899, region, 1000, 900), -EINVAL);
	returns(actmem_region_copy(region, 0, region, 0, LENGTH), -EINVAL);
	returns(actmem_region_from_fd(am, actmem_region_fd(region), &again), 0);
	returns(actmem_region_copy(region, 1000, again, 1899, 900), -EINVAL);
	returns(actmem_region_copy(region, 1000, again, 1900, 900), 0);
	returns(actmem_region_close(again), 0);
	returns(actmem_region_close(region), 0);
	free(model);
}

static void test_refusals(struct actmem *am)
{
	struct actmem_region *to = region_or_bail(am, "to"), *from = region_or_bail(am, "from");
	static const uint64_t beyond[] = { LENGTH + 1, 1ULL << 32, 1ULL << 63, UINT64_MAX };
	bool good = true;
	size_t i;

	returns(actmem_region_copy(NULL, 0, from, 0, 1), -EINVAL);
	says("no region");
	returns(actmem_region_copy(to, 0, NULL, 0, 1), -EINVAL);
	says("no region");
	returns(actmem_region_copy(to, 0, from, 0, 0), -EINVAL);
	returns(actmem_region_copy(to, 1, from, 0, LENGTH), -EINVAL);
	says("to copy to");
	returns(actmem_region_copy(to, 0, from, 1, LENGTH), -EINVAL);
	says("to copy from");
	for (i = 0; i < 4; i++)
		good = good && actmem_region_copy(to, beyond[i], from, 0, 1) == -EINVAL &&
		       actmem_region_copy(to, 0, from, beyond[i], 1) == -EINVAL &&
		       actmem_region_copy(to, 0, from, 0, beyond[i]) == -EINVAL &&
		       actmem_region_copy(to, beyond[i], from, 0, -beyond[i]) == -EINVAL;
	ok(good, "ranges beyond either region are refused");
	returns(actmem_region_copy(to, LENGTH - 1, from, LENGTH - 1, 1), 0);
	returns(actmem_region_close(from), 0);
	returns(actmem_region_close(to), 0);
}

/* A region of another backend; there are two where the driver is. */
static void test_backends(struct actmem *am)
{
	struct actmem_region *to, *from;
	struct actmem_options options;
	struct actmem *other;

	if (!on_driver(am))
		return;
	to = region_or_bail(am, "to");
	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	options.pages = ACTMEM_PAGES_4K;
	returns(actmem_open(&other, &options), 0);
	from = region_or_bail(other, "from");
	returns(actmem_region_copy(to, 0, from, 0, 1), -EINVAL);
	says("from memfd to driver");
	returns(actmem_region_close(from), 0);
	returns(actmem_close(other), 0);
	returns(actmem_region_close(to), 0);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();

	test_offsets(am);
	test_missing(am);
	test_within(am);
	test_refusals(am);
	test_backends(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	return tap_end();
}
