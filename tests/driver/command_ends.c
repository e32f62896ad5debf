// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Every way in which a command can end before its work is done: by request, or
 * with its ring, thread, process or program. Nothing of it stays.
 *
 * A command can be held up for as long as a test wants: it is given an argument
 * in memory that userfaultfd(2) watches over, and waits there for its page.
 */
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "uring_test.h"

#define PAGES	4
#define MANY	64

/**
 * struct trap - a page of memory that holds up who reads it
 * @watcher: of userfaultfd(2)
 * @memory: the page
 */
struct trap {
	int watcher;
	void *memory;
};

static int set_trap(struct trap *trap)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	trap->watcher = syscall(SYS_userfaultfd, O_CLOEXEC);
	CHECK(trap->watcher >= 0);
	CHECK(!ioctl(trap->watcher, UFFDIO_API, &api));
	trap->memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(trap->memory != MAP_FAILED);
	range.range.start = (uintptr_t)trap->memory;
	range.range.len = 4096;
	CHECK(!ioctl(trap->watcher, UFFDIO_REGISTER, &range));
	return 0;
}

/* Waits until somebody is held up; whoever is notified meanwhile comes once more. */
static int wait_for_prey(struct trap *trap)
{
	struct uffd_msg message;

	CHECK(read(trap->watcher, &message, sizeof(message)) == sizeof(message));
	CHECK(message.event == UFFD_EVENT_PAGEFAULT);
	return 0;
}

/* Submits a command that is held up, and waits until it is. */
static int submit_into(struct trap *trap, struct io_uring *ring, int fd)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	prepare_command(sqe, fd, ACTMEM_IOC_POPULATE, trap->memory);
	/* For a worker, not the submitter, to be held up. */
	sqe->flags = IOSQE_ASYNC;
	CHECK(io_uring_submit(ring) == 1);
	return wait_for_prey(trap);
}

static int release_with(struct trap *trap, const struct actmem_ioctl_range *arg)
{
	char page[4096] __attribute__((aligned(4096))) = "";
	struct uffdio_copy copy = {
		.dst = (uintptr_t)trap->memory, .src = (uintptr_t)page, .len = sizeof(page),
	};

	memcpy(page, arg, sizeof(*arg));
	CHECK(!ioctl(trap->watcher, UFFDIO_COPY, &copy));
	close(trap->watcher);
	return 0;
}

/* The command alone holds the region, and with it the module. */
static int held_by_a_command(int device)
{
	const struct actmem_ioctl_range arg = range_of(0, PAGES);
	int fd = create_lazy(device, PAGES);
	struct io_uring ring;
	struct trap trap;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	CHECK(!set_trap(&trap));
	CHECK(!submit_into(&trap, &ring, fd));
	close(fd);
	close(device);
	CHECK(regions() == 1);
	CHECK(syscall(SYS_delete_module, "actmem", O_NONBLOCK) == -1);
	CHECK(errno == EAGAIN);
	CHECK(!release_with(&trap, &arg));
	CHECK(next_result(&ring) == 0);
	CHECK(((struct actmem_ioctl_range *)trap.memory)->done == PAGES * PAGE_BYTES);
	/* The ring is still there, the module need not be. */
	while (number_in("/sys/module/actmem/refcnt"))
		usleep(10000);
	CHECK(!syscall(SYS_delete_module, "actmem", O_NONBLOCK));
	io_uring_queue_exit(&ring);
	return 0;
}

TEST_F(uring, the_module_stays_while_a_command_runs)
{
	pid_t child = start_child(0, held_by_a_command, self->device);

	close(self->device);
	EXPECT_EQ(0, wait_for(child));
	EXPECT_EQ(0, load_module(MODULE));
	self->device = open_device();
}

/* Closes the ring while a command is held up in it; it ends by itself then. */
static int ring_is_closed(int device)
{
	const struct actmem_ioctl_range arg = range_of(0, PAGES);
	int fd = create_lazy(device, PAGES);
	struct actmem_ioctl_range *answer;
	struct io_uring ring;
	struct trap trap;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	CHECK(!set_trap(&trap));
	CHECK(!submit_into(&trap, &ring, fd));
	io_uring_queue_exit(&ring);
	CHECK(!wait_for_prey(&trap));
	CHECK(!release_with(&trap, &arg));
	answer = trap.memory;
	close(fd);
	while (regions())
		usleep(10000);
	/* It was cancelled before its first page, and said so. */
	CHECK(answer->done == 0 && answer->why.node == -1);
	return 0;
}

