/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What the tests of dmem cgroups share: two cgroups below one, and a pool on the second node. */
#ifndef DMEM_TEST_H
#define DMEM_TEST_H

#include "pool_test.h"

#define LIMIT	8
#define JOB	CGROUP "/job"
#define OTHER	CGROUP "/other"

/* In pages, of the node's memory. */
static inline long charged(const char *cgroup, int node)
{
	char path[128], line[128], name[64];
	long long bytes, found = -1;
	FILE *file;
	int number;

	snprintf(path, sizeof(path), "%s/dmem.current", cgroup);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%63s %lld", name, &bytes) == 2 &&
		    sscanf(name, "actmem/node%d", &number) == 1 && number == node)
			found = bytes;
	if (file)
		fclose(file);
	return found < 0 ? -1 : (long)(found / (long long)PAGE_BYTES);
}

static inline int set_most(const char *cgroup, int node, long pages)
{
	char path[128], text[64];

	snprintf(path, sizeof(path), "%s/dmem.max", cgroup);
	snprintf(text, sizeof(text), "actmem/node%d max", node);
	if (pages >= 0)
		snprintf(text, sizeof(text), "actmem/node%d %ld", node, pages * (long)PAGE_BYTES);
	return put(path, text);
}

static inline int enter(const char *cgroup)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	return put(path, "0");
}

/* A process that has been waited for may be in it for a moment longer. */
static inline int leave(const char *cgroup)
{
	while (rmdir(cgroup))
		if (errno != EBUSY || usleep(1000))
			return -errno;
	return 0;
}

FIXTURE(dmem)
{
	int device;
};

FIXTURE_SETUP(dmem)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
	ASSERT_EQ(0, make_cgroup("+dmem"));
	ASSERT_EQ(0, put(CGROUP "/cgroup.subtree_control", "+dmem"));
	ASSERT_EQ(0, mkdir(JOB, 0755));
	ASSERT_EQ(0, mkdir(OTHER, 0755));
	fill_pool(NODE, FULL);
}

FIXTURE_TEARDOWN(dmem)
{
	/* Whatever was charged, it is not any more. */
	EXPECT_EQ(0, regions());
	EXPECT_GE(0, charged(CGROUP, 0));
	EXPECT_GE(0, charged(CGROUP, NODE));
	EXPECT_EQ(0, leave(JOB));
	EXPECT_EQ(0, leave(OTHER));
	EXPECT_EQ(0, remove_cgroup());
	wait_ready(NODE, FULL);
	EXPECT_EQ(0, set_pool(NODE, 0));
	close(self->device);
}

#endif
