// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A dmem.max that falls below the usage. Since Linux 7.3, the kernel then asks the driver for
 * pages. The regions of the cgroup get a surplus, and the write of dmem.max waits for their owners.
 */
#include <poll.h>
#include <time.h>

#include "dmem_test.h"

/* Processes that have their pages; shared by all processes. */
static int *started;

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns the surplus in pages, or -1 if it differs from what poll(2) reports. */
static long surplus(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLPRI };
	struct actmem_ioctl_info now;

	if (info(fd, 0, &now) || poll(&poll_fd, 1, 0) != !!now.surplus_bytes)
		return -1;
	if (now.surplus_reason != (now.surplus_bytes ? ACTMEM_WHY_DMEM : ACTMEM_WHY_NONE))
		return -1;
	return (long)(now.surplus_bytes / PAGE_BYTES);
}

/* Makes a region in the cgroup, whose first page has a mark. */
static int hold_pages(int device, const char *cgroup, char **memory)
{
	int fd;

	if (enter(cgroup))
		return -1;
	fd = must(create_on(device, NODE, LIMIT));
	*memory = mapped(map(fd, LIMIT));
	**memory = 'a';
	__atomic_add_fetch(started, 1, __ATOMIC_SEQ_CST);
	return fd;
}

/* Gives pages back whenever the region has a surplus, and at last checks the first one. */
static int follow(int device, const char *cgroup)
{
	struct pollfd poll_fd = { .events = POLLPRI };
	long kept = LIMIT, pages;
	char *memory;

	poll_fd.fd = hold_pages(device, cgroup, &memory);
	CHECK(poll_fd.fd >= 0);
	while (kept > 1) {
		CHECK(poll(&poll_fd, 1, 60000) == 1 && poll_fd.revents == POLLPRI);
		pages = surplus(poll_fd.fd);
		CHECK(pages >= 0 && pages <= kept);
		CHECK(!pages || !discard_patiently(poll_fd.fd, kept - pages, pages));
		kept -= pages;
		CHECK(*memory == 'a');
	}
	return 0;
}

static int follow_in_job(int device)
{
	return follow(device, JOB);
}

static int follow_in_other(int device)
{
	return follow(device, OTHER);
}

static int keep_in_job(int device)
{
	char *memory;

	CHECK(hold_pages(device, JOB, &memory) >= 0);
	return pause();
}

static int is_at_the_limit(int device)
{
	CHECK(!enter(JOB));
	CHECK(create_on(device, NODE, 1) == -EDQUOT);
	CHECK(!enter(OTHER));
	CHECK(create_on(device, NODE, 1) >= 0);
	return 0;
}

/* Allocates and frees pages all the time. */
static int churn_in_other(int device)
{
	char *memory;
	int fd = hold_pages(device, OTHER, &memory);

	for (;;) {
		CHECK(!discard_patiently(fd, 1, LIMIT - 1));
		CHECK(!populate(fd, 1, LIMIT - 1));
	}
}

