// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Where the pages of a lazy region come from: from where the policy says, within
 * the limits and the cpuset of who touches them. A page that cannot be had is
 * SIGBUS to who touches it and EFAULT to system calls.
 */
#include <setjmp.h>
#include <signal.h>

#include "nodes_fixture.h"
#include "pool_test.h"

#define PAGES	6
#define LENGTH	(PAGES * PAGE_BYTES)

/* Given to tests of one process after the other: what the handler needs. */
static struct {
	sigjmp_buf leave;
	volatile sig_atomic_t count;
	void *volatile address;
	volatile int code;
	int fd;			/* whose first page to give back, -1: none */
} bus_error;

static void on_bus_error(int number, siginfo_t *details, void *context)
{
	bus_error.count++;
	bus_error.address = details->si_addr;
	bus_error.code = details->si_code;
	if (bus_error.fd < 0 || discard(bus_error.fd, 0, 1))
		siglongjmp(bus_error.leave, 1);
	/* There is room now: what was interrupted goes on. */
}

static void catch_bus_errors(int fd)
{
	struct sigaction action = { .sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO };

	sigaction(SIGBUS, &action, NULL);
	bus_error.count = 0;
	bus_error.fd = fd;
}

static bool touch(volatile char *byte)
{
	if (sigsetjmp(bus_error.leave, 1))
		return false;
	(*byte)++;
	return true;
}

