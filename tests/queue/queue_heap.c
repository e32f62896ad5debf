/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Blocks of a heap that are filled from a file, by each engine: each is told where it
 * lies, in the regions that the heap has made, and what is no live block is not.
 */
#include "queue_test.h"

#define BLOCK		(96 * KIB)
#define BLOCKS		64U		/* in more than one region */

struct blocks {
	struct actmem_heap *heap;
	char *memory[BLOCKS];
	struct actmem_region *regions[BLOCKS];	/* that are attached, each once */
	unsigned int region_count;
};

static void make(struct blocks *blocks, struct actmem *am)
{
	struct actmem_heap_options options = { .size = sizeof(options), .grow_bytes = 2 * MIB };
	unsigned int i;

	*blocks = (struct blocks){ .region_count = 0 };
	if (actmem_heap_create(am, &options, &blocks->heap))
		tap_bail("actmem_heap_create");
	for (i = 0; i < BLOCKS; i++)
		if (actmem_heap_alloc(blocks->heap, BLOCK, 4 * KIB, (void **)&blocks->memory[i]))
			tap_bail("actmem_heap_alloc");
}

static void attach(struct blocks *blocks, struct actmem_queue *queue,
		   struct actmem_region *region)
{
	unsigned int i;

	for (i = 0; i < blocks->region_count; i++)
		if (blocks->regions[i] == region)
			return;
	if (actmem_queue_attach(queue, region, 0))
		tap_bail("actmem_queue_attach");
	blocks->regions[blocks->region_count++] = region;
}

static bool fill(struct blocks *blocks, struct actmem_queue *queue, const struct set *set)
{
	struct actmem_region *region;
	uint64_t offset;
	unsigned int i, well = 0;

	for (i = 0; i < BLOCKS; i++) {
		memset(blocks->memory[i], 0, BLOCK);
		if (actmem_heap_locate(blocks->heap, blocks->memory[i], &region, &offset))
			tap_bail("actmem_heap_locate");
		attach(blocks, queue, region);
		if (actmem_queue_fill(queue, set->file, i * BLOCK, region, offset, BLOCK, NULL))
			tap_bail("actmem_queue_fill");
	}
	for (i = 0; i < BLOCKS; i++)
		well += !wait_or_bail(queue).result;
	return well == BLOCKS;
}

static void test_refused(struct blocks *blocks)
{
	struct actmem_region *region = NULL;
	uint64_t offset = 7;
	char *freed = blocks->memory[1];

	returns(actmem_heap_locate(blocks->heap, blocks->memory[0] + 256, &region, &offset),
		-EINVAL);
	says("not the start of a live block");
	returns(actmem_heap_locate(blocks->heap, &region, &region, &offset), -EINVAL);
	returns(actmem_heap_locate(blocks->heap, NULL, &region, &offset), -EINVAL);
	returns(actmem_heap_free(blocks->heap, freed), 0);
	returns(actmem_heap_locate(blocks->heap, freed, &region, &offset), -EINVAL);
	ok(!region && offset == 7, "of what is no live block nothing is told");
	returns(actmem_heap_alloc(blocks->heap, BLOCK, 4 * KIB, (void **)&blocks->memory[1]), 0);
	returns(actmem_heap_locate(blocks->heap, blocks->memory[1], &region, &offset), 0);
}

static void test_engine(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_queue *queue = queue_or_bail(am, engine, 0, 0);
	struct set set = set_or_bail(queue, 1, 0, BLOCKS * BLOCK);
	char *wanted = malloc(BLOCKS * BLOCK);
	struct blocks blocks;
	unsigned int same = 0, i;

	printf("# %s\n", actmem_queue_describe(queue));
	pattern(wanted, BLOCKS * BLOCK, 3);
	if (!set_transfer(&set, wanted, 0, BLOCKS * BLOCK, true))
		tap_bail("cannot write the file: %s", strerror(errno));
	make(&blocks, am);
	ok(fill(&blocks, queue, &set), "%u blocks are filled", BLOCKS);
	for (i = 0; i < BLOCKS; i++)
		same += !memcmp(blocks.memory[i], wanted + i * BLOCK, BLOCK);
	ok(same == BLOCKS && blocks.region_count > 1, "each with its bytes, in %u regions",
	   blocks.region_count);
	test_refused(&blocks);
	for (i = 0; i < BLOCKS; i++)
		if (actmem_heap_free(blocks.heap, blocks.memory[i]))
			tap_bail("actmem_heap_free");
	returns(actmem_heap_destroy(blocks.heap), -EBUSY);
	for (i = 0; i < blocks.region_count; i++)
		returns(actmem_queue_detach(queue, blocks.regions[i]), 0);
	returns(actmem_heap_destroy(blocks.heap), 0);
	set_close(&set);
	destroy_idle(queue);
	free(wanted);
}

int main(void)
{
	return test_engines(test_engine);
}
