// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Copying from and to a page in which the hardware has erred: EIO, and the
 * bytes before it are copied, and counted. tests/vm/blemish marks the page;
 * nothing that a test can do makes the memory itself fail.
 */
#include "copy_test.h"

#define BLEMISH	"/vm/modules/blemish.ko"
#define PFN	"/sys/module/blemish/parameters/pfn"
#define SMALL	4096

#define PAGES	3
#define LENGTH	(PAGES * PAGE_BYTES)
#define FAILED	(PAGE_BYTES + 5 * SMALL)

FIXTURE(poison)
{
	int device;
	int to;
	int from;
	char *target;
	char *source;
};

/* The small page at this address, which is mapped; 0 is none. */
static int blemish(const char *address)
{
	uint64_t entry = 0;
	char text[32];
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

	if (address && pread(fd, &entry, sizeof(entry), (uintptr_t)address / SMALL * 8) != 8)
		entry = 0;
	close(fd);
	snprintf(text, sizeof(text), "%llu", (unsigned long long)(entry & ((1ULL << 55) - 1)));
	return put(PFN, text);
}

/* One page of the region that is open as @fd. */
#define EXPECT_OUT_OF_USE(fd)						\
do {									\
	struct actmem_ioctl_info now;					\
									\
	EXPECT_EQ(0, info(fd, 0, &now));				\
	EXPECT_EQ(PAGE_BYTES, now.poisoned_bytes);			\
	EXPECT_EQ(ACTMEM_INFO_POISONED, now.state & ACTMEM_INFO_POISONED); \
} while (0)

FIXTURE_SETUP(poison)
{
	int fd = open(BLEMISH, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		SKIP(return, "no " BLEMISH " for this kernel");
	ASSERT_EQ(0, syscall(SYS_finit_module, fd, "", 0));
	close(fd);
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	self->to = create_pages(self->device, PAGES);
	self->from = create_pages(self->device, PAGES);
	ASSERT_LE(0, self->to);
	ASSERT_LE(0, self->from);
	self->target = map_and_touch(self->to, PAGES);
	self->source = map_and_touch(self->from, PAGES);
	ASSERT_NE(MAP_FAILED, self->target);
	ASSERT_NE(MAP_FAILED, self->source);
	memset(self->target, 0x11, LENGTH);
	memset(self->source, 0x22, LENGTH);
}

FIXTURE_TEARDOWN(poison)
{
	if (access(BLEMISH, R_OK))
		return;
	EXPECT_EQ(0, syscall(SYS_delete_module, "blemish", O_NONBLOCK));
	munmap(self->target, LENGTH);
	munmap(self->source, LENGTH);
	close(self->to);
	close(self->from);
	close(self->device);
}

TEST_F(poison, source)
{
	struct actmem_ioctl_copy arg = copy_of(0, self->from, 0, LENGTH);

	ASSERT_EQ(0, blemish(self->source + FAILED));
	EXPECT_EQ(-EIO, call(self->to, ACTMEM_IOC_COPY, &arg));
	EXPECT_EQ(FAILED, arg.done);
	EXPECT_EQ(ACTMEM_WHY_POISON, arg.why.reason);
	EXPECT_EQ(PAGE_BYTES, arg.why.wanted);
	EXPECT_TRUE(is_all(self->target, 0x22, FAILED));
	EXPECT_TRUE(is_all(self->target + FAILED, 0x11, SMALL));

	/* The whole of the huge page is out of use from then on, the rest can be had. */
	EXPECT_OUT_OF_USE(self->from);
	arg = copy_of(77, self->from, 0, LENGTH - 77);
	EXPECT_EQ(-EIO, call(self->to, ACTMEM_IOC_COPY, &arg));
	EXPECT_EQ(PAGE_BYTES, arg.done);
	EXPECT_EQ(-EIO, copy(self->to, 0, self->from, PAGE_BYTES, 1));
	EXPECT_EQ(0, copy(self->to, 0, self->from, 2 * PAGE_BYTES, PAGE_BYTES));
	ASSERT_EQ(0, blemish(NULL));
	EXPECT_EQ(-EIO, copy(self->to, 0, self->from, 2 * PAGE_BYTES - 1, 1));
}

/* At another alignment it is noticed up to a small page before it. */
TEST_F(poison, source_aligned_otherwise)
{
	struct actmem_ioctl_copy arg = copy_of(77, self->from, 0, LENGTH - 77);

	ASSERT_EQ(0, blemish(self->source + FAILED));
	EXPECT_EQ(-EIO, call(self->to, ACTMEM_IOC_COPY, &arg));
	EXPECT_GE(FAILED, arg.done);
	EXPECT_LT(FAILED - SMALL, arg.done);
	EXPECT_TRUE(is_all(self->target + 77, 0x22, arg.done));
	EXPECT_OUT_OF_USE(self->from);
}

TEST_F(poison, destination)
{
	struct actmem_ioctl_copy arg = copy_of(0, self->from, 0, LENGTH);

	ASSERT_EQ(0, blemish(self->target + FAILED));
	EXPECT_EQ(-EIO, call(self->to, ACTMEM_IOC_COPY, &arg));
	EXPECT_EQ(FAILED, arg.done);
	EXPECT_TRUE(is_all(self->target, 0x22, PAGE_BYTES));
	EXPECT_EQ(ACTMEM_WHY_POISON, arg.why.reason);
	EXPECT_OUT_OF_USE(self->to);
	EXPECT_EQ(0, copy(self->to, 0, self->from, 0, PAGE_BYTES));
	EXPECT_EQ(-EIO, copy(self->to, PAGE_BYTES, self->from, 0, 1));
	EXPECT_EQ(0, copy(self->to, 2 * PAGE_BYTES, self->from, 0, PAGE_BYTES));
}

/* Pages are copied node by node: what is copied beyond a gap does not count. */
TEST_F(poison, interleaved_destination)
{
	struct actmem_ioctl_create wanted = region_of(PAGES);
	struct actmem_ioctl_copy arg = copy_of(0, self->from, 0, LENGTH);
	char *target;

	if (!node_memory(1, "MemTotal"))
		SKIP(return, "this machine has one memory node only");
	wanted.policy = ACTMEM_POLICY_INTERLEAVE;
	wanted.nodes[0] = 3;
	ASSERT_LE(0, create(self->device, &wanted));
	target = map(wanted.fd, PAGES);
	ASSERT_NE(MAP_FAILED, target);
	ASSERT_EQ(0, blemish(self->source + 2 * PAGE_BYTES + 5 * SMALL));
	EXPECT_EQ(-EIO, call(wanted.fd, ACTMEM_IOC_COPY, &arg));
	EXPECT_EQ(PAGE_BYTES, arg.done);
	EXPECT_TRUE(is_all(target, 0x22, PAGE_BYTES));
	/* As the test takes it to be: the last page has been begun, that between has not. */
	EXPECT_EQ(0, target[PAGE_BYTES]);
	EXPECT_EQ(0x22, target[2 * PAGE_BYTES]);
	munmap(target, LENGTH);
	close(wanted.fd);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
