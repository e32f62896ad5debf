// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * POPULATE and DISCARD: every field, good and bad, by each way in which a
 * request can reach the driver, with the same result. From an unprivileged user
 * as from root.
 */
#include <sys/mman.h>

#include "uring_test.h"

#define PAGES	4
#define ABSURD	(~0ULL / PAGE_BYTES * PAGE_BYTES)
#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))

FIXTURE(commands)
{
	int device;
};

FIXTURE_VARIANT(commands)
{
	struct way way;
};

FIXTURE_VARIANT_ADD(commands, ioctl)
{
	.way = { .is_ioctl = true },
};

FIXTURE_VARIANT_ADD(commands, ring)
{
	.way = { .setup = 0 },
};

FIXTURE_VARIANT_ADD(commands, ring_not_tried_inline)
{
	.way = { .flags = IOSQE_ASYNC },
};

FIXTURE_VARIANT_ADD(commands, ring_drained)
{
	.way = { .flags = IOSQE_IO_DRAIN },
};

FIXTURE_VARIANT_ADD(commands, ring_with_registered_file)
{
	.way = { .is_registered = true },
};

FIXTURE_VARIANT_ADD(commands, ring_with_deferred_task_work)
{
	.way = { .setup = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN },
};

FIXTURE_VARIANT_ADD(commands, ring_with_a_polling_thread)
{
	.way = { .setup = IORING_SETUP_SQPOLL },
};

FIXTURE_VARIANT_ADD(commands, ring_of_large_entries)
{
	.way = { .setup = IORING_SETUP_SQE128 | IORING_SETUP_CQE32 },
};

/* The way of the variant that runs, for the functions that children run. */
static const struct way *way;

FIXTURE_SETUP(commands)
{
	way = &variant->way;
	self->device = open_device();
	ASSERT_LE(0, self->device);
	ASSERT_EQ(0, regions());
}

FIXTURE_TEARDOWN(commands)
{
	close(self->device);
	wait_until_nothing_is_left();
}

static int send_populate(int fd, struct actmem_ioctl_range *arg)
{
	return send_by(way, fd, ACTMEM_IOC_POPULATE, arg);
}

static int send_discard(int fd, struct actmem_ioctl_range *arg)
{
	return send_by(way, fd, ACTMEM_IOC_DISCARD, arg);
}

/* Runs the function of that name as root and as a user without capabilities. */
#define TEST_FOR_ALL(function)						\
TEST_F(commands, function)						\
{									\
	EXPECT_EQ(0, as_user(0, function, self->device));		\
	EXPECT_EQ(0, as_user(USER, function, self->device));		\
}

static bool nothing_is_told(const struct actmem_why *why)
{
	return why->reason == ACTMEM_WHY_NONE && why->node == -1 && !why->wanted &&
	       !why->available && !why->movable;
}

static int there_and_back(int device)
{
	int fd = create_lazy(device, PAGES);
	struct actmem_ioctl_range arg;

	CHECK(fd >= 0);
	CHECK(allocated_bytes(fd) == 0);
	arg = range_of(1, 2);
	memset(&arg.why, 0xff, sizeof(arg.why));
	arg.done = 42;
	CHECK(send_populate(fd, &arg) == 0);
	CHECK(arg.size == sizeof(arg) && arg.flags == 0);
	CHECK(arg.offset == PAGE_BYTES && arg.length == 2 * PAGE_BYTES);
	CHECK(arg.done == 2 * PAGE_BYTES && nothing_is_told(&arg.why));
	CHECK(allocated_bytes(fd) == 2 * PAGE_BYTES);
	/* Those that are there count as done. */
	arg = range_of(0, PAGES);
	CHECK(send_populate(fd, &arg) == 0 && arg.done == PAGES * PAGE_BYTES);
	CHECK(allocated_bytes(fd) == PAGES * PAGE_BYTES);
	arg = range_of(3, 1);
	memset(&arg.why, 0xff, sizeof(arg.why));
	CHECK(send_discard(fd, &arg) == 0);
	CHECK(arg.done == PAGE_BYTES && nothing_is_told(&arg.why));
	CHECK(allocated_bytes(fd) == 3 * PAGE_BYTES);
	arg = range_of(0, PAGES);
	CHECK(send_discard(fd, &arg) == 0 && arg.done == PAGES * PAGE_BYTES);
	CHECK(allocated_bytes(fd) == 0);
	close(fd);
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
	int fd = create_lazy(device, PAGES);
	size_t i;

	CHECK(fd >= 0);
	for (i = 0; i < COUNT(ranges); i++) {
		struct actmem_ioctl_range arg = { .size = sizeof(arg), .done = 42 };
		int populated, discarded;

		arg.offset = ranges[i].offset;
		arg.length = ranges[i].length;
		populated = send_populate(fd, &arg);
		CHECK(allocated_bytes(fd) == (populated ? 0 : arg.length));
		CHECK(arg.done == (populated ? 42 : arg.length));
		discarded = send_discard(fd, &arg);
		CHECK(allocated_bytes(fd) == 0);
		if (populated == ranges[i].result && discarded == ranges[i].result)
			continue;
		fprintf(stderr, "# offset %llx, length %llx: %d, %d\n", arg.offset, arg.length,
			populated, discarded);
		return __LINE__;
	}
	close(fd);
	return 0;
}

