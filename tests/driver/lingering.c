// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Pages that somebody outside still holds when their region is gone: they
 * stay as they are and stay counted, and go when they are let go of. The
 * holder here is a pipe, by vmsplice(2): of all holders the hardest to see.
 */
#include "driver_test.h"

#define PAGES	4

/* Makes a region and pins its page @page; the region's file is gone then. */
static int make_lingering(int device, size_t pages, size_t page, uint64_t *id, int ends[2])
{
	struct actmem_ioctl_create arg = region_of(pages);
	int fd = create(device, &arg), err;
	char *memory;

	if (fd < 0)
		return fd;
	*id = arg.id;
	memory = map_and_touch(fd, pages);
	if (memory == MAP_FAILED)
		return -errno;
	memset(memory + page * PAGE_BYTES, 0x5a, PAGE_BYTES);
	err = hold(memory + page * PAGE_BYTES, ends);
	munmap(memory, pages * PAGE_BYTES);
	close(fd);
	return err;
}

TEST_F(driver, a_pin_of_a_live_region_is_seen)
{
	struct actmem_ioctl_info now;
	int fd = create_pages(self->device, PAGES), one[2], two[2], three[2];
	char *memory = mapped(map_and_touch(fd, PAGES));

	ASSERT_EQ(0, hold(memory, one));
	ASSERT_EQ(0, hold(memory + 8192, two));
	ASSERT_EQ(0, hold(memory + 2 * PAGE_BYTES + 4096, three));
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(2 * PAGE_BYTES, now.pinned_bytes);
	EXPECT_EQ(PAGES * PAGE_BYTES, now.mapped_bytes);
	ASSERT_EQ(0, munmap(memory, PAGES * PAGE_BYTES));
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(2 * PAGE_BYTES, now.pinned_bytes);
	EXPECT_EQ(0, now.mapped_bytes);
	let_go(one);
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(2 * PAGE_BYTES, now.pinned_bytes);
	let_go(two);
	let_go(three);
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(0, now.pinned_bytes);
	EXPECT_EQ(PAGES * PAGE_BYTES, now.allocated_bytes);
	close(fd);
	EXPECT_EQ(0, regions());
}

TEST_F(driver, a_pinned_page_stays_counted_and_unchanged)
{
	struct actmem_ioctl_create next = region_of(2 * PAGES);
	struct actmem_ioctl_info now;
	unsigned char bytes[4096];
	uint64_t id, ids[2];
	int ends[2], i;

	ASSERT_EQ(0, make_lingering(self->device, PAGES, 2, &id, ends));
	EXPECT_EQ(1, regions());
	EXPECT_EQ(1, lingering_regions());
	EXPECT_EQ((long)PAGE_BYTES, node_sum("region_bytes"));
	EXPECT_EQ((long)PAGE_BYTES, node_sum("lingering_bytes"));

	ASSERT_EQ(1, list(self->device, ids, 2));
	EXPECT_EQ(id, ids[0]);
	ASSERT_EQ(0, info(self->device, id, &now));
	EXPECT_EQ(ACTMEM_INFO_LINGERING, now.state);
	EXPECT_EQ(PAGES * PAGE_BYTES, now.length);
	EXPECT_EQ(PAGE_BYTES, now.allocated_bytes);
	EXPECT_EQ(PAGE_BYTES, now.pinned_bytes);
	EXPECT_EQ(0, now.mapped_bytes);

	/* Nobody is given the page meanwhile. */
	for (i = 0; i < 8; i++) {
		char *memory;

		ASSERT_LE(0, create(self->device, &next));
		memory = mapped(map(next.fd, 2 * PAGES));
		memset(memory, 0xff, 2 * PAGES * PAGE_BYTES);
		munmap(memory, 2 * PAGES * PAGE_BYTES);
		close(next.fd);
	}
	ASSERT_EQ(sizeof(bytes), read(ends[0], bytes, sizeof(bytes)));
	for (i = 0; i < 4096; i++)
		ASSERT_EQ(0x5a, bytes[i]);
	/* Having been read, the pipe's buffer is let go of. */
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, lingering_regions());
	EXPECT_EQ(-ENOENT, info(self->device, id, &now));
	EXPECT_EQ(0, node_sum("region_bytes"));
	EXPECT_EQ(0, node_sum("lingering_bytes"));
	let_go(ends);
}

