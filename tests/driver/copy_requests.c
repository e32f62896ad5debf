// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * COPY as a request: every field, good and bad, as an ioctl and through rings,
 * from an unprivileged user as from root; and cancelled on its way.
 */
#include <stddef.h>

#include "copy_test.h"
#include "uring_test.h"

#define PAGES	3
#define LENGTH	(PAGES * PAGE_BYTES)

FIXTURE(copy_request)
{
	int device;
	int to;
	int from;
	unsigned char *target;
	unsigned char *source;
};

FIXTURE_VARIANT(copy_request)
{
	struct way way;
};

FIXTURE_VARIANT_ADD(copy_request, ioctl)
{
	.way = { .is_ioctl = true },
};

FIXTURE_VARIANT_ADD(copy_request, ring)
{
	.way = { .setup = 0 },
};

FIXTURE_VARIANT_ADD(copy_request, ring_not_tried_inline)
{
	.way = { .flags = IOSQE_ASYNC },
};

/* The way of the variant that runs, for the functions that children run. */
static const struct way *way;

FIXTURE_SETUP(copy_request)
{
	way = &variant->way;
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	ASSERT_EQ(0, regions());
	self->to = create_pages(self->device, PAGES);
	self->from = create_pages(self->device, PAGES);
	ASSERT_LE(0, self->to);
	ASSERT_LE(0, self->from);
	self->target = map(self->to, PAGES);
	self->source = map(self->from, PAGES);
	ASSERT_NE(MAP_FAILED, self->target);
	ASSERT_NE(MAP_FAILED, self->source);
	memset(self->target, 0x11, LENGTH);
	memset(self->source, 0x22, LENGTH);
}

FIXTURE_TEARDOWN(copy_request)
{
	munmap(self->target, LENGTH);
	munmap(self->source, LENGTH);
	close(self->to);
	close(self->from);
	close(self->device);
	wait_until_nothing_is_left();
}

static int copy_by_way(int to, uint64_t offset, int from, uint64_t source_offset,
		       uint64_t length)
{
	struct actmem_ioctl_copy arg = copy_of(offset, from, source_offset, length);
	int err = send_by(way, to, ACTMEM_IOC_COPY, &arg);

	if (!err && (arg.done != length || arg.why.reason != ACTMEM_WHY_NONE))
		return -ENODATA;
	return err;
}

static int bad_ranges(int to, int from)
{
	static const uint64_t beyond[] = {
		LENGTH + 1, PAGE_BYTES << 23, 1ULL << 32, 1ULL << 63, UINT64_MAX - 1, UINT64_MAX,
	};
	size_t i;

	CHECK(copy_by_way(to, 0, from, 0, 0) == -EINVAL);
	CHECK(copy_by_way(to, 1, from, 0, LENGTH) == -EINVAL);
	CHECK(copy_by_way(to, 0, from, 1, LENGTH) == -EINVAL);
	CHECK(copy_by_way(to, LENGTH, from, 0, 1) == -EINVAL);
	CHECK(copy_by_way(to, 0, from, LENGTH, 1) == -EINVAL);
	CHECK(copy_by_way(to, LENGTH - 1, from, 0, 2) == -EINVAL);
	CHECK(copy_by_way(to, 0, from, LENGTH - 1, 2) == -EINVAL);
	for (i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++) {
		CHECK(copy_by_way(to, beyond[i], from, 0, 1) == -EINVAL);
		CHECK(copy_by_way(to, 0, from, beyond[i], 1) == -EINVAL);
		CHECK(copy_by_way(to, 0, from, 0, beyond[i]) == -EINVAL);
		/* Where the end wraps around. */
		CHECK(copy_by_way(to, beyond[i], from, 0, -beyond[i]) == -EINVAL);
		CHECK(copy_by_way(to, 0, from, beyond[i], -beyond[i]) == -EINVAL);
		CHECK(copy_by_way(to, beyond[i], from, beyond[i], 1 - beyond[i]) == -EINVAL);
		CHECK(copy_by_way(to, 1, from, 0, beyond[i]) == -EINVAL);
	}
	CHECK(!copy_by_way(to, LENGTH - 1, from, LENGTH - 1, 1));
	return 0;
}

