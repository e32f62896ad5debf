// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * POPULATE and DISCARD: what is there, what is missing, and how much of what
 * was asked for is done when something stands in the way. A page that somebody
 * else holds stays, contents and all.
 */
#include <linux/io_uring.h>
#include <signal.h>

#define PAGES		6
#define MAKE_REGION	create_lazy

#include "region_fixture.h"

/* Page i gets i + 1 in its first and its last byte. */
static void fill(char *memory)
{
	size_t i;

	for (i = 0; i < PAGES; i++)
		memory[i * PAGE_BYTES] = memory[(i + 1) * PAGE_BYTES - 1] = i + 1;
}

/* For each page '.' if it is zero, '#' if it is as fill() left it, else '?'. */
static const char *state(const char *memory)
{
	static char text[PAGES + 1];
	size_t i;

	for (i = 0; i < PAGES; i++) {
		const char *page = memory + i * PAGE_BYTES;

		text[i] = !page[0] && !memcmp(page, page + 1, PAGE_BYTES - 1) ? '.' :
			  page[0] == (char)(i + 1) && page[PAGE_BYTES - 1] == page[0] ? '#' : '?';
	}
	return text;
}

#define EXPECT_STATE(wanted)	EXPECT_STREQ(wanted, state(self->memory))

TEST_F(region, populates_what_is_missing)
{
	struct actmem_ioctl_range arg;

	self->memory[2 * PAGE_BYTES] = 42;
	EXPECT_EQ(0, change_range(self->fd, ACTMEM_IOC_POPULATE, 1, 3, &arg));
	EXPECT_EQ(sizeof(arg), arg.size);
	EXPECT_EQ(3 * PAGE_BYTES, arg.done);
	EXPECT_EQ(ACTMEM_WHY_NONE, arg.why.reason);
	EXPECT_EQ(-1, arg.why.node);
	EXPECT_EQ(3, pages_held(self->fd));
	EXPECT_EQ(42, self->memory[2 * PAGE_BYTES]);
	/* Again, wholly and partly there. */
	EXPECT_EQ(0, change_range(self->fd, ACTMEM_IOC_POPULATE, 1, 3, &arg));
	EXPECT_EQ(3 * PAGE_BYTES, arg.done);
	EXPECT_EQ(3, pages_held(self->fd));
	EXPECT_EQ(0, change_range(self->fd, ACTMEM_IOC_POPULATE, 0, PAGES, &arg));
	EXPECT_EQ(LENGTH, arg.done);
	EXPECT_EQ(PAGES, pages_held(self->fd));
	EXPECT_EQ(42, self->memory[2 * PAGE_BYTES]);
	EXPECT_EQ(1, demand_faults(self->fd));
}

TEST_F(region, gives_back_and_the_next_touch_finds_zeros)
{
	struct actmem_ioctl_range arg;
	struct actmem_ioctl_info now;

	fill(self->memory);
	EXPECT_EQ(0, change_range(self->fd, ACTMEM_IOC_DISCARD, 1, 2, &arg));
	EXPECT_EQ(2 * PAGE_BYTES, arg.done);
	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ((PAGES - 2) * PAGE_BYTES, now.allocated_bytes);
	EXPECT_EQ((PAGES - 2) * PAGE_BYTES, now.mapped_bytes);
	EXPECT_EQ((PAGES - 2) * (long)PAGE_BYTES, node_sum("region_bytes"));
	EXPECT_STATE("#..###");
	EXPECT_EQ(PAGES + 2, demand_faults(self->fd));
	EXPECT_EQ(LENGTH, pmd_mapped(self->memory, LENGTH));

	EXPECT_EQ(0, discard(self->fd, 0, PAGES));
	EXPECT_EQ(0, pages_held(self->fd));
	/* Nothing is there, which is as wanted. */
	EXPECT_EQ(0, change_range(self->fd, ACTMEM_IOC_DISCARD, 0, PAGES, &arg));
	EXPECT_EQ(LENGTH, arg.done);
	EXPECT_EQ(0, populate(self->fd, 0, PAGES));
	EXPECT_STATE("......");
}

