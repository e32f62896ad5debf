// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What the kernel's log says where no caller can be told: of a process that
 * gets SIGBUS, who it is, and who was short of what; of a pool that cannot be
 * filled. Once, however often it happens.
 */
#include <signal.h>
#include <sys/prctl.h>

#include "pool_test.h"
#include "trace_test.h"

#define PAGES	4
#define BURST	20
#define NAME	"of the night"
#define VICTIM	"a victim"

/* Opened by root, read by anybody. */
static int kernel_log;

FIXTURE(kernel_log)
{
	int device;
};

FIXTURE_SETUP(kernel_log)
{
	self->device = open_device();
	kernel_log = must(open_log());
}

FIXTURE_TEARDOWN(kernel_log)
{
	close(kernel_log);
	close(self->device);
}

/* A process that touches pages until one cannot be had; it must die of it. Its pid. */
static pid_t touch(int fd, size_t pages)
{
	pid_t child = fork();
	int status;

	if (!child) {
		char *memory = map(fd, pages);
		size_t i;

		prctl(PR_SET_NAME, VICTIM);
		for (i = 0; memory != MAP_FAILED && i < pages; i++)
			memory[i * PAGE_BYTES] = 1;
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status) ||
	    WTERMSIG(status) != SIGBUS)
		return -1;
	return child;
}

/* The line of the first for whom there is one, as others may have had theirs just before. */
static int touch_until_told(int fd, size_t pages, const char *why)
{
	struct actmem_ioctl_info now;
	const char *line;
	pid_t victim;

	do {
		victim = touch(fd, pages);
		CHECK(victim > 0);
		line = read_log(kernel_log, "actmem: ");
		if (!line)
			usleep(50000);
	} while (!line);
	CHECK(!info(fd, 0, &now));
	if (strcmp(line, text("actmem: " VICTIM "[%d] gets SIGBUS, because a page cannot be allocated: region %llu '" NAME "', offset %llu: %s",
			      victim, now.id, now.allocated_bytes, why))) {
		fprintf(stderr, "# %s\n", line);
		return __LINE__;
	}
	return 0;
}

static int create_named(int device, int node, size_t pages)
{
	struct actmem_ioctl_create arg = region_on(pages, ACTMEM_POLICY_BIND, 1 << node);

	arg.flags = LAZY;
	strcpy(arg.name, NAME);
	return create(device, &arg);
}

static int with_little_locked_memory(int device)
{
	int fd = must(create_named(device, NODE, PAGES)), i;
	bool told_again;
	const char *why = "RLIMIT_MEMLOCK; raise it (ulimit -l) for the process that makes the region (error -12; user 1000, node -1: 0 bytes left of 2097152 wanted)";

	/*
	 * That was enough of it for now. If all these take so long that it is told once
	 * more meanwhile, then that is to be so.
	 */
	do {
		CHECK(!touch_until_told(fd, PAGES, why));
		for (i = 0; i < BURST; i++)
			CHECK(touch(fd, PAGES) > 0);
		told_again = false;
		while (read_log(kernel_log, "actmem"))
			told_again = true;
	} while (told_again);
	return 0;
}

TEST_F(kernel_log, who_may_not_lock_more)
{
	ASSERT_EQ(0, set_memlock(PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, with_little_locked_memory, self->device));
}

/* Told with the line after them. */
static int suppressed_lines(void)
{
	int log = must(open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC)), lines = -1;
	const char *line;

	while ((line = read_log(log, "map_fault_log: ")))
		sscanf(line, "map_fault_log: %d callbacks suppressed", &lines);
	close(log);
	return lines;
}

/* The first line since the burst of the test before. */
TEST_F(kernel_log, whose_node_is_full)
{
	int fd = must(create_named(self->device, NODE, node_memory(NODE, "MemTotal") / PAGE_BYTES));

	EXPECT_EQ(0, touch_until_told(fd, node_memory(NODE, "MemTotal") / PAGE_BYTES,
				      "the node has no huge page left; free memory there, or raise its pool_bytes (error -12; user 0, node 1: 0 bytes left of 2097152 wanted)"));
	EXPECT_LE(BURST, suppressed_lines());
	close(fd);
}

static int in_cgroup(int device)
{
	int fd = must(create_named(device, 0, 12));

	CHECK(!enter_cgroup());
	CHECK(!touch_until_told(fd, 12, "the memory cgroup's limit; raise its memory.max, or the node's pool_bytes (error -12; user 0, node -1: 0 bytes left of 2097152 wanted)"));
	return 0;
}

TEST_F(kernel_log, whose_memory_cgroup_is_full)
{
	ASSERT_EQ(0, make_cgroup("+memory"));
	ASSERT_EQ(0, put(CGROUP "/memory.max", "16M"));
	EXPECT_EQ(0, as_user(0, in_cgroup, self->device));
	EXPECT_EQ(0, remove_cgroup());
}

TEST_F(kernel_log, a_pool_that_cannot_be_filled)
{
	size_t pages = node_memory(NODE, "MemTotal") / PAGE_BYTES;
	size_t held, wanted;
	const char *line;

	ASSERT_EQ(0, set_pool(NODE, pages));
	line = read_log(kernel_log, "actmem: ");
	ASSERT_NE(NULL, line);
	ASSERT_EQ(2, sscanf(line, "actmem: the pool of node 1 has %zu bytes of %zu wanted: the node has no more free pages of 2 MiB; free memory, and write pool_bytes agai%*1[n]",
			    &held, &wanted));
	EXPECT_EQ(pages * PAGE_BYTES, wanted);
	EXPECT_EQ((long)held, number_in(SYSFS "/node%d/pool_bytes", NODE));
	EXPECT_GT(wanted, held);
	ASSERT_EQ(0, set_pool(NODE, 0));
	EXPECT_EQ(NULL, read_log(kernel_log, "actmem: "));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
