/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions so long that several threads make their pages: as others, whether they are
 * whole, refused or found half made.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

/* As many pages of 2 MiB as the suite reserves; for three threads. */
#define LONG		(96 * MIB)
#define LIMIT		(60 * MIB)

static int make(struct actmem *am, uint32_t flags, struct actmem_region **region)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LONG, .flags = flags,
	};

	/* Of one node, so that any CPU may help. */
	options.policy = ACTMEM_PLACE_BIND;
	add_node(&options.nodes, 0);
	return actmem_region_create(am, &options, region);
}

static void test_whole(struct actmem *am)
{
	struct actmem_region *region;
	struct actmem_region_info info;
	unsigned int round;
	char *memory;

	for (round = 0; round < 2; round++) {
		if (!returns(make(am, 0, &region), 0))
			tap_bail("%s", actmem_error());
		info = info_or_bail(region);
		ok(info.allocated_bytes == LONG && info.node_bytes[0] == LONG,
		   "all of it is there, on node 0");
		ok(!info.demand_faults, "no page had to be touched");
		memory = memory_or_bail(region);
		ok(all_bytes(memory, LONG, 0), "it is zeroed");
		memset(memory, 0xff, LONG);
		returns(actmem_region_close(region), 0);
	}
}

/* Pages that are there stay as they are. */
static void test_half(struct actmem *am)
{
	struct actmem_region *region;
	char *memory;

	returns(make(am, ACTMEM_REGION_LAZY, &region), 0);
	memory = memory_or_bail(region);
	memory[LONG / 2] = 5;
	memory[LONG - 1] = 6;
	returns(actmem_region_populate(region, 0, LONG), 0);
	ok(info_or_bail(region).allocated_bytes == LONG, "what was missing has been made");
	ok(memory[LONG / 2] == 5 && memory[LONG - 1] == 6, "what was there is as it was");
	returns(actmem_region_close(region), 0);
}

static bool limit_refuses(void *context)
{
	struct actmem_region *region;
	struct actmem *am;
	int error;

	if (!lower_memlock(LIMIT))
		return false;
	am = open_or_bail();
	error = make(am, 0, &region);
	printf("# %s\n", actmem_error());
	return error == -ENOMEM && !actmem_close(am) &&
	       strstr(actmem_error(), "RLIMIT_MEMLOCK has 60.0 MiB left, but 96.0 MiB are needed");
}

static void test_limit(struct actmem *am)
{
	if (on_driver(am))
		ok(in_child(limit_refuses, NULL), "a limit is told of all that is wanted");
}

int main(void)
{
	return RUN_TESTS(test_whole, test_half, test_limit);
}
