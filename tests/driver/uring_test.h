/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of commands share: a way to send one, be it as an ioctl or
 * through a ring of some kind.
 */
#ifndef URING_TEST_H
#define URING_TEST_H

#include <liburing.h>

#include "driver_test.h"

#define QUEUE_ENTRIES	8

static inline size_t allocated_bytes(int fd)
{
	struct actmem_ioctl_info now;

	return info(fd, 0, &now) ? SIZE_MAX : now.allocated_bytes;
}

/*
 * A ring ends in the background, and with it what it holds. Returns only once
 * nothing is left.
 */
static inline void wait_until_nothing_is_left(void)
{
	while (regions() || lingering_regions() || node_sum("region_bytes"))
		usleep(10000);
}

/* What rings do is left to the end of each test. */
FIXTURE(uring)
{
	int device;
};

FIXTURE_SETUP(uring)
{
	self->device = open_device();
	ASSERT_LE(0, self->device);
	ASSERT_EQ(0, regions());
}

FIXTURE_TEARDOWN(uring)
{
	close(self->device);
	wait_until_nothing_is_left();
}

/* Runs the function of that name in a child, so that all that it opens goes with it. */
#define TEST_IN_CHILD(function)					\
TEST_F(uring, function)						\
{								\
	EXPECT_EQ(0, as_user(0, function, self->device));	\
}

/* Fills in a submission; its user_data is the address of the argument. */
static inline void prepare_command(struct io_uring_sqe *sqe, int fd, unsigned long request,
				   void *arg)
{
	const struct actmem_uring payload = { .argument = (uintptr_t)arg };

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd, NULL, 0, 0);
	sqe->cmd_op = request;
	memcpy(sqe->cmd, &payload, sizeof(payload));
	sqe->user_data = (uintptr_t)arg;
}

/* The result of the next completion. */
static inline int next_result(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int result = io_uring_wait_cqe(ring, &cqe);

	if (result)
		return result;
	result = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return result;
}

static inline int submit_and_wait(struct io_uring *ring)
{
	int submitted = io_uring_submit(ring);

	if (submitted != 1)
		return submitted < 0 ? submitted : -EIO;
	return next_result(ring);
}

/* One command and its result. */
static inline int command(struct io_uring *ring, int fd, unsigned long request, void *arg)
{
	prepare_command(io_uring_get_sqe(ring), fd, request, arg);
	return submit_and_wait(ring);
}

/**
 * struct way - by which a request reaches the driver
 * @is_ioctl: an ioctl, none of the rest
 * @setup: IORING_SETUP_* of the ring
 * @flags: IOSQE_* of the submission
 * @is_registered: the descriptor is registered with the ring
 */
struct way {
	bool is_ioctl;
	unsigned int setup;
	unsigned int flags;
	bool is_registered;
};

/* By a ring of its own each time, so that a child of any user can do it. */
static inline int send_by(const struct way *way, int fd, unsigned long request, void *arg)
{
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	int result;

	if (way->is_ioctl)
		return call(fd, request, arg);
	result = io_uring_queue_init(QUEUE_ENTRIES, &ring, way->setup);
	if (result)
		return result;
	if (way->is_registered && io_uring_register_files(&ring, &fd, 1)) {
		/* Only descriptors can be registered. */
		io_uring_queue_exit(&ring);
		return -EBADF;
	}
	sqe = io_uring_get_sqe(&ring);
	prepare_command(sqe, way->is_registered ? 0 : fd, request, arg);
	sqe->flags = way->flags | (way->is_registered ? IOSQE_FIXED_FILE : 0);
	result = submit_and_wait(&ring);
	io_uring_queue_exit(&ring);
	return result;
}

#endif
