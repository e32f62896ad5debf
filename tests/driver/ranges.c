// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * POPULATE and DISCARD: every field, good and bad, from an unprivileged user as from
 * root.
 */
#include <sys/mman.h>

#include "driver_test.h"

#define PAGES	4
#define ABSURD	(~0ULL / PAGE_BYTES * PAGE_BYTES)
#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

static int call_populate(int fd, struct actmem_ioctl_range *arg)
{
	return call(fd, ACTMEM_IOC_POPULATE, arg);
}

static int call_discard(int fd, struct actmem_ioctl_range *arg)
{
	return call(fd, ACTMEM_IOC_DISCARD, arg);
}

/* Runs the function of that name as root and as a user without capabilities. */
#define TEST_FOR_ALL(function)						\
TEST_F(driver, function)						\
{									\
	EXPECT_EQ(0, as_user(0, function, self->device));		\
	EXPECT_EQ(0, as_user(USER, function, self->device));		\
}

static bool has_no_reason(const struct actmem_why *why)
{
	return why->reason == ACTMEM_WHY_NONE && why->node == -1 && !why->wanted &&
	       !why->available && !why->movable;
}

static int there_and_back(int device)
{
	int fd = must(create_lazy(device, PAGES));
	struct actmem_ioctl_range arg;

	CHECK(pages_held(fd) == 0);
	arg = range_of(1, 2);
	memset(&arg.why, 0xff, sizeof(arg.why));
	arg.done = 42;
	CHECK(call_populate(fd, &arg) == 0);
	CHECK(arg.size == sizeof(arg) && arg.flags == 0);
	CHECK(arg.offset == PAGE_BYTES && arg.length == 2 * PAGE_BYTES);
	CHECK(arg.done == 2 * PAGE_BYTES && has_no_reason(&arg.why));
	CHECK(pages_held(fd) == 2);
	/* Pages that exist count as done. */
	arg = range_of(0, PAGES);
	CHECK(call_populate(fd, &arg) == 0 && arg.done == PAGES * PAGE_BYTES);
	CHECK(pages_held(fd) == PAGES);
	arg = range_of(3, 1);
	memset(&arg.why, 0xff, sizeof(arg.why));
	CHECK(call_discard(fd, &arg) == 0);
	CHECK(arg.done == PAGE_BYTES && has_no_reason(&arg.why));
	CHECK(pages_held(fd) == 3);
	arg = range_of(0, PAGES);
	CHECK(call_discard(fd, &arg) == 0 && arg.done == PAGES * PAGE_BYTES);
	CHECK(pages_held(fd) == 0);
	return 0;
}

TEST_FOR_ALL(there_and_back)

static const struct {
	uint64_t offset;
	uint64_t length;
	int result;
} ranges[] = {
	{ 0, PAGE_BYTES, 0 },
	{ 0, PAGES * PAGE_BYTES, 0 },
	{ (PAGES - 1) * PAGE_BYTES, PAGE_BYTES, 0 },
	{ PAGE_BYTES, (PAGES - 1) * PAGE_BYTES, 0 },

	{ 0, 0, -EINVAL },
	{ PAGE_BYTES, 0, -EINVAL },
	{ 0, 1, -EINVAL },
	{ 0, 4096, -EINVAL },
	{ 0, PAGE_BYTES - 1, -EINVAL },
	{ 0, PAGE_BYTES + 1, -EINVAL },
	{ 1, PAGE_BYTES, -EINVAL },
	{ 4096, PAGE_BYTES, -EINVAL },
	{ PAGE_BYTES - 1, PAGE_BYTES, -EINVAL },
	{ PAGE_BYTES / 2, PAGE_BYTES / 2, -EINVAL },

	{ 0, (PAGES + 1) * PAGE_BYTES, -EINVAL },
	{ PAGE_BYTES, PAGES * PAGE_BYTES, -EINVAL },
	{ PAGES * PAGE_BYTES, PAGE_BYTES, -EINVAL },
	{ (PAGES + 1) * PAGE_BYTES, PAGE_BYTES, -EINVAL },
	{ PAGES * PAGE_BYTES, 0, -EINVAL },

	{ 0, ABSURD, -EINVAL },
	{ ABSURD, PAGE_BYTES, -EINVAL },
	{ ABSURD, ABSURD, -EINVAL },
	{ ABSURD, 2 * PAGE_BYTES, -EINVAL },
	{ PAGE_BYTES, ABSURD, -EINVAL },
	{ 2 * PAGE_BYTES, ABSURD, -EINVAL },
	{ 1ULL << 63, 1ULL << 63, -EINVAL },
	{ ~0ULL, ~0ULL, -EINVAL },
	{ 0, ~0ULL, -EINVAL },
};