TEST_FOR_ALL(offsets_and_lengths)

static int flags(int device)
{
	int fd = create_lazy(device, 1), bit;

	CHECK(fd >= 0);
	for (bit = 0; bit < 32; bit++) {
		struct actmem_ioctl_range arg = range_of(0, 1);

		arg.flags = 1U << bit;
		CHECK(send_populate(fd, &arg) == -EINVAL);
		CHECK(send_discard(fd, &arg) == -EINVAL);
	}
	CHECK(allocated_bytes(fd) == 0);
	close(fd);
	return 0;
}

TEST_FOR_ALL(flags)

static int sizes(int device)
{
	static const uint32_t size = sizeof(struct actmem_ioctl_range);
	static const uint32_t too_small[] = { 0, 1, 4, 8, size - 8, size - 1 };
	union {
		struct actmem_ioctl_range arg;
		unsigned char bytes[8192];
	} user;
	int fd = create_lazy(device, 1);
	size_t i;

	CHECK(fd >= 0);
	for (i = 0; i < COUNT(too_small); i++) {
		memset(&user, 0, sizeof(user));
		user.arg = range_of(0, 1);
		user.arg.size = too_small[i];
		CHECK(send_populate(fd, &user.arg) == -EINVAL);
		CHECK(send_discard(fd, &user.arg) == -EINVAL);
	}
	user.arg = range_of(0, 1);
	user.arg.size = 4096;
	CHECK(send_populate(fd, &user.arg) == 0 && user.arg.size == 4096);
	CHECK(send_discard(fd, &user.arg) == 0);
	user.bytes[4095] = 1;
	CHECK(send_populate(fd, &user.arg) == -E2BIG);
	user.arg.size = size + 8;
	CHECK(send_populate(fd, &user.arg) == 0);
	CHECK(send_discard(fd, &user.arg) == 0);
	user.bytes[size] = 1;
	CHECK(send_populate(fd, &user.arg) == -E2BIG);
	memset(user.bytes + size, 0, sizeof(user) - size);
	user.arg.size = 4097;
	CHECK(send_populate(fd, &user.arg) == -E2BIG);
	user.arg.size = ~0U;
	CHECK(send_populate(fd, &user.arg) == -E2BIG);
	CHECK(allocated_bytes(fd) == 0);
	close(fd);
	return 0;
}

TEST_FOR_ALL(sizes)

static int pointers(int device)
{
	static void *const bad[] = {
		NULL, (void *)8, (void *)0x7ffffffff000, (void *)0xffff888000000000,
		(void *)-1, (void *)-4096, (void *)0x8000000000000000,
	};
	int fd = create_lazy(device, 1);
	struct actmem_ioctl_range *arg;
	char *memory;
	size_t i;

	CHECK(fd >= 0);
	for (i = 0; i < COUNT(bad); i++)
		CHECK(send_by(way, fd, ACTMEM_IOC_POPULATE, bad[i]) == -EFAULT);

	/* Up to the last byte of what is mapped, and beyond. */
	memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(!mprotect(memory + 4096, 4096, PROT_NONE));
	arg = (void *)(memory + 4096 - sizeof(*arg));
	*arg = range_of(0, 1);
	CHECK(send_populate(fd, arg) == 0);
	CHECK(arg->done == PAGE_BYTES);
	CHECK(send_discard(fd, arg) == 0);
	memmove(memory + 4096 - sizeof(*arg) + 8, arg, sizeof(*arg) - 8);
	arg = (void *)((char *)arg + 8);
	CHECK(send_populate(fd, arg) == -EFAULT);
	CHECK(allocated_bytes(fd) == 0);

	/* What cannot be told has been done all the same. */
	arg = (void *)memory;
	*arg = range_of(0, 1);
	CHECK(!mprotect(memory, 4096, PROT_READ));
	CHECK(send_populate(fd, arg) == -EFAULT);
	CHECK(allocated_bytes(fd) == PAGE_BYTES);
	CHECK(!munmap(memory, 8192));
	close(fd);
	return 0;
}

TEST_FOR_ALL(pointers)