/* Page 3 is held while all are discarded; then it is not held any more. */
static void check_busy(struct __test_metadata *_metadata, int fd, char *memory)
{
	struct actmem_ioctl_range arg;
	struct actmem_ioctl_info now;

	EXPECT_EQ(-EBUSY, change_range(fd, ACTMEM_IOC_DISCARD, 0, PAGES, &arg));
	EXPECT_EQ((PAGES - 1) * PAGE_BYTES, arg.done);
	EXPECT_EQ(ACTMEM_WHY_NONE, arg.why.reason);
	EXPECT_EQ(1, pages_held(fd));
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(PAGE_BYTES, now.pinned_bytes);
	EXPECT_EQ(0, now.mapped_bytes);
	EXPECT_EQ(-EBUSY, change_range(fd, ACTMEM_IOC_DISCARD, 3, 1, &arg));
	EXPECT_EQ(0, arg.done);
	EXPECT_STREQ("...#..", state(memory));
	EXPECT_EQ(PAGES * PAGE_BYTES, pmd_mapped(memory, PAGES * PAGE_BYTES));
}

TEST_F(region, leaves_what_a_pipe_holds)
{
	char bytes[4096];
	int ends[2];

	fill(self->memory);
	ASSERT_EQ(0, hold(self->memory + 4 * PAGE_BYTES - 4096, ends));
	check_busy(_metadata, self->fd, self->memory);
	/* It is the same page still. */
	self->memory[4 * PAGE_BYTES - 2] = 99;
	ASSERT_EQ(4096, read(ends[0], bytes, 4096));
	EXPECT_EQ(4, bytes[4095]);
	EXPECT_EQ(99, bytes[4094]);
	let_go(ends);
	EXPECT_EQ(0, discard_patiently(self->fd, 0, PAGES));
	EXPECT_EQ(0, pages_held(self->fd));
	EXPECT_STATE("......");
}

TEST_F(region, leaves_what_a_ring_has_registered)
{
	struct io_uring_params parameters = {};
	struct iovec buffer = { self->memory + 3 * PAGE_BYTES, PAGE_BYTES };
	int ring = syscall(SYS_io_uring_setup, 1, &parameters);

	ASSERT_LE(0, ring);
	fill(self->memory);
	if (syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &buffer, 1)) {
		/* Linux 6.1 registers no memory of files. */
		ASSERT_EQ(EOPNOTSUPP, errno);
		close(ring);
		return;
	}
	check_busy(_metadata, self->fd, self->memory);
	ASSERT_EQ(0, syscall(SYS_io_uring_register, ring, IORING_UNREGISTER_BUFFERS, NULL, 0));
	EXPECT_EQ(0, discard_patiently(self->fd, 0, PAGES));
	close(ring);
}