static int offsets_and_lengths(int device)
{
	int fd = must(create_lazy(device, PAGES));
	size_t i;

	for (i = 0; i < COUNT(ranges); i++) {
		struct actmem_ioctl_range arg = { .size = sizeof(arg), .done = 42 };
		int populated, discarded;

		arg.offset = ranges[i].offset;
		arg.length = ranges[i].length;
		populated = call_populate(fd, &arg);
		CHECK(pages_held(fd) == (populated ? 0 : (long)(arg.length / PAGE_BYTES)));
		CHECK(arg.done == (populated ? 42 : arg.length));
		discarded = call_discard(fd, &arg);
		CHECK(pages_held(fd) == 0);
		if (populated == ranges[i].result && discarded == ranges[i].result)
			continue;
		fprintf(stderr, "# offset %llx, length %llx: %d, %d\n", arg.offset, arg.length,
			populated, discarded);
		return __LINE__;
	}
	return 0;
}

TEST_FOR_ALL(offsets_and_lengths)

static int pointers(int device)
{
	static void *const bad[] = {
		NULL, (void *)8, (void *)0x7ffffffff000, (void *)0xffff888000000000,
		(void *)-1, (void *)-4096, (void *)0x8000000000000000,
	};
	int fd = must(create_lazy(device, 1));
	struct actmem_ioctl_range *arg;
	char *memory;
	size_t i;

	for (i = 0; i < COUNT(bad); i++)
		CHECK(call_populate(fd, bad[i]) == -EFAULT);

	/* Up to the last byte of a mapping, and beyond. */
	memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(!mprotect(memory + 4096, 4096, PROT_NONE));
	arg = (void *)(memory + 4096 - sizeof(*arg));
	*arg = range_of(0, 1);
	CHECK(call_populate(fd, arg) == 0);
	CHECK(arg->done == PAGE_BYTES);
	CHECK(call_discard(fd, arg) == 0);
	memmove(memory + 4096 - sizeof(*arg) + 8, arg, sizeof(*arg) - 8);
	arg = (void *)((char *)arg + 8);
	CHECK(call_populate(fd, arg) == -EFAULT);
	CHECK(pages_held(fd) == 0);

	/* The driver populates the range although it cannot write the result. */
	arg = (void *)memory;
	*arg = range_of(0, 1);
	CHECK(!mprotect(memory, 4096, PROT_READ));
	CHECK(call_populate(fd, arg) == -EFAULT);
	CHECK(pages_held(fd) == 1);
	CHECK(!munmap(memory, 8192));
	return 0;
}

TEST_FOR_ALL(pointers)

/* The argument may lie in the region itself, in a page that is missing. */
static int argument_within_the_region(int device)
{
	int fd = must(create_lazy(device, 2));
	struct actmem_ioctl_range *arg;

	arg = mapped(map(fd, 2));
	CHECK(call_populate(fd, arg) == -EINVAL);	/* all zeros */
	CHECK(pages_held(fd) == 1);
	*arg = range_of(1, 1);
	CHECK(call_populate(fd, arg) == 0 && arg->done == PAGE_BYTES);
	/* The driver writes the result to a page that it has just discarded. */
	*arg = range_of(0, 2);
	CHECK(call_discard(fd, arg) == 0);
	CHECK(arg->done == 2 * PAGE_BYTES);
	CHECK(pages_held(fd) == 1);
	CHECK(!munmap(arg, 2 * PAGE_BYTES));
	return 0;
}

TEST_FOR_ALL(argument_within_the_region)

static int descriptors(int device)
{
	struct actmem_ioctl_range arg = range_of(0, 1);
	int fd = must(create_lazy(device, 1)), other;

	other = must(reopen(fd, O_RDONLY));
	CHECK(call_populate(other, &arg) == -EBADF);
	CHECK(call_discard(other, &arg) == -EBADF);
	close(other);
	other = must(reopen(fd, O_PATH));
	CHECK(call_populate(other, &arg) == -EBADF);
	close(other);
	CHECK(pages_held(fd) == 0);

	other = must(reopen(fd, O_RDWR | O_NONBLOCK));
	CHECK(call_populate(other, &arg) == 0);
	close(other);
	other = must(reopen(fd, O_WRONLY));
	CHECK(call_discard(other, &arg) == 0);
	close(other);
	return 0;
}

TEST_FOR_ALL(descriptors)

static int beyond_memlock(int device)
{
	struct actmem_ioctl_range arg;
	int fd;

	CHECK(!set_memlock(2 * PAGE_BYTES));
	fd = must(create_lazy(device, PAGES));
	arg = range_of(0, PAGES);
	CHECK(call_populate(fd, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK && arg.why.node == -1);
	CHECK(arg.why.wanted > arg.why.available && arg.why.available == 2 * PAGE_BYTES);
	CHECK((long)(arg.done / PAGE_BYTES) == pages_held(fd));
	arg = range_of(1, 2);
	CHECK(call_populate(fd, &arg) == 0 && arg.done == 2 * PAGE_BYTES);
	CHECK(has_no_reason(&arg.why));
	return 0;
}

TEST_F(driver, memlock)
{
	EXPECT_EQ(0, as_user(USER, beyond_memlock, self->device));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