/* The argument may lie in the region itself, in a page that is missing. */
static int argument_within_the_region(int device)
{
	int fd = create_lazy(device, 2);
	struct actmem_ioctl_range *arg;

	CHECK(fd >= 0);
	arg = map(fd, 2);
	CHECK(arg != MAP_FAILED);
	CHECK(send_populate(fd, arg) == -EINVAL);	/* all zeros */
	CHECK(allocated_bytes(fd) == PAGE_BYTES);
	*arg = range_of(1, 1);
	CHECK(send_populate(fd, arg) == 0 && arg->done == PAGE_BYTES);
	/* The answer is written to a page that has just been discarded. */
	*arg = range_of(0, 2);
	CHECK(send_discard(fd, arg) == 0);
	CHECK(arg->done == 2 * PAGE_BYTES);
	CHECK(allocated_bytes(fd) == PAGE_BYTES);
	CHECK(!munmap(arg, 2 * PAGE_BYTES));
	close(fd);
	return 0;
}

TEST_FOR_ALL(argument_within_the_region)

static int descriptors(int device)
{
	int unknown = way->is_ioctl ? -ENOTTY : -EOPNOTSUPP;
	struct actmem_ioctl_range arg = range_of(0, 1);
	int fd = create_lazy(device, 1), other;

	CHECK(fd >= 0);
	CHECK(send_populate(-1, &arg) == -EBADF);
	CHECK(send_populate(1000, &arg) == -EBADF);
	CHECK(send_populate(device, &arg) == unknown);
	other = memfd_create("not a region", MFD_CLOEXEC);
	CHECK(other >= 0);
	CHECK(send_populate(other, &arg) == unknown);
	close(other);

	other = reopen(fd, O_RDONLY);
	CHECK(other >= 0);
	CHECK(send_populate(other, &arg) == -EBADF);
	CHECK(send_discard(other, &arg) == -EBADF);
	close(other);
	other = reopen(fd, O_PATH);
	CHECK(other >= 0);
	CHECK(send_populate(other, &arg) == -EBADF);
	close(other);
	CHECK(allocated_bytes(fd) == 0);

	other = reopen(fd, O_RDWR | O_NONBLOCK);
	CHECK(other >= 0);
	CHECK(send_populate(other, &arg) == 0);
	close(other);
	other = reopen(fd, O_WRONLY);
	CHECK(other >= 0);
	CHECK(send_discard(other, &arg) == 0);
	close(other);
	close(fd);
	return 0;
}

TEST_FOR_ALL(descriptors)

static int unknown_requests(int device)
{
	static const unsigned long requests[] = {
		0, 1, 2, ~0U, ACTMEM_IOC_CREATE, ACTMEM_IOC_LIST, ACTMEM_IOC_QUERY,
		_IOWR(ACTMEM_IOC_MAGIC, 0x7f, __u32), _IOWR(ACTMEM_IOC_MAGIC, 0xff, __u32),
		_IOWR(ACTMEM_IOC_MAGIC, 0x05, __u64), _IOR(ACTMEM_IOC_MAGIC, 0x05, __u32),
		_IO(ACTMEM_IOC_MAGIC, 0x05), _IOWR(0xAB, 0x05, __u32),
	};
	struct actmem_ioctl_range arg = range_of(0, 1);
	int fd = create_lazy(device, 1);
	size_t i;

	CHECK(fd >= 0);
	for (i = 0; i < COUNT(requests); i++) {
		/* The kernel's own, which come before the driver's. */
		if (way->is_ioctl && (requests[i] == 1 || requests[i] == 2))
			continue;
		CHECK(send_by(way, fd, requests[i], &arg) ==
		      (way->is_ioctl ? -ENOTTY : -EOPNOTSUPP));
	}
	if (!way->is_ioctl)
		CHECK(send_by(way, fd, ACTMEM_IOC_INFO, &arg) == -EOPNOTSUPP);
	CHECK(allocated_bytes(fd) == 0);
	close(fd);
	return 0;
}

TEST_FOR_ALL(unknown_requests)

static int beyond_memlock(int device)
{
	struct actmem_ioctl_range arg;
	int fd;

	CHECK(!set_memlock(2 * PAGE_BYTES));
	fd = create_lazy(device, PAGES);
	CHECK(fd >= 0);
	arg = range_of(0, PAGES);
	CHECK(send_populate(fd, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK && arg.why.node == -1);
	CHECK(arg.why.wanted > arg.why.available && arg.why.available == 2 * PAGE_BYTES);
	CHECK(arg.done == allocated_bytes(fd));
	arg = range_of(1, 2);
	CHECK(send_populate(fd, &arg) == 0 && arg.done == 2 * PAGE_BYTES);
	CHECK(nothing_is_told(&arg.why));
	close(fd);
	return 0;
}

TEST_F(commands, memlock)
{
	EXPECT_EQ(0, as_user(USER, beyond_memlock, self->device));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
