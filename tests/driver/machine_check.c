// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Memory that fails while a region has it: its huge page is out of use for all
 * who have the region, the rest is not, and it can be replaced. The failure is
 * reported as what a processor reports (mce-inject).
 */
#include "dmabuf_test.h"
#include "poison_test.h"

#define PAGES	4
#define LENGTH	(PAGES * PAGE_BYTES)
/* A small page in the midst of the one that fails. */
#define FAILED	(PAGE_BYTES + 5 * SMALL)

FIXTURE(machine_check)
{
	int device;
	int fd;
	char *memory;
	long poisoned;
};

/* Both ends of each small page. */
static void fill(char *memory)
{
	size_t i;

	for (i = 0; i < LENGTH; i += SMALL)
		memory[i] = memory[i + SMALL - 1] = 0x10 + i / PAGE_BYTES;
}

static bool page_is(const char *memory, char value)
{
	size_t i;

	for (i = 0; i < PAGE_BYTES; i += SMALL)
		if (memory[i] != value || memory[i + SMALL - 1] != value)
			return false;
	return true;
}

/* All but the second one are as they were filled. */
static bool others_are_intact(const char *memory)
{
	size_t i;

	for (i = 0; i < PAGES; i++)
		if (i != 1 && !page_is(memory + i * PAGE_BYTES, 0x10 + i))
			return false;
	return true;
}

FIXTURE_SETUP(machine_check)
{
	self->device = open_device();
	self->poisoned = all_poisoned_pages();
	self->fd = must(create_pages(self->device, PAGES));
	self->memory = mapped(map(self->fd, PAGES));
	fill(self->memory);
}

FIXTURE_TEARDOWN(machine_check)
{
	munmap(self->memory, LENGTH);
	close(self->fd);
	close(self->device);
}

/* What there is to see once the second page has failed. */
#define EXPECT_SECOND_FAILED(memory)						\
do {										\
	EXPECT_EQ(BUS_MCEERR_AR, touch((memory) + FAILED, false));		\
	EXPECT_EQ((memory) + FAILED, signal_told.si_addr);			\
	EXPECT_EQ(12, signal_told.si_addr_lsb);					\
	EXPECT_EQ(BUS_MCEERR_AR, touch((memory) + PAGE_BYTES, false));		\
	EXPECT_EQ(BUS_MCEERR_AR, touch((memory) + 2 * PAGE_BYTES - 1, true));	\
	EXPECT_TRUE(others_are_intact(memory));					\
} while (0)

TEST_F(machine_check, reported)
{
	struct actmem_ioctl_info now;

	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(0, now.state & ACTMEM_INFO_POISONED);
	EXPECT_EQ(0, now.poisoned_bytes);
	ASSERT_EQ(0, fail_page(self->memory + FAILED));
	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(ACTMEM_INFO_POISONED, now.state & ACTMEM_INFO_POISONED);
	EXPECT_EQ(PAGE_BYTES, now.poisoned_bytes);
	EXPECT_EQ(LENGTH, now.allocated_bytes);
	EXPECT_EQ(LENGTH - PAGE_BYTES, now.mapped_bytes);
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
	EXPECT_SECOND_FAILED(self->memory);
	EXPECT_EQ(LENGTH - PAGE_BYTES, pmd_mapped(self->memory, LENGTH));
}

/* What has been corrected is no reason to give a page up. */
TEST_F(machine_check, corrected)
{
	ASSERT_EQ(0, report_mce(frame_of(self->memory + 3 * PAGE_BYTES), 0));
	ASSERT_EQ(0, fail_page(self->memory + FAILED));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
	EXPECT_SECOND_FAILED(self->memory);
}

/* Of one page, it is one page. */
TEST_F(machine_check, reported_again)
{
	uint64_t frame = frame_of(self->memory + FAILED);

	ASSERT_EQ(0, fail_frame(frame));
	ASSERT_EQ(0, report_mce(frame, MCE_UNCORRECTED));
	ASSERT_EQ(0, report_mce(frame + 1, MCE_UNCORRECTED));
	/* Reports are dealt with in their order. */
	ASSERT_EQ(0, fail_page(self->memory + 3 * PAGE_BYTES));
	EXPECT_EQ(2, poisoned_pages(self->fd));
	EXPECT_EQ(self->poisoned + 2, all_poisoned_pages());
}

