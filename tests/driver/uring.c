// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Commands in rings: what else a submission can hold, links, many at once, and
 * on whose behalf they are carried out.
 */
#include <sys/mman.h>

#include "cgroup_test.h"
#include "uring_test.h"

#define PAGES		4
#define MANY		512
#define DIFFERENT	64

static int ring_populate(struct io_uring *ring, int fd, struct actmem_ioctl_range *arg)
{
	return command(ring, fd, ACTMEM_IOC_POPULATE, arg);
}

/* The result of a submission after one change to it. */
#define RESULT_WITH(change) ({						\
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);		\
									\
	prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, &arg);		\
	change;								\
	submit_and_wait(&ring);						\
})

static int other_fields(int device)
{
	struct actmem_ioctl_range arg = range_of(0, 1);
	struct actmem_uring payload = { .argument = (uintptr_t)&arg };
	struct iovec buffer = { &payload, sizeof(payload) };
	int fd = create_lazy(device, 1), bit, result;
	struct io_uring ring;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	CHECK(!io_uring_register_buffers(&ring, &buffer, 1));
	for (bit = 0; bit < 64; bit++) {
		payload.reserved = 1ULL << bit;
		CHECK(RESULT_WITH(memcpy(sqe->cmd, &payload, sizeof(payload))) == -EINVAL);
	}
	payload.reserved = 0;
	/* Of the upper word, beside the request's number. */
	CHECK(RESULT_WITH(sqe->off |= 1ULL << 32) == -EINVAL);
	CHECK(RESULT_WITH(sqe->off |= 1ULL << 63) == -EINVAL);
	/* sqe->uring_cmd_flags, of which the first is for a registered buffer. */
	for (bit = 0; bit < 32; bit++)
		CHECK(RESULT_WITH(sqe->rw_flags = 1U << bit) == -EINVAL);
	/* The second is for one that completes many times, with buffers that the ring chooses. */
	result = RESULT_WITH(sqe->rw_flags = 2; sqe->flags |= IOSQE_BUFFER_SELECT);
	CHECK(result == -EINVAL || result == -EOPNOTSUPP);
	CHECK(allocated_bytes(fd) == 0);
	CHECK(RESULT_WITH() == 0);
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_F(uring, other_fields)
{
	EXPECT_EQ(0, as_user(0, other_fields, self->device));
	EXPECT_EQ(0, as_user(USER, other_fields, self->device));
}

/* Kernels differ in whether they let such a ring have commands that do not poll. */
static int polled_ring(int device)
{
	struct actmem_ioctl_range arg = range_of(0, 1);
	int fd = create_lazy(device, 1), result;
	struct io_uring ring;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, IORING_SETUP_IOPOLL));
	result = ring_populate(&ring, fd, &arg);
	CHECK(result == -EOPNOTSUPP || result == 0);
	CHECK(allocated_bytes(fd) == (result ? 0 : PAGE_BYTES));
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(polled_ring)

/* Pages are made ready, then read into by the same submission. */
static int populate_then_read(int device)
{
	int fd = create_lazy(device, PAGES), file = memfd_create("file", MFD_CLOEXEC);
	struct actmem_ioctl_range arg = range_of(0, PAGES);
	char pattern[4096], *memory = map(fd, PAGES);
	struct actmem_ioctl_info now;
	struct io_uring_sqe *sqe;
	struct io_uring ring;

	CHECK(memory != MAP_FAILED && file >= 0);
	memset(pattern, 0x5a, sizeof(pattern));
	CHECK(write(file, pattern, sizeof(pattern)) == sizeof(pattern));
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));

	sqe = io_uring_get_sqe(&ring);
	prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, &arg);
	sqe->flags = IOSQE_IO_LINK;
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read(sqe, file, memory + PAGE_BYTES, sizeof(pattern), 0);
	CHECK(io_uring_submit(&ring) == 2);
	CHECK(next_result(&ring) == 0);
	CHECK(next_result(&ring) == sizeof(pattern));
	CHECK(arg.done == PAGES * PAGE_BYTES);
	CHECK(!memcmp(memory + PAGE_BYTES, pattern, sizeof(pattern)));
	CHECK(!info(fd, 0, &now) && now.demand_faults == 0);

	/* What fails takes along what is linked to it. */
	arg.length++;
	sqe = io_uring_get_sqe(&ring);
	prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, &arg);
	sqe->flags = IOSQE_IO_LINK;
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read(sqe, file, memory, sizeof(pattern), 0);
	CHECK(io_uring_submit(&ring) == 2);
	CHECK(next_result(&ring) == -EINVAL);
	CHECK(next_result(&ring) == -ECANCELED);
	CHECK(memory[0] == 0);
	CHECK(!munmap(memory, PAGES * PAGE_BYTES));
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(populate_then_read)