TEST_F(driver, pages_go_one_by_one)
{
	int fd = create_pages(self->device, PAGES), ends[PAGES][2];
	char *memory = mapped(map_and_touch(fd, PAGES));
	long i;

	for (i = 0; i < PAGES; i++)
		ASSERT_EQ(0, hold(memory + i * PAGE_BYTES, ends[i]));
	munmap(memory, PAGES * PAGE_BYTES);
	close(fd);
	for (i = 0; i < PAGES; i++) {
		sweep_lingering();
		EXPECT_EQ((PAGES - i) * (long)PAGE_BYTES, node_sum("lingering_bytes"));
		EXPECT_EQ((PAGES - i) * (long)PAGE_BYTES, node_sum("region_bytes"));
		EXPECT_EQ(1, lingering_regions());
		let_go(ends[i]);
	}
	EXPECT_EQ(0, lingering_regions());
	EXPECT_EQ(0, regions());
}

/* Reading costs nothing where others have pages pinned, however many. */
TEST_F(driver, readers_are_told_what_the_last_sweep_saw)
{
	struct actmem_ioctl_info now;
	uint64_t id, ids[2];
	int ends[2];

	ASSERT_EQ(0, make_lingering(self->device, 1, 0, &id, ends));
	EXPECT_EQ(0, info(self->device, id, &now));
	EXPECT_EQ(ACTMEM_INFO_LINGERING, now.state);
	EXPECT_EQ(1, list(self->device, ids, 2));
	let_go(ends);
	EXPECT_EQ(0, lingering_regions());
	EXPECT_EQ(0, list(self->device, ids, 2));
	EXPECT_EQ(-ENOENT, info(self->device, id, &now));
	EXPECT_EQ(0, node_sum("lingering_bytes"));
}

TEST_F(driver, the_module_stays_until_the_last_page)
{
	uint64_t id;
	int ends[2];

	ASSERT_EQ(0, make_lingering(self->device, 2, 1, &id, ends));
	close(self->device);
	EXPECT_ERRNO(EAGAIN, syscall(SYS_delete_module, "actmem", O_NONBLOCK));
	/* Nobody asks: the driver finds out by itself, by another sweep than the first. */
	usleep(1500000);
	let_go(ends);
	while (number_in("/sys/module/actmem/refcnt"))
		usleep(50000);
	EXPECT_EQ(0, regions());
	self->device = open_device();
}

static int hold_lingering(void *device)
{
	uint64_t id;
	int ends[2];

	return make_lingering(*(int *)device, PAGES, 0, &id, ends);
}

TEST_F(driver, kill_of_who_pinned)
{
	pid_t child = hold_in_child(hold_lingering, &self->device);

	ASSERT_LT(0, child);
	EXPECT_EQ(1, lingering_regions());
	ASSERT_EQ(0, kill_child(child));
	EXPECT_EQ(0, lingering_regions());
	EXPECT_EQ(0, regions());
}

static int charged_while_pinned(int device)
{
	struct actmem_ioctl_create arg;
	uint64_t id;
	int ends[2];

	CHECK(!make_lingering(device, 4, 3, &id, ends));
	/* Three pages have come back, the fourth has not. */
	arg = region_of(4);
	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK);
	CHECK(arg.why.available == 3 * PAGE_BYTES);
	arg = region_of(3);
	CHECK(create(device, &arg) >= 0);
	close(arg.fd);
	let_go(ends);
	arg = region_of(4);
	CHECK(create(device, &arg) >= 0);
	return 0;
}

TEST_F(driver, the_charge_stays_with_the_pages)
{
	ASSERT_EQ(0, set_memlock(4 * PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, charged_while_pinned, self->device));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