/* Touches all pages, and again once the page has failed. */
static int touch_twice(char *memory, int tell, int told)
{
	char byte;

	CHECK(page_is(memory + PAGE_BYTES, 0x11));
	CHECK(write(tell, "", 1) == 1);
	CHECK(read(told, &byte, 1) == 1);
	CHECK(touch(memory + PAGE_BYTES, true) == BUS_MCEERR_AR);
	CHECK(touch(memory + FAILED, false) == BUS_MCEERR_AR);
	CHECK(others_are_intact(memory));
	return 0;
}

/*
 * The page of the region fails that a child has touched, in its mapping or, if that
 * is NULL, in one of its own. 0 if the child finds it so.
 */
static int fail_in_child(int fd, char *memory, char *mine)
{
	int there[2], back[2], line;
	pid_t child;
	char byte;

	CHECK(!pipe2(there, O_CLOEXEC) && !pipe2(back, O_CLOEXEC));
	child = fork();
	if (!child)
		_exit(touch_twice(memory ?: map(fd, PAGES), back[1], there[0]));
	CHECK(child > 0);
	CHECK(read(back[0], &byte, 1) == 1);
	CHECK(!fail_page(mine + FAILED));
	CHECK(poisoned_pages(fd) == 1);
	CHECK(write(there[1], "", 1) == 1);
	line = wait_for(child);
	let_go(there);
	let_go(back);
	return line;
}

TEST_F(machine_check, every_process_loses_it)
{
	EXPECT_EQ(0, fail_in_child(self->fd, NULL, self->memory));
	EXPECT_SECOND_FAILED(self->memory);
}

TEST_F(machine_check, a_forked_child_loses_it)
{
	struct actmem_ioctl_create wanted = region_of(PAGES);
	char *memory;

	wanted.flags = ACTMEM_CREATE_INHERIT;
	ASSERT_LE(0, create(self->device, &wanted));
	memory = mapped(map(wanted.fd, PAGES));
	fill(memory);
	EXPECT_EQ(0, fail_in_child(wanted.fd, memory, memory));
	munmap(memory, LENGTH);
	close(wanted.fd);
}

/* Maps the page again and again, until it cannot. */
static int touch_until_it_fails(int fd)
{
	char *memory = map(fd, PAGES);
	int code;

	do {
		madvise(memory, LENGTH, MADV_DONTNEED);
		code = touch(memory + PAGE_BYTES, false);
	} while (!code);
	CHECK(code == BUS_MCEERR_AR);
	CHECK(others_are_intact(memory));
	return 0;
}

TEST_F(machine_check, while_it_is_being_mapped)
{
	pid_t children[2];
	size_t i;

	for (i = 0; i < 2; i++) {
		children[i] = start_child(0, touch_until_it_fails, self->fd);
		ASSERT_LT(0, children[i]);
	}
	usleep(20000);
	ASSERT_EQ(0, fail_page(self->memory + FAILED));
	for (i = 0; i < 2; i++)
		EXPECT_EQ(0, wait_for(children[i]));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	EXPECT_SECOND_FAILED(self->memory);
}

/* Replaces the page again and again, until it is told to end. */
static int replace_until_told(int fd, int told)
{
	char byte;

	CHECK(!fcntl(told, F_SETFL, O_NONBLOCK));
	do {
		int err = discard(fd, 1, 1);

		CHECK(!err || err == -EBUSY);
		err = populate(fd, 1, 1);
		CHECK(!err || err == -EIO);
	} while (read(told, &byte, 1) != 1);
	return 0;
}