/* The entry in the queue is the program's again as soon as it has been submitted. */
static int entry_is_used_again(int device)
{
	int fd = create_lazy(device, 1), i;
	struct actmem_ioctl_range arg;
	struct io_uring_sqe *sqe;
	struct io_uring ring;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	for (i = 0; i < 200; i++) {
		CHECK(!discard_patiently(fd, 0, 1));
		arg = range_of(0, 1);
		sqe = io_uring_get_sqe(&ring);
		prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, &arg);
		CHECK(io_uring_submit(&ring) == 1);
		memset(sqe, 0xff, sizeof(*sqe));
		CHECK(next_result(&ring) == 0);
		CHECK(allocated_bytes(fd) == PAGE_BYTES);
	}
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(entry_is_used_again)

/*
 * A command that waits for another request, while its entry in the queue is
 * used again. With IOSQE_ASYNC every kernel has copied it by then.
 */
static int linked_after_another(int device)
{
	struct actmem_ioctl_range arg = range_of(0, 1), other = range_of(1, 1);
	int fd = create_lazy(device, PAGES), ends[2], i;
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	char byte = 0;

	CHECK(fd >= 0 && !pipe2(ends, O_CLOEXEC));
	CHECK(!io_uring_queue_init(2, &ring, 0));
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_read(sqe, ends[0], &byte, 1, 0);
	sqe->flags = IOSQE_IO_LINK;
	sqe = io_uring_get_sqe(&ring);
	prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, &arg);
	sqe->flags = IOSQE_ASYNC;
	CHECK(io_uring_submit(&ring) == 2);
	for (i = 0; i < 4; i++)
		CHECK(ring_populate(&ring, fd, &other) == 0);
	CHECK(allocated_bytes(fd) == PAGE_BYTES);
	CHECK(write(ends[1], "", 1) == 1);
	CHECK(next_result(&ring) == 1);
	CHECK(next_result(&ring) == 0);
	CHECK(arg.done == PAGE_BYTES);
	CHECK(allocated_bytes(fd) == 2 * PAGE_BYTES);
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(linked_after_another)

static int only_failures_are_posted(int device)
{
	struct actmem_ioctl_range good = range_of(0, 1), bad = range_of(0, 2);
	int fd = create_lazy(device, 1);
	struct io_uring_sqe *sqe;
	struct io_uring_cqe *cqe;
	struct io_uring ring;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	sqe = io_uring_get_sqe(&ring);
	prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, &good);
	sqe->flags = IOSQE_CQE_SKIP_SUCCESS | IOSQE_IO_LINK;
	sqe = io_uring_get_sqe(&ring);
	prepare_command(sqe, fd, ACTMEM_IOC_DISCARD, &good);
	sqe->flags = IOSQE_CQE_SKIP_SUCCESS | IOSQE_IO_LINK;
	sqe = io_uring_get_sqe(&ring);
	prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, &bad);
	sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
	CHECK(io_uring_submit(&ring) == 3);
	CHECK(!io_uring_wait_cqe(&ring, &cqe));
	CHECK(cqe->res == -EINVAL && cqe->user_data == (uintptr_t)&bad);
	io_uring_cqe_seen(&ring, cqe);
	CHECK(io_uring_peek_cqe(&ring, &cqe) == -EAGAIN);
	CHECK(good.done == PAGE_BYTES && allocated_bytes(fd) == 0);
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(only_failures_are_posted)

/* Takes one completion of those of many_at_once(), each of which comes once. */
static int take_one(struct io_uring *ring, const struct actmem_ioctl_range *args, bool *seen)
{
	struct io_uring_cqe *cqe;

	CHECK(!io_uring_wait_cqe(ring, &cqe));
	CHECK(cqe->user_data < MANY && !seen[cqe->user_data]);
	CHECK(cqe->res == 0 && args[cqe->user_data].done == PAGE_BYTES);
	seen[cqe->user_data] = true;
	io_uring_cqe_seen(ring, cqe);
	return 0;
}