static int beyond_memlock(int device)
{
	int fd = create_lazy(device, PAGES), zeros = open("/dev/zero", O_RDONLY);
	char *memory = map(fd, PAGES);
	struct actmem_ioctl_range arg;

	CHECK(fd >= 0 && memory != MAP_FAILED && zeros >= 0);
	catch_bus_errors(-1);
	CHECK(touch(memory) && touch(memory + PAGE_BYTES));
	CHECK(!touch(memory + 2 * PAGE_BYTES + 4096));
	CHECK(bus_error.count == 1 && bus_error.code == BUS_ADRERR);
	CHECK(bus_error.address == memory + 2 * PAGE_BYTES + 4096);
	CHECK(read(zeros, memory + 3 * PAGE_BYTES, 8) == -1 && errno == EFAULT);
	CHECK(madvise(memory, LENGTH, MADV_POPULATE_WRITE) && errno == EFAULT);
	CHECK(bus_error.count == 1);
	CHECK(pages_held(fd) == 2 && demand_faults(fd) == 2);

	/* Pages that are there stay, and nothing that is missing is begun with. */
	CHECK(change_range(fd, ACTMEM_IOC_POPULATE, 0, PAGES, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK && arg.why.node == -1);
	CHECK(arg.why.wanted == (PAGES - 2) * PAGE_BYTES && arg.why.available == 0);
	CHECK(arg.done == 2 * PAGE_BYTES && pages_held(fd) == 2);

	/* The handler makes room, and the process goes on. */
	bus_error.fd = fd;
	CHECK(touch(memory + 2 * PAGE_BYTES));
	CHECK(bus_error.count == 2 && memory[2 * PAGE_BYTES] == 1 && memory[PAGE_BYTES] == 1);
	CHECK(pages_held(fd) == 2 && demand_faults(fd) == 3);
	CHECK(change_range(fd, ACTMEM_IOC_POPULATE, 0, 1, &arg) == -ENOMEM && !arg.done);
	CHECK(!discard(fd, 0, PAGES));
	CHECK(!populate(fd, 4, 2));
	return 0;
}

TEST_F(driver, pages_beyond_the_users_limit)
{
	ASSERT_EQ(0, set_memlock(2 * PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, beyond_memlock, self->device));
	/* All of it has been given back to the user. */
	EXPECT_EQ(0, as_user(USER, beyond_memlock, self->device));
}

static int limit_freed_by_a_lingering_page(int device)
{
	int fd = create_lazy(device, 2), gone = create_pages(device, 1), ends[2];
	char *memory = map(fd, 2), *held = map_and_touch(gone, 1);

	CHECK(memory != MAP_FAILED && held != MAP_FAILED);
	CHECK(!hold(held, ends));
	munmap(held, PAGE_BYTES);
	close(gone);
	catch_bus_errors(-1);
	CHECK(!touch(memory) && populate(fd, 0, 1) == -ENOMEM);
	let_go(ends);
	CHECK(touch(memory));
	CHECK(!discard(fd, 0, 1) && !populate(fd, 0, 1));
	return 0;
}

TEST_F(driver, a_page_let_go_of_no_longer_counts)
{
	ASSERT_EQ(0, set_memlock(PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, limit_freed_by_a_lingering_page, self->device));
}

static int beyond_memory_cgroup(int device)
{
	int fd = create_lazy(device, 64), i;
	struct actmem_ioctl_range arg;
	char *memory = mapped(map(fd, 64));

	CHECK(!enter_cgroup());
	CHECK(!put(CGROUP "/memory.max", "32M"));
	catch_bus_errors(-1);
	for (i = 0; i < 64 && touch(memory + i * PAGE_BYTES); i++)
		;
	CHECK(i > 4 && i < 16 && bus_error.count == 1);
	CHECK(pages_held(fd) == i && demand_faults(fd) == i);
	CHECK(change_range(fd, ACTMEM_IOC_POPULATE, 0, 64, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMCG);
	CHECK(arg.done == pages_held(fd) * PAGE_BYTES);
	CHECK(!discard(fd, 0, 64));
	CHECK(touch(memory));
	return 0;
}

TEST_F(driver, pages_beyond_the_memory_cgroups_limit)
{
	ASSERT_EQ(0, make_cgroup("+memory"));
	EXPECT_EQ(0, as_user(0, beyond_memory_cgroup, self->device));
	EXPECT_EQ(0, remove_cgroup());
}

static int create_lazy_on(int device, size_t pages, uint32_t policy, uint64_t nodes)
{
	struct actmem_ioctl_create arg = region_on(pages, policy, nodes);

	arg.flags = LAZY;
	return create(device, &arg);
}

/* The nodes of the pages when they are touched or populated out of order. */
static void place(int fd, bool touched, char where[PAGES + 1])
{
	static const int order[PAGES] = { 4, 1, 5, 0, 3, 2 };
	char *memory = map(fd, PAGES);
	int i;

	strcpy(where, "");
	for (i = 0; i < PAGES && memory != MAP_FAILED; i++) {
		if (!touched && populate(fd, order[i], 1))
			break;
		where[order[i]] = '0' + node_of(memory + order[i] * PAGE_BYTES);
	}
	where[i] = 0;
	munmap(memory, LENGTH);
}

TEST_F(placement, pages_come_by_the_policy)
{
	const uint64_t all = (1ULL << self->nodes) - 1;
	const struct {
		uint32_t policy;
		uint64_t mask;
		uint64_t nodes;	/* that take turns */
	} cases[] = {
		{ ACTMEM_POLICY_BIND, 2, 2 },
		{ ACTMEM_POLICY_PREFERRED, 2, 2 },
		{ ACTMEM_POLICY_INTERLEAVE, 3, 3 },
		{ ACTMEM_POLICY_INTERLEAVE, 0, all },
	};
	char where[PAGES + 1], wanted[PAGES + 1] = "";
	int touched, fd, i, node;
	size_t n;

	for (n = 0; n < ARRAY_SIZE(cases); n++) {
		for (i = 0, node = -1; i < PAGES; i++) {
			do {
				node = (node + 1) % 64;
			} while (!(cases[n].nodes >> node & 1));
			wanted[i] = '0' + node;
		}
		for (touched = 0; touched < 2; touched++) {
			fd = create_lazy_on(self->device, PAGES, cases[n].policy, cases[n].mask);
			place(fd, touched, where);
			EXPECT_STREQ(wanted, where)
				TH_LOG("case %zu", n);
			close(fd);
		}
	}
}

TEST_F(placement, a_full_node)
{
	/* Not quite absurd: all that the node has, some of which is in use. */
	size_t pages = node_memory(1, "MemTotal") / PAGE_BYTES;
	size_t unused = node_memory(1, "MemFree");
	int fd = must(create_lazy_on(self->device, pages, ACTMEM_POLICY_BIND, 2));
	struct actmem_ioctl_range arg;

	EXPECT_EQ(-ENOMEM, change_range(fd, ACTMEM_IOC_POPULATE, 0, pages, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_EQ(1, arg.why.node);
	EXPECT_EQ(pages * PAGE_BYTES, arg.why.wanted);
	EXPECT_LE(arg.why.movable, zones_memory(1, "cma"));
	EXPECT_LT(unused / 2, arg.why.available);
	EXPECT_LT(arg.why.available, arg.why.wanted);
	EXPECT_LT(0, arg.done);
	/* As several processors make them, some may lie behind the first that is missing. */
	EXPECT_LE(arg.done, arg.why.available);
	/* Those that it got, it keeps. */
	EXPECT_EQ((long)(arg.why.available / PAGE_BYTES), pages_held(fd));
	EXPECT_EQ(0, change_range(fd, ACTMEM_IOC_DISCARD, 0, pages, &arg));
	EXPECT_EQ(pages * PAGE_BYTES, arg.done);
	EXPECT_EQ(0, pages_held(fd));
	EXPECT_LT(unused / 10 * 9, node_memory(1, "MemFree"));
	close(fd);
}

/* A region that was made outside the cpuset, on all nodes and on node 1. */
static int in_cpuset_of_node_0(int device)
{
	int striped = create_lazy_on(device, 4, ACTMEM_POLICY_INTERLEAVE, 0);
	int bound = create_lazy_on(device, 4, ACTMEM_POLICY_BIND, 2);
	int preferred = create_lazy_on(device, 4, ACTMEM_POLICY_PREFERRED, 2);
	char *memory = map(bound, 4), *stripes = map(striped, 4), *other = map(preferred, 4);
	struct actmem_ioctl_range arg;

	CHECK(memory != MAP_FAILED && stripes != MAP_FAILED && other != MAP_FAILED);
	CHECK(!populate(bound, 3, 1));
	CHECK(!enter_cgroup());
	catch_bus_errors(-1);
	CHECK(!touch(memory) && bus_error.count == 1);
	CHECK(change_range(bound, ACTMEM_IOC_POPULATE, 0, 4, &arg) == -EPERM && !arg.done);
	CHECK(arg.why.reason == ACTMEM_WHY_CPUSET && arg.why.node == 1);
	/* Pages that are there may be used. */
	CHECK(touch(memory + 3 * PAGE_BYTES));
	CHECK(touch(stripes) && !touch(stripes + PAGE_BYTES));
	CHECK(change_range(striped, ACTMEM_IOC_POPULATE, 0, 4, &arg) == -EPERM);
	CHECK(arg.why.node == 1 && arg.done == PAGE_BYTES);
	/* Another node is for when that one is full. */
	CHECK(!touch(other));
	CHECK(change_range(preferred, ACTMEM_IOC_POPULATE, 0, 4, &arg) == -EPERM && !arg.done);
	CHECK(arg.why.reason == ACTMEM_WHY_CPUSET && arg.why.node == 1);
	CHECK(pages_held(preferred) == 0);
	return 0;
}

TEST_F(placement, the_cpuset_of_who_touches_is_obeyed)
{
	ASSERT_EQ(0, make_cgroup("+cpuset"));
	ASSERT_EQ(0, put(CGROUP "/cpuset.mems", "0"));
	EXPECT_EQ(0, as_user(0, in_cpuset_of_node_0, self->device));
	/* A pool of that node is no way around it. */
	fill_pool(1, 8);
	EXPECT_EQ(0, as_user(0, in_cpuset_of_node_0, self->device));
	ASSERT_EQ(0, set_pool(1, 0));
	EXPECT_EQ(0, remove_cgroup());
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
