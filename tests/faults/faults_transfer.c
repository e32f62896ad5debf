/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Calls of the transfer queue, made to fail. What a ring is to transfer is changed
 * between the library and the kernel, and what has come of it on the way back.
 */
#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#include "../../uapi/actmem.h"
#include "faults.h"
#include "wrap.h"

#define DIRECT_UNIT	4096U

static pthread_mutex_t choice = PTHREAD_MUTEX_INITIALIZER;
static unsigned int before_first, left;
static atomic_int result_instead;
static atomic_bool shortened;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t let_go = PTHREAD_COND_INITIALIZER;
static bool is_held;
static unsigned int held_count;

void fail_transfers(unsigned int first, unsigned int count, int result)
{
	pthread_mutex_lock(&choice);
	before_first = first ? first - 1 : 0;
	left = count;
	result_instead = result;
	pthread_mutex_unlock(&choice);
}

void shorten_transfers(bool shorten)
{
	shortened = shorten;
}

void hold_transfers(bool hold)
{
	pthread_mutex_lock(&gate);
	is_held = hold;
	pthread_cond_broadcast(&let_go);
	pthread_mutex_unlock(&gate);
}

static void pass_gate(void)
{
	pthread_mutex_lock(&gate);
	held_count++;
	while (is_held)
		pthread_cond_wait(&let_go, &gate);
	held_count--;
	pthread_mutex_unlock(&gate);
}

unsigned int held_transfers(void)
{
	unsigned int count;

	pthread_mutex_lock(&gate);
	count = held_count;
	pthread_mutex_unlock(&gate);
	return count;
}

/* Whether this transfer is one of those. */
static bool is_chosen(void)
{
	bool is_one;

	pthread_mutex_lock(&choice);
	is_one = left && !before_first;
	if (is_one)
		left--;
	else if (left)
		before_first--;
	pthread_mutex_unlock(&choice);
	return is_one;
}

static size_t short_length(size_t length)
{
	if (!shortened || length <= DIRECT_UNIT)
		return length;
	return (length / 2 + DIRECT_UNIT - 1) / DIRECT_UNIT * DIRECT_UNIT;
}

static ssize_t transfer(ssize_t (*call)(int fd, const struct iovec *memory, int count,
					off_t offset, int flags),
			int fd, const struct iovec *memory, off_t offset, int flags)
{
	struct iovec less = { memory->iov_base, short_length(memory->iov_len) };
	ssize_t result;

	pass_gate();
	if (!is_chosen())
		return call(fd, &less, 1, offset, flags);
	if (result_instead < 0) {
		errno = -result_instead;
		return -1;
	}
	result = call(fd, &less, 1, offset, flags);
	return result < 0 ? result : result_instead;
}

WRAP(ssize_t, preadv2, (int fd, const struct iovec *memory, int count, off_t offset, int flags))
{
	return transfer(__real_preadv2, fd, memory, offset, flags);
}

WRAP(ssize_t, pwritev2, (int fd, const struct iovec *memory, int count, off_t offset, int flags))
{
	return transfer(__real_pwritev2, fd, memory, offset, flags);
}

static void (*_Atomic before_next_checksum)(void);

void before_checksum(void (*meanwhile)(void))
{
	before_next_checksum = meanwhile;
}

WRAP(uint64_t, checksum, (const void *memory, uint64_t bytes))
{
	void (*meanwhile)(void) = atomic_exchange(&before_next_checksum, NULL);

	if (meanwhile)
		meanwhile();
	return __real_checksum(memory, bytes);
}

WRAP_PLAIN(int, eventfd, (unsigned int value, int flags), (value, flags), -1, EMFILE)

WRAP(int, pthread_create, (pthread_t *thread, const pthread_attr_t *attributes,
			   void *(*body)(void *), void *argument))
{
	return fails("pthread_create", EAGAIN) ? errno :
	       __real_pthread_create(thread, attributes, body, argument);
}

WRAP_PLAIN(char *, strdup, (const char *text), (text), NULL, ENOMEM)

WRAP(int, io_uring_queue_init_params, (unsigned int entries, struct io_uring *ring,
				       struct io_uring_params *params))
{
	return fails("io_uring_setup", ENOMEM) ? -errno :
	       __real_io_uring_queue_init_params(entries, ring, params);
}

WRAP(int, io_uring_ring_dontfork, (struct io_uring *ring))
{
	return fails("io_uring_ring_dontfork", ENOMEM) ? -errno :
	       __real_io_uring_ring_dontfork(ring);
}

WRAP(int, io_uring_register_buffers_sparse, (struct io_uring *ring, unsigned int count))
{
	return fails("register_buffers_sparse", ENOMEM) ? -errno :
	       __real_io_uring_register_buffers_sparse(ring, count);
}