TEST_F(machine_check, while_it_is_being_replaced)
{
	int ends[2], round;
	pid_t child;

	ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
	child = fork();
	if (!child)
		_exit(replace_until_told(self->fd, ends[0]));
	ASSERT_LT(0, child);
	for (round = 0; round < 10 || all_poisoned_pages() == self->poisoned; round++) {
		uint64_t frame;

		touch(self->memory + FAILED, true);
		frame = frame_of(self->memory + FAILED);
		/* By the time that it is reported, the page may have another owner, or none. */
		if (frame)
			ASSERT_EQ(0, report_mce(frame, MCE_UNCORRECTED));
		usleep(10000);
	}
	ASSERT_EQ(1, write(ends[1], "", 1));
	EXPECT_EQ(0, wait_for(child));
	/* Reports are dealt with in their order. */
	ASSERT_EQ(0, fail_page(self->memory + 3 * PAGE_BYTES));
	EXPECT_EQ(0, discard_patiently(self->fd, 1, 1));
	EXPECT_EQ(0, populate(self->fd, 0, 3));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	EXPECT_TRUE(page_is(self->memory + PAGE_BYTES, 0));
	EXPECT_TRUE(page_is(self->memory, 0x10));
	EXPECT_TRUE(page_is(self->memory + 2 * PAGE_BYTES, 0x12));
	let_go(ends);
}

/* The bytes before it are read. */
TEST_F(machine_check, read_fails)
{
	char *buffer = malloc(LENGTH);

	ASSERT_NE(NULL, buffer);
	memset(buffer, 0x22, LENGTH);
	ASSERT_EQ(0, fail_page(self->memory + FAILED));
	EXPECT_EQ((ssize_t)PAGE_BYTES, pread(self->fd, buffer, LENGTH, 0));
	EXPECT_EQ(0, memcmp(buffer, self->memory, PAGE_BYTES));
	EXPECT_EQ(0x22, buffer[PAGE_BYTES]);
	EXPECT_ERRNO(EIO, pread(self->fd, buffer, 1, FAILED + SMALL - 1));
	EXPECT_EQ(SMALL, pread(self->fd, buffer, SMALL, 2 * PAGE_BYTES));
	free(buffer);
}

TEST_F(machine_check, system_calls_fail)
{
	int ends[2];

	ASSERT_EQ(0, fail_page(self->memory + FAILED));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
	EXPECT_ERRNO(EFAULT, write(ends[1], self->memory + PAGE_BYTES, SMALL));
	EXPECT_EQ(SMALL, write(ends[1], self->memory, SMALL));
	let_go(ends);
}

TEST_F(machine_check, it_is_replaced)
{
	uint64_t frame = frame_of(self->memory + PAGE_BYTES);
	struct actmem_ioctl_range arg;

	ASSERT_EQ(0, fail_page(self->memory + FAILED));
	EXPECT_EQ(-EIO, change_range(self->fd, ACTMEM_IOC_POPULATE, 0, PAGES, &arg));
	EXPECT_EQ(PAGE_BYTES, arg.done);
	EXPECT_EQ(ACTMEM_WHY_POISON, arg.why.reason);
	EXPECT_EQ(PAGE_BYTES, arg.why.wanted);
	EXPECT_EQ(-EIO, export(self->fd, 0, PAGES));
	EXPECT_EQ(0, populate(self->fd, 2, 2));

	EXPECT_EQ(0, discard_patiently(self->fd, 1, 1));
	EXPECT_EQ(0, poisoned_pages(self->fd));
	EXPECT_EQ(PAGES - 1, pages_held(self->fd));
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
	EXPECT_EQ(0, populate(self->fd, 0, PAGES));
	EXPECT_EQ(0, touch(self->memory + FAILED, false));
	EXPECT_TRUE(page_is(self->memory + PAGE_BYTES, 0));
	EXPECT_NE(frame, frame_of(self->memory + PAGE_BYTES));
	EXPECT_TRUE(others_are_intact(self->memory));

	/* And by a touch. */
	ASSERT_EQ(0, fail_page(self->memory + 2 * PAGE_BYTES));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	EXPECT_EQ(0, discard_patiently(self->fd, 2, 1));
	EXPECT_TRUE(page_is(self->memory + 2 * PAGE_BYTES, 0));
	EXPECT_EQ(0, poisoned_pages(self->fd));
	EXPECT_EQ(self->poisoned + 2, all_poisoned_pages());
}

