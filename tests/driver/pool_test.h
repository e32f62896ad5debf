/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of pools share. The second node is the one that is looked at,
 * as the first has most of what else happens on the machine.
 */
#ifndef POOL_TEST_H
#define POOL_TEST_H

#include "cgroup_test.h"

#define NODE	1
#define FULL	32
#define SOME	(FULL / 8)

static inline int set_text(int node, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), SYSFS "/node%d/%s", node, name);
	return put(path, text);
}

static inline int set(int node, const char *name, size_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%zu\n", bytes);
	return set_text(node, name, text);
}

static inline long get(int node, const char *name)
{
	return number_in(SYSFS "/node%d/%s", node, name);
}

static inline int set_pool(int node, size_t pages)
{
	return set(node, "pool_bytes", pages * PAGE_BYTES);
}

/* In pages. */
static inline long ready(int node)
{
	return get(node, "pool_free_bytes") / (long)PAGE_BYTES;
}

static inline long lent(int node)
{
	return get(node, "pool_lent_bytes") / (long)PAGE_BYTES;
}

/* Ends by the harness's time limit if it never comes to that. */
static inline void wait_ready(int node, long pages)
{
	while (ready(node) != pages)
		usleep(20000);
}

/* Sets the size of a pool, and waits until all of its pages are ready. */
static inline void fill_pool(int node, size_t pages)
{
	must(set_pool(node, pages));
	wait_ready(node, pages);
}

static inline int create_on(int device, int node, size_t pages)
{
	struct actmem_ioctl_create arg = region_on(pages, ACTMEM_POLICY_BIND, 1 << node);

	return create(device, &arg);
}

FIXTURE(pool)
{
	int device;
};

FIXTURE_SETUP(pool)
{
	self->device = open_device();
	if (!node_memory(NODE, "MemTotal"))
		SKIP(return, "this machine has one memory node only");
	ASSERT_EQ(0, regions());
	ASSERT_EQ(0, node_sum("pool_bytes"));
	ASSERT_EQ(0, node_sum("pool_free_bytes"));
	ASSERT_EQ(0, node_sum("pool_lent_bytes"));
}

FIXTURE_TEARDOWN(pool)
{
	int node;

	for (node = 0; node_memory(node, "MemTotal"); node++)
		set_pool(node, 0);
	close(self->device);
}

#endif
