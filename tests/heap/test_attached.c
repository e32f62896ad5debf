/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A heap whose regions are attached to a queue, as by a store that has what is in
 * the heap's blocks go to files: they stay until they are detached.
 */
#include <errno.h>
#include <string.h>

#include "actmem_queue.h"
#include "heap/inside.h"
#include "faults.h"

#define REGION_BYTES	(2ULL << 20)

static struct actmem *am;
static struct actmem_heap *heap;
static struct actmem_queue *queue;

static int set_up(void **state)
{
	struct actmem_queue_options queue_options;
	struct actmem_heap_options heap_options;

	ACTMEM_INIT(&heap_options);
	heap_options.grow_bytes = REGION_BYTES;
	ACTMEM_INIT(&queue_options);
	queue_options.engine = ACTMEM_ENGINE_WORKERS;
	return open_small(&am) || actmem_heap_create(am, &heap_options, &heap) ||
	       actmem_queue_create(am, &queue_options, &queue);
}

static int tear_down(void **state)
{
	return actmem_queue_destroy(queue) || actmem_heap_destroy(heap) || actmem_close(am);
}

static struct actmem_heap_stats stats(void)
{
	struct actmem_heap_stats now = { .size = sizeof(now) };

	assert_int_equal(actmem_heap_get_stats(heap, &now), 0);
	return now;
}

static void assert_busy(int returned, const char *words)
{
	assert_int_equal(returned, -EBUSY);
	if (!strstr(actmem_error(), words))
		fail_msg("'%s' is not in '%s'", words, actmem_error());
}

static void *use_block(void)
{
	void *block;

	assert_int_equal(actmem_heap_alloc(heap, REGION_BYTES, 0, &block), 0);
	memset(block, 1, REGION_BYTES);
	return block;
}

static void test_free_region(void **state)
{
	struct actmem_region *region;
	void *block = use_block();

	region = heap->regions->region;
	assert_int_equal(actmem_queue_attach(queue, region, 0), 0);
	assert_busy(actmem_region_close(region), "attached to 1 queue;");
	assert_int_equal(actmem_heap_free(heap, block), 0);
	assert_int_equal(actmem_heap_trim(heap), 0);
	assert_int_equal(stats().regions, 1);
	assert_busy(actmem_heap_destroy(heap), "1 of the heap's regions");
	assert_int_equal(actmem_heap_free(heap, use_block()), 0);
	assert_int_equal(stats().regions, 1);
	assert_int_equal(actmem_queue_detach(queue, region), 0);
	assert_int_equal(actmem_heap_trim(heap), 0);
	assert_int_equal(stats().regions, 0);
}

/* What stands in the way of the heap's end is told, the blocks before the queue. */
static void test_live_block(void **state)
{
	struct actmem_region *region;
	void *block = use_block();

	region = heap->regions->region;
	assert_int_equal(actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN), 0);
	assert_busy(actmem_heap_destroy(heap), "1 blocks of");
	assert_int_equal(actmem_queue_detach(queue, region), 0);
	assert_int_equal(actmem_heap_free(heap, block), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_free_region, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_live_block, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("regions of heaps attached to queues", tests, NULL,
					   NULL);
}