static int bad_fields(int to, int from)
{
	struct actmem_ioctl_copy arg;
	int bit;

	for (bit = 0; bit < 32; bit++) {
		arg = copy_of(0, from, 0, 1);
		arg.flags = 1U << bit;
		CHECK(send_by(way, to, ACTMEM_IOC_COPY, &arg) == -EINVAL);
		arg = copy_of(0, from, 0, 1);
		arg.reserved = 1U << bit;
		CHECK(send_by(way, to, ACTMEM_IOC_COPY, &arg) == -EINVAL);
	}
	/* What comes back may hold anything. */
	arg = copy_of(0, from, 0, 1);
	memset(&arg.done, 0xff, sizeof(arg) - offsetof(struct actmem_ioctl_copy, done));
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, &arg) == 0 && arg.done == 1);
	CHECK(arg.why.reason == ACTMEM_WHY_NONE && arg.why.node == -1);
	return 0;
}

static int bad_descriptors(int to, int from)
{
	int closed = fcntl(from, F_DUPFD, 500), null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int memory = syscall(SYS_memfd_create, "foreign", 0);
	char path[64];
	int fd;

	close(closed);
	CHECK(copy_by_way(to, 0, -1, 0, 1) == -EBADF);
	CHECK(copy_by_way(to, 0, closed, 0, 1) == -EBADF);
	CHECK(copy_by_way(to, 0, INT_MIN, 0, 1) == -EBADF);
	CHECK(copy_by_way(to, 0, INT_MAX, 0, 1) == -EBADF);
	CHECK(copy_by_way(to, 0, null, 0, 1) == -EINVAL);
	CHECK(copy_by_way(to, 0, memory, 0, 1) == -EINVAL);
	if (way->is_ioctl) {
		CHECK(copy_by_way(null, 0, from, 0, 1) == -ENOTTY);
		CHECK(copy_by_way(memory, 0, from, 0, 1) == -ENOTTY);
	}
	close(null);
	close(memory);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", from);
	fd = open(path, O_PATH | O_CLOEXEC);
	CHECK(fd >= 0 && copy_by_way(to, 0, fd, 0, 1) == -EBADF);
	CHECK(copy_by_way(fd, 0, from, 0, 1) == -EBADF);
	close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	/* Another user may not reopen it. */
	if (fd < 0 && errno == EACCES)
		return 0;
	CHECK(copy_by_way(to, 0, fd, 0, 1) == 0);
	close(fd);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && copy_by_way(to, 0, fd, 0, 1) == -EBADF);
	close(fd);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && copy_by_way(fd, 0, from, 0, 1) == -EBADF);
	close(fd);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	CHECK(fd >= 0 && copy_by_way(fd, 0, from, 0, 1) == 0);
	close(fd);
	return 0;
}

static int bad_structs(int to, int from)
{
	struct { struct actmem_ioctl_copy arg; uint64_t more[8]; } newer = { 0 };
	static const uint32_t too_small[] = { 0, 1, 4, 8, sizeof(newer.arg) - 8,
					      sizeof(newer.arg) - 1 };
	char *pages, *across;
	size_t i;

	for (i = 0; i < sizeof(too_small) / sizeof(too_small[0]); i++) {
		newer.arg = copy_of(0, from, 0, 1);
		newer.arg.size = too_small[i];
		CHECK(send_by(way, to, ACTMEM_IOC_COPY, &newer) == -EINVAL);
	}
	newer.arg = copy_of(0, from, 0, 1);
	newer.arg.size = sizeof(newer);
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, &newer) == 0 && newer.arg.size == sizeof(newer));
	newer.more[7] = 1;
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, &newer) == -E2BIG);
	newer.arg.size = 4097;
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, &newer) == -E2BIG);
	newer.arg.size = UINT32_MAX;
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, &newer) == -E2BIG);

	pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED && !mprotect(pages + 4096, 4096, PROT_NONE));
	across = pages + 4096 - sizeof(newer.arg) / 2;
	newer.arg = copy_of(0, from, 0, 1);
	memcpy(across, &newer.arg, sizeof(newer.arg) / 2);
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, across) == -EFAULT);
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, NULL) == -EFAULT);
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, (void *)-8L) == -EFAULT);
	/* Can be read, but not be answered to. */
	memcpy(pages, &newer.arg, sizeof(newer.arg));
	CHECK(!mprotect(pages, 4096, PROT_READ));
	CHECK(send_by(way, to, ACTMEM_IOC_COPY, pages) == -EFAULT);
	munmap(pages, 8192);
	return 0;
}

