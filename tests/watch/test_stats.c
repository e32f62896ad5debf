/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The publishing side: records come and go, and run out in words.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "actmem.h"
#include "watch/stats.h"
#include "faults.h"

#define DEVICE	12

static uint64_t node_bytes[ACTMEM_NODES_MAX] = { [3] = 4096 };
static const struct actmem_region_info info = {
	.id = 11, .page_bytes = 4096, .pages = ACTMEM_PAGES_4K, .pinned_bytes = 4096,
	.node_bytes = node_bytes,
};

static struct stats_record published(const struct stats *stats, unsigned int index)
{
	struct stats_record record;

	assert_int_equal(pread(stats->fd, &record, sizeof(record), STATS_HEADER_BYTES +
			       (off_t)index * STATS_RECORD_BYTES), sizeof(record));
	return record;
}

static void test_record(void **state)
{
	struct holdings before = held_now();
	struct stats_record *record, *again;
	struct stats_record seen;
	struct stats stats;

	assert_int_equal(stats_open(&stats, ACTMEM_BACKEND_MEMFD), 0);
	assert_int_equal(stats_add(&stats, DEVICE, true, &info, &record), 0);
	seen = published(&stats, 0);
	assert_int_equal(seen.device, DEVICE);
	assert_int_equal(seen.id, 11);
	assert_int_equal(seen.page_bytes, 4096);
	assert_int_equal(seen.pages, ACTMEM_PAGES_4K);
	assert_int_equal(seen.pinned_bytes, 4096);
	assert_int_equal(seen.mapped_bytes, 0);
	assert_int_equal(seen.received, 1);
	assert_int_equal(seen.node_bytes[3], 4096);
	assert_int_equal(seen.sequence % 2, 0);
	stats_set_mapped(record, 4096);
	seen = published(&stats, 0);
	assert_int_equal(seen.mapped_bytes, 4096);
	assert_int_equal(seen.sequence % 2, 0);
	stats_set_pages(record, 0, (uint64_t[ACTMEM_NODES_MAX]){ [1] = 8192 });
	seen = published(&stats, 0);
	assert_int_equal(seen.pinned_bytes, 0);
	assert_int_equal(seen.node_bytes[1], 8192);
	assert_int_equal(seen.node_bytes[3], 0);
	assert_int_equal(seen.mapped_bytes, 4096);
	assert_int_equal(seen.sequence % 2, 0);
	stats_remove(&stats, record);
	seen = published(&stats, 0);
	assert_int_equal(seen.device, 0);
	/* What was there before must not show through. */
	assert_int_equal(stats_add(&stats, DEVICE, true, &info, &again), 0);
	assert_ptr_equal(again, record);
	assert_int_equal(published(&stats, 0).mapped_bytes, 0);
	stats_remove(&stats, again);
	stats_close(&stats);
	assert_same_held(before);
}

static void test_full(void **state)
{
	static struct stats_record *records[STATS_RECORDS];
	struct stats_record *more;
	struct stats stats;
	unsigned int i;

	assert_int_equal(stats_open(&stats, ACTMEM_BACKEND_MEMFD), 0);
	for (i = 0; i < STATS_RECORDS; i++)
		assert_int_equal(stats_add(&stats, DEVICE, true, &info, &records[i]), 0);
	assert_int_equal(published(&stats, STATS_RECORDS - 1).id, 11);
	assert_fails(stats_add(&stats, DEVICE, true, &info, &more), EMFILE, "4096 regions are open");
	stats_remove(&stats, records[1000]);
	assert_int_equal(stats_add(&stats, DEVICE, true, &info, &more), 0);
	assert_ptr_equal(more, records[1000]);
	stats_close(&stats);
}

static void test_no_memory(void **state)
{
	struct stats_record *record;
	struct stats stats;

	assert_int_equal(stats_open(&stats, ACTMEM_BACKEND_MEMFD), 0);
	fail_call("madvise", 1, EFAULT);
	assert_fails(stats_add(&stats, DEVICE, true, &info, &record), ENOMEM, "publish");
	fail_nothing();
	/* The record that failed is still free. */
	assert_int_equal(stats_add(&stats, DEVICE, true, &info, &record), 0);
	assert_int_equal(published(&stats, 0).id, 11);
	stats_close(&stats);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_no_memory),
	};

	return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