WRAP(int, io_uring_register_files_sparse, (struct io_uring *ring, unsigned int count))
{
	return fails("register_files_sparse", EMFILE) ? -errno :
	       __real_io_uring_register_files_sparse(ring, count);
}

/* Taking something out of a table never fails. */
WRAP(int, io_uring_register_buffers_update_tag, (struct io_uring *ring, unsigned int slot,
						 const struct iovec *memory, const __u64 *tags,
						 unsigned int count))
{
	if (memory->iov_base)
		be_slow("register_buffer");
	return memory->iov_base && fails("register_buffer", ENOMEM) ? -errno :
	       __real_io_uring_register_buffers_update_tag(ring, slot, memory, tags, count);
}

WRAP(int, io_uring_register_files_update, (struct io_uring *ring, unsigned int slot,
					   const int *files, unsigned int count))
{
	return *files >= 0 && fails("register_file", ENOMEM) ? -errno :
	       __real_io_uring_register_files_update(ring, slot, files, count);
}

/* Files are registered, unlike the eventfd that the library polls. */
static bool is_transfer(const struct io_uring_sqe *sqe)
{
	return sqe->flags & IOSQE_FIXED_FILE;
}

static atomic_bool hangs;

void hang_transfers(bool hang)
{
	hangs = hang;
}

/* A wait for what never comes. */
static void hang_instead(struct io_uring_sqe *sqe)
{
	static int never = -1;
	__u64 data = sqe->user_data;

	if (never < 0)
		never = __real_eventfd(0, EFD_CLOEXEC);
	/* Before liburing 2.8 preparing it cleared the flags; since then having it does. */
	*sqe = (struct io_uring_sqe){ 0 };
	io_uring_prep_poll_add(sqe, never, POLLIN);
	sqe->user_data = data;
}

/* There is one ring at a time. */
static __u64 event;

/* Its result is where the kernel leaves that of what does nothing alone. */
static struct {
	__u64 data;
	int result;
} answered[ACTMEM_QUEUE_DEPTH_MAX];

/* Answered at once; what is left for the kernel is nothing. */
static void answer_with(struct io_uring_sqe *sqe, int result)
{
	__u64 data = sqe->user_data;
	unsigned int i = 0;

	*sqe = (struct io_uring_sqe){ 0 };
	io_uring_prep_nop(sqe);
	sqe->user_data = data;
	while (answered[i].data)
		i++;
	answered[i].data = data;
	answered[i].result = result;
}

static void take_answer(struct io_uring_cqe *cqe)
{
	unsigned int i;

	for (i = 0; i < ACTMEM_QUEUE_DEPTH_MAX; i++) {
		if (!cqe->user_data || answered[i].data != cqe->user_data)
			continue;
		answered[i].data = 0;
		cqe->res = answered[i].result;
	}
}

static void change_submissions(struct io_uring *ring)
{
	unsigned int i;

	for (i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
		struct io_uring_sqe *sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];

		if (is_transfer(sqe) && hangs)
			hang_instead(sqe);
		else if (is_transfer(sqe) && result_instead < 0 && is_chosen())
			answer_with(sqe, result_instead);
		else if (is_transfer(sqe))
			sqe->len = (unsigned int)short_length(sqe->len);
		else if (sqe->opcode == IORING_OP_POLL_ADD && sqe->len)
			event = sqe->user_data;
	}
}

static void change_completions(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	unsigned int head;

	io_uring_for_each_cqe(ring, head, cqe) {
		take_answer(cqe);
		if (cqe->user_data && !(cqe->user_data & 1) && cqe->user_data != event &&
		    result_instead >= 0 && is_chosen())
			cqe->res = result_instead;
	}
}

static void (*_Atomic before_next_submit)(void);

void before_submit(void (*meanwhile)(void))
{
	before_next_submit = meanwhile;
}

WRAP(int, io_uring_submit, (struct io_uring *ring))
{
	void (*meanwhile)(void) = atomic_exchange(&before_next_submit, NULL);

	if (meanwhile)
		meanwhile();
	change_submissions(ring);
	return __real_io_uring_submit(ring);
}

WRAP(int, io_uring_submit_and_wait_timeout, (struct io_uring *ring, struct io_uring_cqe **cqe,
					     unsigned int count, struct __kernel_timespec *timeout,
					     sigset_t *signals))
{
	int result;

	if (fails("io_uring_enter", EAGAIN))
		return -errno;
	change_submissions(ring);
	result = __real_io_uring_submit_and_wait_timeout(ring, cqe, count, timeout, signals);
	change_completions(ring);
	return result;
}