static pid_t start(int (*function)(int), int device)
{
	pid_t child;
	int before;

	if (!started)
		started = mapped(mmap(NULL, sizeof(*started), PROT_READ | PROT_WRITE,
				    MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	before = __atomic_load_n(started, __ATOMIC_SEQ_CST);
	child = start_child(0, function, device);
	while (__atomic_load_n(started, __ATOMIC_SEQ_CST) == before)
		usleep(1000);
	return child;
}

/* Opens the region that @child has made. */
static int open_of(pid_t child)
{
	struct actmem_ioctl_info now;
	char path[64];
	int fd, i;

	for (i = 0; i < 64; i++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", child, i);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd >= 0 && !info(fd, 0, &now) && now.pid == child)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* The write of dmem.max returns when the process has given the pages back. */
TEST_F(dmem, a_process_returns_pages)
{
	pid_t child = start(follow_in_job, self->device);
	int fd = must(open_of(child));

	EXPECT_EQ(0, surplus(fd));
	EXPECT_EQ(0, set_most(JOB, NODE, LIMIT));
	EXPECT_EQ(0, surplus(fd));
	EXPECT_EQ(LIMIT, charged(JOB, NODE));
	EXPECT_EQ(0, set_most(JOB, NODE, LIMIT / 2));
	EXPECT_EQ(LIMIT / 2, charged(JOB, NODE));
	EXPECT_EQ(LIMIT / 2, pages_held(fd));
	EXPECT_EQ(0, surplus(fd));
	/* A limit of one page is all that the process follows. */
	EXPECT_EQ(0, set_most(CGROUP, NODE, 1));
	EXPECT_EQ(0, wait_for(child));
	EXPECT_EQ(1, pages_held(fd));
	close(fd);
	EXPECT_EQ(0, set_most(CGROUP, NODE, -1));
}

/* Each process returns its share. A limit of one cgroup does not concern the other one. */
TEST_F(dmem, two_processes_share_the_excess)
{
	pid_t one = start(follow_in_job, self->device);
	pid_t two = start(follow_in_other, self->device);

	EXPECT_EQ(0, set_most(CGROUP, NODE, LIMIT));
	EXPECT_GE(LIMIT, charged(CGROUP, NODE));
	EXPECT_GT(LIMIT, charged(JOB, NODE));
	EXPECT_GT(LIMIT, charged(OTHER, NODE));
	EXPECT_LT(1, charged(JOB, NODE));
	EXPECT_LT(1, charged(OTHER, NODE));
	EXPECT_EQ(0, set_most(CGROUP, NODE, -1));
	EXPECT_EQ(0, set_most(JOB, NODE, 1));
	EXPECT_EQ(0, wait_for(one));
	EXPECT_LT(1, charged(OTHER, NODE));
	EXPECT_EQ(0, set_most(OTHER, NODE, 1));
	EXPECT_EQ(0, wait_for(two));
}

/* The limit holds for new pages, the write ends, and so does the request, later. */
TEST_F(dmem, a_process_that_keeps_its_pages)
{
	pid_t keeper = start(keep_in_job, self->device);
	int fd = must(open_of(keeper));

	EXPECT_EQ(0, set_most(JOB, NODE, LIMIT - 3));
	EXPECT_EQ(LIMIT, charged(JOB, NODE));
	EXPECT_EQ(3, surplus(fd));
	/* Pages that the process returns after the write count as well. */
	EXPECT_EQ(0, discard(fd, LIMIT - 1, 1));
	EXPECT_EQ(2, surplus(fd));
	EXPECT_EQ(LIMIT - 1, charged(JOB, NODE));
	EXPECT_EQ(0, as_user(0, is_at_the_limit, self->device));
	while (surplus(fd))
		usleep(100000);
	EXPECT_EQ(LIMIT - 1, pages_held(fd));
	EXPECT_EQ(0, kill_child(keeper));
	close(fd);
}

/* Pages that come back from elsewhere do not make the write wait for longer. */
TEST_F(dmem, another_cgroup_does_not_prolong_the_write)
{
	pid_t keeper = start(keep_in_job, self->device);
	pid_t other = start(churn_in_other, self->device);
	int fd = must(open_of(other));

	EXPECT_EQ(0, set_most(JOB, NODE, LIMIT / 2));
	EXPECT_EQ(LIMIT, charged(JOB, NODE));
	EXPECT_EQ(0, surplus(fd));
	close(fd);
	EXPECT_EQ(0, kill_child(other));
	EXPECT_EQ(0, kill_child(keeper));
}

/* A process returns no pages that dmem.min protects. */
TEST_F(dmem, protected_pages_stay)
{
	pid_t keeper = start(keep_in_job, self->device);
	pid_t other = start(follow_in_other, self->device);
	int fd = must(open_of(keeper));
	char text[64];

	snprintf(text, sizeof(text), "actmem/node%d %zu", NODE, LIMIT * PAGE_BYTES);
	EXPECT_EQ(0, put(JOB "/dmem.min", text));
	EXPECT_EQ(0, set_most(CGROUP, NODE, LIMIT + 1));
	EXPECT_EQ(0, surplus(fd));
	EXPECT_EQ(0, wait_for(other));
	EXPECT_EQ(LIMIT, charged(CGROUP, NODE));
	EXPECT_EQ(0, set_most(CGROUP, NODE, -1));
	close(fd);
	EXPECT_EQ(0, kill_child(keeper));
}

/* The writer does not use the driver. */
static int lower(int device)
{
	close(device);
	__atomic_add_fetch(started, 1, __ATOMIC_SEQ_CST);
	return set_most(JOB, NODE, 0) ? __LINE__ : 0;
}

/* Compared with a write that waits as long as it can. */
TEST_F(dmem, a_writer_that_is_killed)
{
	pid_t keeper = start(keep_in_job, self->device);
	long whole = now_ms(), rest;
	pid_t writer;

	EXPECT_EQ(0, wait_for(start(lower, self->device)));
	whole = now_ms() - whole;
	writer = start(lower, self->device);
	usleep(20000);
	rest = now_ms();
	EXPECT_EQ(0, kill_child(writer));
	rest = now_ms() - rest;
	EXPECT_GT(whole / 2, rest);
	EXPECT_EQ(LIMIT, charged(JOB, NODE));
	EXPECT_EQ(0, kill_child(keeper));
}

/* The module can go while a task waits for pages that have come back. */
TEST_F(dmem, the_module_goes_during_a_write)
{
	pid_t keeper, writer;
	int round;

	EXPECT_EQ(0, set_pool(NODE, 0));
	for (round = 0; round < 5; round++) {
		keeper = start(keep_in_job, self->device);
		writer = start(lower, self->device);
		usleep(30000);
		close(self->device);
		EXPECT_EQ(0, kill_child(keeper));
		EXPECT_EQ(0, unload_module("actmem"));
		EXPECT_EQ(0, wait_for(writer));
		ASSERT_EQ(0, load_module(MODULE));
		self->device = open_device();
	}
	EXPECT_EQ(0, put("/proc/sys/vm/drop_caches", "3"));
	EXPECT_EQ(0, put("/proc/sys/vm/compact_memory", "1"));
	EXPECT_EQ(0, set_pool(NODE, FULL));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