TEST_F(region, reaches_every_mapping)
{
	char *other = mapped(map(self->fd, PAGES));
	char *readable = mapped(mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, self->fd, 0));
	char *part = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, self->fd, 3 * PAGE_BYTES);
	char *moved, *room;

	ASSERT_NE(MAP_FAILED, part);
	fill(self->memory);
	EXPECT_STREQ("######", state(other));
	EXPECT_STREQ("######", state(readable));
	EXPECT_EQ(4, part[0]);
	ASSERT_EQ(0, mprotect(other + 3 * PAGE_BYTES, PAGE_BYTES, PROT_READ));
	room = mapped(mmap(NULL, 2 * LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	room = (char *)(((uintptr_t)room + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1));
	moved = mremap(readable, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, room);
	ASSERT_EQ(room, moved);

	EXPECT_EQ(0, discard(self->fd, 2, 3));
	EXPECT_STREQ("##...#", state(moved));
	EXPECT_STREQ("##...#", state(other));
	EXPECT_STATE("##...#");
	EXPECT_EQ(0, part[0]);
	/* One page of each, which all of them see. */
	self->memory[3 * PAGE_BYTES] = 5;
	EXPECT_EQ(5, moved[3 * PAGE_BYTES]);
	EXPECT_EQ(5, other[3 * PAGE_BYTES]);
	EXPECT_EQ(5, part[0]);
	munmap(other, LENGTH);
	munmap(moved, LENGTH);
	munmap(part, PAGE_BYTES);
}

TEST_F(region, reaches_mappings_by_small_pages)
{
	/* Linux 6.1 maps huge ones all the same. */
	ASSERT_EQ(0, madvise(self->memory, LENGTH, MADV_NOHUGEPAGE));
	fill(self->memory);
	EXPECT_EQ(0, discard(self->fd, 1, 1));
	EXPECT_EQ(PAGES - 1, pages_held(self->fd));
	EXPECT_STATE("#.####");
}

/* A process that touches all pages and, told so by a byte, looks at them again. */
static pid_t start_user(int fd, int go, int done)
{
	pid_t child = fork();
	char *memory, byte;

	if (child)
		return child;
	memory = map(fd, PAGES);
	if (memory == MAP_FAILED || strcmp(state(memory), "######") ||
	    write(done, "", 1) != 1 || read(go, &byte, 1) != 1)
		_exit(1);
	_exit(strcmp(state(memory), "#....#") ? 2 : 0);
}

TEST_F(region, reaches_every_process)
{
	enum { CHILDREN = 3 };
	pid_t children[CHILDREN];
	int go[2], done[2], i;
	char byte;

	ASSERT_EQ(0, pipe(go));
	ASSERT_EQ(0, pipe(done));
	fill(self->memory);
	for (i = 0; i < CHILDREN; i++) {
		children[i] = start_user(self->fd, go[0], done[1]);
		ASSERT_LT(0, children[i]);
	}
	for (i = 0; i < CHILDREN; i++)
		ASSERT_EQ(1, read(done[0], &byte, 1));
	EXPECT_EQ(0, discard(self->fd, 1, 4));
	EXPECT_EQ(2, pages_held(self->fd));
	ASSERT_EQ(CHILDREN, write(go[1], "xyz", CHILDREN));
	for (i = 0; i < CHILDREN; i++)
		EXPECT_EQ(0, wait_for(children[i]));
	EXPECT_STATE("#....#");
	EXPECT_EQ(PAGES, pages_held(self->fd));
}

/* A holder of the descriptor may, whoever made the region. */
static int of_another_user(int fd)
{
	CHECK(!populate(fd, 0, PAGES));
	CHECK(!discard(fd, 0, PAGES));
	return 0;
}

TEST_F(region, the_descriptor_is_the_permission)
{
	EXPECT_EQ(0, as_user(USER, of_another_user, self->fd));
}

#define MANY	96

/* Has all pages made and gives them back, again and again. */
static void populate_for_ever(int device, bool by_touch)
{
	int fd = create_lazy(device, MANY), i;
	char *memory = map(fd, MANY);

	for (;;) {
		for (i = 0; by_touch && i < MANY; i++)
			memory[i * PAGE_BYTES] = 1;
		if (populate(fd, 0, MANY) || discard(fd, 0, MANY))
			_exit(1);
	}
}

TEST_F(region, a_kill_in_the_midst_of_populating)
{
	int round;

	for (round = 0; round < 6; round++) {
		pid_t child = fork();

		if (!child)
			populate_for_ever(self->device, round % 2);
		ASSERT_LT(0, child);
		while (node_sum("region_bytes") <= round * 2 * (long)PAGE_BYTES)
			;
		ASSERT_EQ(0, kill(child, SIGKILL));
		EXPECT_EQ(-1, wait_for(child));
		EXPECT_EQ(1, regions());
		EXPECT_EQ(0, node_sum("region_bytes"));
	}
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