/* The descriptors of a child that may be another user's. */
static int inherited_to, inherited_from;

static int bad_input(int device)
{
	int line = bad_ranges(inherited_to, inherited_from);

	line = line ?: bad_fields(inherited_to, inherited_from);
	line = line ?: bad_descriptors(inherited_to, inherited_from);
	return line ?: bad_structs(inherited_to, inherited_from);
}

TEST_F(copy_request, good_and_bad)
{
	inherited_to = self->to;
	inherited_from = self->from;
	EXPECT_EQ(0, bad_input(self->device));
	EXPECT_EQ(0, as_user(USER, bad_input, self->device));
	/* None of it wrote to any byte but those copied on purpose. */
	EXPECT_EQ(0x22, self->target[0]);
	EXPECT_TRUE(is_all(self->target + 1, 0x11, LENGTH - 2));
	EXPECT_EQ(0x22, self->target[LENGTH - 1]);
	EXPECT_EQ(-EINVAL, copy_by_way(self->to, 0, self->device, 0, 1));
	ASSERT_EQ(0, copy_by_way(self->to, 5, self->from, 0, LENGTH - 10));
	EXPECT_TRUE(is_all(self->target + 5, 0x22, LENGTH - 10));
}

#define LONG_PAGES	70
#define LONG		(LONG_PAGES * PAGE_BYTES)

/* Whatever was told to be done is; the rest may be or not. */
static int cancel_one(int to, int from, const unsigned char *target, unsigned int delay,
		      bool *was_cut)
{
	struct actmem_ioctl_copy arg = copy_of(1, from, 0, LONG - 1);
	struct io_uring_cqe *cqe;
	struct io_uring ring;
	int i, result = 1;

	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	prepare_command(io_uring_get_sqe(&ring), to, ACTMEM_IOC_COPY, &arg);
	CHECK(io_uring_submit(&ring) == 1);
	usleep(delay);
	io_uring_prep_cancel(io_uring_get_sqe(&ring), &arg, 0);
	CHECK(io_uring_submit(&ring) == 1);
	for (i = 0; i < 2; i++) {
		CHECK(!io_uring_wait_cqe(&ring, &cqe));
		if (cqe->user_data == (uintptr_t)&arg)
			result = cqe->res;
		io_uring_cqe_seen(&ring, cqe);
	}
	io_uring_queue_exit(&ring);
	CHECK(result == 0 || result == -ECANCELED || result == -EINTR);
	/* Cancelled before it began, nothing is told. */
	if (result && arg.done == 42)
		return 0;
	CHECK(arg.done <= LONG - 1 && (result || arg.done == LONG - 1));
	CHECK(is_all(target + 1, 0x22, arg.done));
	*was_cut = *was_cut || (result && arg.done && arg.done < LONG - 1);
	return 0;
}

TEST_F(driver, cancelled)
{
	int to = create_pages(self->device, LONG_PAGES);
	int from = create_pages(self->device, LONG_PAGES);
	unsigned char *target, *source;
	bool was_cut = false;
	unsigned int i;

	ASSERT_LE(0, to);
	ASSERT_LE(0, from);
	target = map(to, LONG_PAGES);
	source = map(from, LONG_PAGES);
	ASSERT_NE(MAP_FAILED, target);
	ASSERT_NE(MAP_FAILED, source);
	memset(source, 0x22, LONG);
	for (i = 0; i < 12; i++) {
		memset(target, 0x11, LONG);
		ASSERT_EQ(0, cancel_one(to, from, target, i * 5000, &was_cut));
	}
	TH_LOG("a copy was%s cut in two", was_cut ? "" : " never");
	munmap(target, LONG);
	munmap(source, LONG);
	close(to);
	close(from);
	wait_until_nothing_is_left();
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