TEST_IN_CHILD(ring_is_closed)

static int cancelled_by_request(int device)
{
	const struct actmem_ioctl_range arg = range_of(0, PAGES);
	int fd = create_lazy(device, PAGES), canceller = -1, cancelled = -1, i;
	struct io_uring_sqe *sqe;
	struct io_uring ring;
	struct trap trap;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	CHECK(!set_trap(&trap));
	CHECK(!submit_into(&trap, &ring, fd));
	sqe = io_uring_get_sqe(&ring);
	io_uring_prep_cancel(sqe, trap.memory, 0);
	sqe->user_data = 1;
	CHECK(io_uring_submit(&ring) == 1);
	for (i = 0; i < 2; i++) {
		struct io_uring_cqe *cqe;

		CHECK(!io_uring_wait_cqe(&ring, &cqe));
		*(cqe->user_data == 1 ? &canceller : &cancelled) = cqe->res;
		io_uring_cqe_seen(&ring, cqe);
		/* The former comes at once. */
		if (!i) {
			CHECK(!wait_for_prey(&trap));
			CHECK(!release_with(&trap, &arg));
		}
	}
	/* It was running by then, which is what the errno says. */
	CHECK(canceller == -EALREADY);
	CHECK(cancelled == -EINTR);
	CHECK(allocated_bytes(fd) == 0);
	CHECK(((struct actmem_ioctl_range *)trap.memory)->done == 0);
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(cancelled_by_request)

/* In the midst of its work; how far it has come is told. */
static int cancelled_midway(int device)
{
	enum { LARGE = 256 };
	int fd = create_lazy(device, LARGE), result = 0, round, i;
	struct actmem_ioctl_range arg;
	struct io_uring ring;

	CHECK(fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	for (round = 0; !result; round++) {
		struct io_uring_sqe *sqe;

		CHECK(round < 100);
		arg = range_of(0, LARGE);
		CHECK(!call(fd, ACTMEM_IOC_DISCARD, &arg));
		arg.done = 0;
		prepare_command(io_uring_get_sqe(&ring), fd, ACTMEM_IOC_POPULATE, &arg);
		CHECK(io_uring_submit(&ring) == 1);
		while (!allocated_bytes(fd))
			;
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_cancel(sqe, &arg, 0);
		sqe->user_data = 1;
		CHECK(io_uring_submit(&ring) == 1);
		for (i = 0; i < 2; i++) {
			struct io_uring_cqe *cqe;

			CHECK(!io_uring_wait_cqe(&ring, &cqe));
			if (cqe->user_data != 1)
				result = cqe->res;
			io_uring_cqe_seen(&ring, cqe);
		}
		CHECK(result == 0 || result == -EINTR);
	}
	CHECK(arg.done < LARGE * PAGE_BYTES);
	CHECK(arg.done <= allocated_bytes(fd));
	CHECK(arg.why.reason == ACTMEM_WHY_NONE);
	io_uring_queue_exit(&ring);
	close(fd);
	return 0;
}

TEST_IN_CHILD(cancelled_midway)

struct issuer {
	struct io_uring *ring;
	struct trap *trap;
	int fd;
	pthread_barrier_t issued;
};

static void *issue(void *context)
{
	struct issuer *issuer = context;
	int line = submit_into(issuer->trap, issuer->ring, issuer->fd);

	pthread_barrier_wait(&issuer->issued);
	return (void *)(long)line;
}

/* The thread that issued a command ends, and waits for it; process and ring stay. */
static int thread_ends(int device)
{
	const struct actmem_ioctl_range arg = range_of(0, PAGES);
	struct issuer issuer = { .fd = create_lazy(device, PAGES) };
	struct io_uring ring;
	struct trap trap;
	pthread_t thread;
	void *line;

	CHECK(issuer.fd >= 0);
	CHECK(!io_uring_queue_init(QUEUE_ENTRIES, &ring, 0));
	CHECK(!set_trap(&trap));
	issuer.ring = &ring;
	issuer.trap = &trap;
	CHECK(!pthread_barrier_init(&issuer.issued, NULL, 2));
	CHECK(!pthread_create(&thread, NULL, issue, &issuer));
	pthread_barrier_wait(&issuer.issued);
	CHECK(!wait_for_prey(&trap));
	CHECK(!release_with(&trap, &arg));
	CHECK(!pthread_join(thread, &line) && !line);
	CHECK(next_result(&ring) == -EINTR);
	CHECK(allocated_bytes(issuer.fd) == 0);
	io_uring_queue_exit(&ring);
	close(issuer.fd);
	return 0;
}

TEST_IN_CHILD(thread_ends)

/* A process that dies with its commands: some run, some wait, one is held up. */
static void die_at_work(int device, bool hold_one)
{
	static struct actmem_ioctl_range args[MANY];
	int fd = create_lazy(device, MANY), i;
	struct io_uring ring;
	struct trap trap;

	if (fd < 0 || io_uring_queue_init(MANY, &ring, 0) || set_trap(&trap))
		_exit(1);
	if (hold_one && submit_into(&trap, &ring, fd))
		_exit(2);
	for (i = 0; i < MANY; i++) {
		args[i] = range_of(i, 1);
		prepare_command(io_uring_get_sqe(&ring), fd, ACTMEM_IOC_POPULATE, &args[i]);
	}
	if (io_uring_submit(&ring) != MANY)
		_exit(3);
	raise(SIGKILL);
}

TEST_F(uring, killed_with_commands_in_flight)
{
	int round;

	for (round = 0; round < 10; round++) {
		pid_t child = fork();
		int status;

		if (!child)
			die_at_work(self->device, round & 1);
		ASSERT_EQ(child, waitpid(child, &status, 0));
		ASSERT_TRUE(WIFSIGNALED(status));
		wait_until_nothing_is_left();
	}
}

static void *exit_soon(void *context)
{
	usleep(20000);
	_exit(42);
}

/* The same by its own will, while others of its threads submit. */
TEST_F(uring, exit_with_commands_in_flight)
{
	static struct actmem_ioctl_range args[2];
	struct io_uring ring;
	pthread_t thread;
	int round, fd;

	for (round = 0; round < 5; round++) {
		pid_t child = fork();

		if (!child) {
			fd = create_lazy(self->device, PAGES);
			if (io_uring_queue_init(QUEUE_ENTRIES, &ring, 0) ||
			    pthread_create(&thread, NULL, exit_soon, NULL))
				_exit(1);
			args[0] = range_of(0, PAGES);
			args[1] = range_of(0, PAGES);
			while (!command(&ring, fd, ACTMEM_IOC_POPULATE, &args[0]) &&
			       !command(&ring, fd, ACTMEM_IOC_DISCARD, &args[1]))
				;
			pause();
		}
		EXPECT_EQ(42, wait_for(child));
		wait_until_nothing_is_left();
	}
}

/* A program that is executed waits for the commands of the one before. */
TEST_F(uring, exec_with_commands_in_flight)
{
	static struct actmem_ioctl_range args[MANY];
	pid_t child = fork();

	if (!child) {
		int fd = create_lazy(self->device, MANY), i;
		struct io_uring ring;

		if (fd < 0 || io_uring_queue_init(MANY, &ring, 0))
			_exit(1);
		for (i = 0; i < MANY; i++) {
			args[i] = range_of(i, 1);
			prepare_command(io_uring_get_sqe(&ring), fd, ACTMEM_IOC_POPULATE, &args[i]);
		}
		if (io_uring_submit(&ring) != MANY)
			_exit(2);
		setenv("ACTMEM_TEST_EXECUTED", "1", 1);
		execl("/proc/self/exe", "command_ends", NULL);
		_exit(3);
	}
	EXPECT_EQ(43, wait_for(child));
}

__attribute__((constructor))
static void end_what_was_executed(void)
{
	if (getenv("ACTMEM_TEST_EXECUTED"))
		_exit(43);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