/* Far more than there is room for in the queue of completions. */
static int many_at_once(int device)
{
	static struct actmem_ioctl_range args[MANY];
	static bool seen[MANY];
	int fd = create_lazy(device, DIFFERENT), i, taken = 0;
	struct io_uring ring;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	for (i = 0; i < MANY; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
		int submitted;

		args[i] = range_of(i % DIFFERENT, 1);
		prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, &args[i]);
		sqe->user_data = i;
		while ((submitted = io_uring_submit(&ring)) == -EBUSY) {
			CHECK(!take_one(&ring, args, seen));
			taken++;
		}
		CHECK(submitted == 1);
	}
	for (; taken < MANY; taken++)
		CHECK(!take_one(&ring, args, seen));
	CHECK(allocated_bytes(fd) == DIFFERENT * PAGE_BYTES);
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(many_at_once)

/* All that it says of memory is of the child's. */
static int ring_of_the_parent(int device)
{
	struct actmem_ioctl_range arg = range_of(0, 1);
	int fd = create_lazy(device, PAGES);
	struct io_uring ring;
	pid_t child;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	child = fork();
	if (!child) {
		arg = range_of(1, 2);
		_exit(ring_populate(&ring, fd, &arg) || arg.done != 2 * PAGE_BYTES);
	}
	CHECK(wait_for(child) == 0);
	CHECK(allocated_bytes(fd) == 2 * PAGE_BYTES);
	CHECK(arg.done == 0 && arg.offset == 0);
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(ring_of_the_parent)

static int in_memory_cgroup(int device)
{
	struct actmem_ioctl_range arg = range_of(0, 8);
	int fd = create_lazy(device, 12);
	struct io_uring ring;
	long before;

	CHECK(fd >= 0);
	CHECK(!enter_cgroup());
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	before = cgroup_bytes();
	CHECK(ring_populate(&ring, fd, &arg) == 0);
	CHECK(cgroup_pages_since(before) == 8);
	CHECK(command(&ring, fd, ACTMEM_IOC_DISCARD, &arg) == 0);
	CHECK(cgroup_pages_since(before) == 0);
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

static int in_cpuset_of_node_0(int device)
{
	size_t pages = node_memory(0, "MemTotal") / PAGE_BYTES;
	struct actmem_ioctl_range arg = range_of(0, 4);
	int fd = create_lazy(device, pages);
	struct io_uring ring;

	CHECK(fd >= 0);
	CHECK(!enter_cgroup());
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	CHECK(ring_populate(&ring, fd, &arg) == 0);
	CHECK(number_in(SYSFS "/node0/region_bytes") == 4 * (long)PAGE_BYTES);
	/* Not even when that is all there is. */
	arg = range_of(0, pages);
	CHECK(ring_populate(&ring, fd, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_NODE_FULL && arg.why.node == 0);
	CHECK(number_in(SYSFS "/node1/region_bytes") == 0);
	CHECK((size_t)number_in(SYSFS "/node0/region_bytes") == allocated_bytes(fd));
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

FIXTURE(cgroup)
{
	int device;
};

FIXTURE_VARIANT(cgroup)
{
	const char *controller;
	int (*function)(int device);
};

FIXTURE_VARIANT_ADD(cgroup, memory)
{
	.controller = "+memory",
	.function = in_memory_cgroup,
};

FIXTURE_VARIANT_ADD(cgroup, cpuset)
{
	.controller = "+cpuset",
	.function = in_cpuset_of_node_0,
};

FIXTURE_SETUP(cgroup)
{
	self->device = open_device();
	ASSERT_LE(0, self->device);
	ASSERT_EQ(0, make_cgroup(variant->controller));
	if (!access(CGROUP "/cpuset.mems", W_OK))
		ASSERT_EQ(0, put(CGROUP "/cpuset.mems", "0"));
}

FIXTURE_TEARDOWN(cgroup)
{
	close(self->device);
	EXPECT_EQ(0, remove_cgroup());
	wait_until_nothing_is_left();
}

/* A worker's pages are those of the task that it works for. */
TEST_F(cgroup, is_that_of_the_issuer)
{
	EXPECT_EQ(0, as_user(0, variant->function, self->device));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
