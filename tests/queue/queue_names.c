/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A queue and regions that are files: a region that was opened only for reading cannot be
 * attached.
 */
#include "queue_test.h"

static char path[64];

static struct actmem_region *opened(struct actmem *am, uint32_t flags, enum actmem_pages pages)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .pages = pages,
	};
	struct actmem_region *region;

	if (actmem_region_open(am, path, &options, flags, &region))
		tap_bail("actmem_region_open");
	return region;
}

/* All that would write is refused at once. */
static void test_read_only(struct actmem *am, struct actmem_queue *queue)
{
	struct actmem_region *region = opened(am, ACTMEM_OPEN_READ, ACTMEM_PAGES_DEFAULT);

	returns(actmem_queue_attach(queue, region, 0), -EPERM);
	says("ACTMEM_OPEN_READ");
	says("attached to a queue");
	returns(actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN), -EPERM);
	returns(actmem_region_close(region), 0);
}

static void test_transfers(struct actmem_queue *queue, struct actmem_region *region)
{
	struct set set = set_or_bail(queue, 1, 0, LENGTH);
	char *memory = memory_or_bail(region), *wanted = malloc(LENGTH);

	returns(actmem_queue_attach(queue, region, 0), 0);
	pattern(wanted, LENGTH, 5);
	memcpy(memory, wanted, LENGTH);
	returns(spill_result(queue, set.file, 0, region, 0, LENGTH), 0);
	memset(memory, 0, LENGTH);
	returns(fill_result(queue, set.file, 0, region, 0, LENGTH), 0);
	ok(!memcmp(memory, wanted, LENGTH), "spilled and filled");
	returns(actmem_queue_detach(queue, region), 0);
	free(wanted);
	set_close(&set);
}

static void test_engine(struct actmem *am, enum actmem_engine engine, const char *folder)
{
	struct actmem_queue *queue = queue_or_bail(am, engine, 0, 0);
	struct actmem_region *region;

	snprintf(path, sizeof(path), "%s/region", folder);
	region = opened(am, ACTMEM_OPEN_CREATE, ACTMEM_PAGES_DEFAULT);
	test_transfers(queue, region);
	test_read_only(am, queue);
	returns(actmem_region_close(region), 0);
	returns(unlink(path), 0);
	destroy_idle(queue);
}

int main(void)
{
	struct usage before = usage_now();
	const char *folder;
	struct actmem *am;
	unsigned int i;

	skip_without_root();
	am = open_or_bail();
	folder = mount_own(am);
	for (i = 0; i < 2; i++)
		if (engine_is_there(am, engines[i]))
			test_engine(am, engines[i], folder);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	unmount_own(folder);
	return tap_end();
}
