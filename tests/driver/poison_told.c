// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What an administrator is told of memory that fails: a line of the kernel's log,
 * an event, and the counters of its region and its node.
 */
#include "poison_test.h"
#include "trace_test.h"

#define PAGES	3
#define NAME	"of the night"

FIXTURE(poison_told)
{
	int device;
	int log;
	struct actmem_ioctl_create region;
	char *memory;
	long poisoned[2];
};

static long poisoned_on(int node)
{
	return number_in(SYSFS "/node%d/poisoned_bytes", node);
}

FIXTURE_SETUP(poison_told)
{
	int node;

	self->memory = MAP_FAILED;
	self->device = open_device();
	if (!node_memory(1, "MemTotal"))
		SKIP(return, "this machine has one memory node only");
	self->log = must(open_log());
	ASSERT_EQ(0, mkdir(INSTANCE, 0700));
	ASSERT_EQ(0, set_event("alloc_fail", "1"));
	for (node = 0; node < 2; node++)
		self->poisoned[node] = poisoned_on(node);
	self->region = region_on(PAGES, ACTMEM_POLICY_BIND, 2);
	strcpy(self->region.name, NAME);
	ASSERT_LE(0, create(self->device, &self->region));
	self->memory = mapped(map_and_touch(self->region.fd, PAGES));
}

FIXTURE_TEARDOWN(poison_told)
{
	if (self->memory != MAP_FAILED) {
		munmap(self->memory, PAGES * PAGE_BYTES);
		close(self->region.fd);
	}
	rmdir(INSTANCE);
	close(self->device);
}

TEST_F(poison_told, everywhere)
{
	uint64_t frame = frame_of(self->memory + 2 * PAGE_BYTES);
	struct actmem_ioctl_range arg;

	ASSERT_EQ(0, fail_page(self->memory + 2 * PAGE_BYTES + 7 * SMALL));
	EXPECT_EQ(1, poisoned_pages(self->region.fd));
	EXPECT_EQ(self->poisoned[0], poisoned_on(0));
	EXPECT_EQ(self->poisoned[1] + (long)PAGE_BYTES, poisoned_on(1));
	EXPECT_STREQ(text("actmem: hardware error in the page at offset %zu of region %llu '" NAME "', made by process %d: %zu bytes of node 1 at pfn %#llx are out of use",
			  2 * PAGE_BYTES, self->region.id, getpid(), PAGE_BYTES,
			  (unsigned long long)frame),
		     read_log(self->log, "actmem: hardware error") ?: "nothing");
	EXPECT_EQ(-EIO, change_range(self->region.fd, ACTMEM_IOC_POPULATE, 0, PAGES, &arg));

	read_events();
	EXPECT_EVENT("alloc_fail", "id=%llu ret=%d reason=poison node=1 wanted=%zu available=0 movable=0",
		     self->region.id, -EIO, 2 * PAGE_BYTES);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