TEST_F(machine_check, it_counts_until_it_is_replaced)
{
	long before = node_sum("limit_bytes");
	int node = node_of(self->memory + PAGE_BYTES);
	char path[128];

	snprintf(path, sizeof(path), SYSFS "/node%d/limit_bytes", node);
	ASSERT_EQ(-1, before);	/* "max" is no number */
	ASSERT_EQ(0, fail_page(self->memory + FAILED));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	EXPECT_EQ(LENGTH, node_sum("region_bytes"));
	ASSERT_EQ(0, set_limit(path, number_in(SYSFS "/node%d/region_bytes", node) /
				     (long)PAGE_BYTES));
	EXPECT_EQ(0, discard_patiently(self->fd, 1, 1));
	EXPECT_EQ(LENGTH - PAGE_BYTES, node_sum("region_bytes"));
	EXPECT_EQ(0, populate(self->fd, 1, 1));
	ASSERT_EQ(0, set_limit(path, -1));
}

TEST_F(machine_check, a_pin_keeps_it_in_its_place)
{
	struct actmem_ioctl_range arg;
	char bytes[SMALL];
	int ends[2];

	ASSERT_EQ(0, hold(self->memory + PAGE_BYTES, ends));
	ASSERT_EQ(0, fail_page(self->memory + FAILED));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	EXPECT_SECOND_FAILED(self->memory);
	EXPECT_EQ(-EBUSY, change_range(self->fd, ACTMEM_IOC_DISCARD, 1, 1, &arg));
	EXPECT_EQ(0, arg.done);
	EXPECT_EQ(1, poisoned_pages(self->fd));
	/* A process that has it already has it still. */
	EXPECT_EQ(SMALL, read(ends[0], bytes, SMALL));
	EXPECT_EQ(0x11, bytes[0]);
	let_go(ends);
	EXPECT_EQ(0, discard_patiently(self->fd, 1, 1));
	EXPECT_EQ(0, poisoned_pages(self->fd));
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
}

/* When a pinned page fails: while its region is open, while it ends, or while it lingers. */
enum moment { OPEN, ENDING, LINGERING };

static int fail_pinned(int device, enum moment moment)
{
	int fd = create_pages(device, PAGES), ends[2], tries;
	char *memory = mapped(map_and_touch(fd, PAGES));
	long poisoned = all_poisoned_pages();
	uint64_t frame;

	frame = frame_of(memory + FAILED);
	CHECK(!hold(memory + PAGE_BYTES, ends));
	CHECK(moment != OPEN || (!fail_frame(frame) && poisoned_pages(fd) == 1));
	munmap(memory, LENGTH);
	/* The pin makes the driver try for some milliseconds to unmap the page. */
	CHECK(moment != ENDING || !report_mce(frame, MCE_UNCORRECTED));
	while (moment == ENDING && poisoned_pages(fd) != 1)
		;
	close(fd);
	while (lingering_regions() != 1)
		usleep(10000);
	CHECK(moment != LINGERING || !fail_frame(frame));
	/* The driver counts the page for its node after it has tried to unmap the page. */
	for (tries = 0; tries < 1000 && all_poisoned_pages() == poisoned; tries++)
		usleep(10000);
	CHECK(all_poisoned_pages() == poisoned + 1);
	let_go(ends);
	while (lingering_regions())
		usleep(10000);
	CHECK(all_poisoned_pages() == poisoned + 1);
	return 0;
}

TEST_F(machine_check, a_pin_outlives_the_region)
{
	int round;

	/* A failure leaves a region, for whose end the next call would wait: stop. */
	ASSERT_EQ(0, fail_pinned(self->device, OPEN));
	for (round = 0; round < 3; round++)
		ASSERT_EQ(0, fail_pinned(self->device, ENDING));
	ASSERT_EQ(0, fail_pinned(self->device, LINGERING));
	EXPECT_EQ(1, regions());
}

/* Memory that is nobody's, or somebody else's, is none of the driver's concern. */
TEST_F(machine_check, elsewhere)
{
	char *memory = mmap(NULL, SMALL, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(0, report_mce(frame_of(memory), MCE_UNCORRECTED));
	/* Reports are dealt with in their order. */
	ASSERT_EQ(0, fail_page(self->memory + 3 * PAGE_BYTES));
	EXPECT_EQ(0, touch(memory, true));
	EXPECT_EQ(1, poisoned_pages(self->fd));
	EXPECT_EQ(self->poisoned + 1, all_poisoned_pages());
	EXPECT_EQ(0, touch(self->memory + FAILED, true));
	munmap(memory, SMALL);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
