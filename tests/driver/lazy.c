// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Lazy regions: they hold nothing until they are touched, and then what was
 * touched, where the policy wants it, counted exactly. A page that cannot be
 * had is SIGBUS to who touches it and EFAULT to system calls.
 */
#include <linux/mman.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mount.h>

#include "driver_test.h"

#define PAGES	6
#define LENGTH	(PAGES * PAGE_BYTES)

FIXTURE(lazy)
{
	int device;
	int fd;
	char *memory;
};

FIXTURE_SETUP(lazy)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	ASSERT_EQ(0, regions());
	self->fd = create_lazy(self->device, PAGES);
	ASSERT_LE(0, self->fd);
	self->memory = map(self->fd, PAGES);
	ASSERT_NE(MAP_FAILED, self->memory);
}

FIXTURE_TEARDOWN(lazy)
{
	munmap(self->memory, LENGTH);
	close(self->fd);
	close(self->device);
	EXPECT_EQ(0, regions());
}

/* The sum of what fdinfo tells of the nodes, -1 if it does not tell. */
static long fdinfo_pages(int fd)
{
	char path[64], line[256];
	long sum = 0, bytes;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "actmem-node%*d: %ld", &bytes) == 1)
			sum += bytes;
	fclose(file);
	return sum / (long)PAGE_BYTES;
}

static long fdinfo_demand_faults(int fd)
{
	char path[64], line[256];
	long faults = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "actmem-demand-faults: %ld", &faults);
	if (file)
		fclose(file);
	return faults;
}

static long stat_pages(int fd)
{
	struct stat status;

	return fstat(fd, &status) ? -1 : (long)(status.st_blocks * 512 / PAGE_BYTES);
}

/* Whether everybody who can be asked says that so many pages are held. */
static bool holds(int fd, long pages)
{
	return pages_held(fd) == pages && fdinfo_pages(fd) == pages && stat_pages(fd) == pages &&
	       node_sum("region_bytes") == pages * (long)PAGE_BYTES;
}

TEST_F(lazy, holds_nothing_until_it_is_touched)
{
	struct actmem_ioctl_info now;
	struct stat status;

	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(LENGTH, now.length);
	EXPECT_EQ(0, now.mapped_bytes);
	EXPECT_EQ(0, now.demand_faults);
	EXPECT_TRUE(holds(self->fd, 0));
	ASSERT_EQ(0, fstat(self->fd, &status));
	EXPECT_EQ((off_t)LENGTH, status.st_size);

	EXPECT_EQ(0, self->memory[3 * PAGE_BYTES + 5]);
	EXPECT_TRUE(holds(self->fd, 1));
	self->memory[5 * PAGE_BYTES - 1] = 1;
	EXPECT_TRUE(holds(self->fd, 2));
	/* There already. */
	self->memory[3 * PAGE_BYTES + 4096] = 1;
	EXPECT_TRUE(holds(self->fd, 2));
	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(2, now.demand_faults);
	EXPECT_EQ(2, fdinfo_demand_faults(self->fd));
	EXPECT_EQ(2 * PAGE_BYTES, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
}

TEST_F(lazy, an_ordinary_region_has_no_demand_faults)
{
	int fd = create_pages(self->device, PAGES);
	char *memory = map_and_touch(fd, PAGES);

	ASSERT_NE(MAP_FAILED, memory);
	EXPECT_EQ(0, demand_faults(fd));
	EXPECT_EQ(PAGES, pages_held(fd));
	munmap(memory, LENGTH);
	close(fd);
}

TEST_F(lazy, is_mapped_by_huge_pages)
{
	size_t i;

	for (i = PAGES / 2; i < PAGES; i++)
		self->memory[i * PAGE_BYTES + 4096] = 1;
	EXPECT_EQ(LENGTH / 2, pmd_mapped(self->memory, LENGTH));
	EXPECT_EQ(0, populate(self->fd, 0, PAGES / 2));
	for (i = 0; i < PAGES / 2; i++)
		EXPECT_EQ(0, self->memory[i * PAGE_BYTES + 4096]);
	EXPECT_EQ(LENGTH, pmd_mapped(self->memory, LENGTH));
	EXPECT_EQ(PAGES / 2, demand_faults(self->fd));
}

struct toucher {
	char *memory;
	pthread_barrier_t *start;
};

static void *touch_all(void *context)
{
	struct toucher *toucher = context;
	size_t i;

	pthread_barrier_wait(toucher->start);
	for (i = 0; i < PAGES; i++)
		__atomic_fetch_add((int *)(toucher->memory + i * PAGE_BYTES), 1, __ATOMIC_RELAXED);
	return NULL;
}

TEST_F(lazy, threads_that_race_for_a_page_get_one)
{
	enum { THREADS = 4, ROUNDS = 20 };
	pthread_t threads[THREADS];
	struct toucher toucher;
	pthread_barrier_t start;
	int round, i;

	ASSERT_EQ(0, pthread_barrier_init(&start, NULL, THREADS));
	toucher = (struct toucher){ self->memory, &start };
	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < THREADS; i++)
			ASSERT_EQ(0, pthread_create(&threads[i], NULL, touch_all, &toucher));
		for (i = 0; i < THREADS; i++)
			ASSERT_EQ(0, pthread_join(threads[i], NULL));
		for (i = 0; i < PAGES; i++)
			EXPECT_EQ(THREADS, *(int *)(self->memory + i * PAGE_BYTES));
		EXPECT_EQ((round + 1) * PAGES, demand_faults(self->fd));
		EXPECT_TRUE(holds(self->fd, PAGES));
		EXPECT_EQ(LENGTH, pmd_mapped(self->memory, LENGTH));
		ASSERT_EQ(0, discard(self->fd, 0, PAGES));
		EXPECT_TRUE(holds(self->fd, 0));
	}
}

TEST_F(lazy, processes_share_what_each_of_them_touches)
{
	struct actmem_ioctl_create arg = region_of(2);
	char *memory;
	pid_t child;

	arg.flags = ACTMEM_CREATE_LAZY | ACTMEM_CREATE_INHERIT;
	ASSERT_LE(0, create(self->device, &arg));
	memory = map(arg.fd, 2);
	ASSERT_NE(MAP_FAILED, memory);
	memory[0] = 1;
	child = fork();
	if (!child) {
		if (memory[0] != 1 || memory[PAGE_BYTES])
			_exit(1);
		memory[PAGE_BYTES] = 2;
		_exit(0);
	}
	EXPECT_EQ(0, wait_for(child));
	EXPECT_EQ(2, memory[PAGE_BYTES]);
	EXPECT_EQ(2, demand_faults(arg.fd));
	munmap(memory, 2 * PAGE_BYTES);
	close(arg.fd);
}

TEST_F(lazy, advice_and_locks)
{
	char *memory = self->memory;

	/* None of these takes a page away, or makes one. */
	madvise(memory, LENGTH, MADV_WILLNEED);
	madvise(memory, LENGTH, MADV_COLLAPSE);
	madvise(memory, LENGTH, MADV_PAGEOUT);
	EXPECT_TRUE(holds(self->fd, 0));
	memory[0] = 7;
	EXPECT_EQ(0, madvise(memory, LENGTH, MADV_DONTNEED));
	EXPECT_NE(0, madvise(memory, LENGTH, MADV_FREE));
	madvise(memory, LENGTH, MADV_PAGEOUT);
	EXPECT_TRUE(holds(self->fd, 1));
	EXPECT_EQ(7, memory[0]);
	EXPECT_EQ(1, demand_faults(self->fd));
	/* But for this, which is to punch a hole. */
	EXPECT_EQ(0, madvise(memory, LENGTH, MADV_REMOVE));
	EXPECT_TRUE(holds(self->fd, 0));
	EXPECT_EQ(0, memory[0]);
	EXPECT_TRUE(holds(self->fd, 1));

	EXPECT_EQ(0, madvise(memory + PAGE_BYTES, PAGE_BYTES, MADV_POPULATE_READ));
	EXPECT_EQ(0, madvise(memory + 2 * PAGE_BYTES, PAGE_BYTES, MADV_POPULATE_WRITE));
	EXPECT_TRUE(holds(self->fd, 3));
	/* Marks nothing, as VM_DONTEXPAND is set, but has all pages allocated. */
	EXPECT_EQ(0, mlock(memory, LENGTH));
	EXPECT_TRUE(holds(self->fd, PAGES));
	EXPECT_EQ(PAGES + 1, demand_faults(self->fd));
	EXPECT_EQ(0, smaps_bytes(memory, LENGTH, "Locked"));
	EXPECT_EQ(0, discard(self->fd, 0, PAGES));
	EXPECT_TRUE(holds(self->fd, 0));
	EXPECT_EQ(0, memory[0]);
	EXPECT_EQ(0, munlock(memory, LENGTH));
}

TEST_F(lazy, a_mapping_that_is_populated_at_once)
{
	char *memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			    self->fd, 0);

	ASSERT_NE(MAP_FAILED, memory);
	EXPECT_TRUE(holds(self->fd, PAGES));
	EXPECT_EQ(LENGTH, pmd_mapped(memory, LENGTH));
	munmap(memory, LENGTH);
}

TEST_F(lazy, its_faults_are_nobody_elses_to_handle)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)self->memory, LENGTH },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);

	if (fd < 0) {
		ASSERT_EQ(ENOSYS, errno);
		return;
	}
	ASSERT_EQ(0, ioctl(fd, UFFDIO_API, &api));
	EXPECT_EQ(-EINVAL, call(fd, UFFDIO_REGISTER, &range));
	close(fd);
}

/* A process that has mapped the region and waits until it is killed. */
static pid_t start_mapper(int fd, char **memory)
{
	int ends[2];
	pid_t child;

	if (pipe(ends))
		return -1;
	child = fork();
	if (!child) {
		*memory = map(fd, PAGES);
		if (write(ends[1], memory, sizeof(*memory)) == sizeof(*memory))
			pause();
		_exit(1);
	}
	close(ends[1]);
	if (read(ends[0], memory, sizeof(*memory)) != sizeof(*memory))
		child = -1;
	close(ends[0]);
	return child;
}

TEST_F(lazy, another_process_may_touch_it_for_us)
{
	char bytes[2] = { 1, 1 }, *there;
	struct iovec from, into = { bytes, 2 };
	pid_t child = start_mapper(self->fd, &there);

	ASSERT_LT(0, child);
	from = (struct iovec){ there + 2 * PAGE_BYTES - 1, 2 };
	EXPECT_EQ(2, process_vm_readv(child, &into, 1, &from, 1, 0));
	EXPECT_EQ(0, bytes[0] + bytes[1]);
	EXPECT_TRUE(holds(self->fd, 2));
	bytes[0] = 42;
	EXPECT_EQ(2, process_vm_writev(child, &into, 1, &from, 1, 0));
	EXPECT_EQ(42, self->memory[2 * PAGE_BYTES - 1]);
	EXPECT_EQ(2, demand_faults(self->fd));
	kill(child, SIGKILL);
	EXPECT_EQ(-1, wait_for(child));
}

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

	/* What is there stays, and nothing that is missing is begun with. */
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

TEST_F(lazy, pages_beyond_the_users_limit)
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

TEST_F(lazy, a_page_let_go_of_no_longer_counts)
{
	ASSERT_EQ(0, set_memlock(PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, limit_freed_by_a_lingering_page, self->device));
}

static int beyond_memory_cgroup(int device)
{
	int fd = create_lazy(device, 64), i;
	struct actmem_ioctl_range arg;
	char *memory = map(fd, 64);

	CHECK(memory != MAP_FAILED);
	CHECK(!put("/tmp/cgroup/one/cgroup.procs", "0"));
	CHECK(!put("/tmp/cgroup/one/memory.max", "32M"));
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

TEST_F(lazy, pages_beyond_the_memory_cgroups_limit)
{
	mkdir("/tmp", 0755);
	mkdir("/tmp/cgroup", 0755);
	ASSERT_EQ(0, mount("cgroup", "/tmp/cgroup", "cgroup2", 0, NULL));
	ASSERT_EQ(0, put("/tmp/cgroup/cgroup.subtree_control", "+memory"));
	ASSERT_EQ(0, mkdir("/tmp/cgroup/one", 0755));
	EXPECT_EQ(0, as_user(0, beyond_memory_cgroup, self->device));
	EXPECT_EQ(0, rmdir("/tmp/cgroup/one"));
	EXPECT_EQ(0, umount("/tmp/cgroup"));
}

/* Where pages are placed wants a machine with two nodes or more. */
FIXTURE(lazy_placement)
{
	int device;
	int nodes;
};

FIXTURE_SETUP(lazy_placement)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	for (self->nodes = 0; node_memory(self->nodes, "MemTotal"); self->nodes++)
		;
	if (self->nodes < 2)
		SKIP(return, "this machine has one memory node only");
}

FIXTURE_TEARDOWN(lazy_placement)
{
	close(self->device);
	EXPECT_EQ(0, regions());
}

static int create_lazy_on(int device, size_t pages, uint32_t policy, uint64_t nodes)
{
	struct actmem_ioctl_create arg = region_on(pages, policy, nodes);

	arg.flags = ACTMEM_CREATE_LAZY;
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

TEST_F(lazy_placement, pages_come_by_the_policy)
{
	char where[PAGES + 1], wanted[PAGES + 1];
	int touched, fd, i;

	for (touched = 0; touched < 2; touched++) {
		fd = create_lazy_on(self->device, PAGES, ACTMEM_POLICY_BIND, 2);
		place(fd, touched, where);
		EXPECT_EQ(0, strcmp("111111", where)) TH_LOG("bound ones on %s", where);
		close(fd);
		fd = create_lazy_on(self->device, PAGES, ACTMEM_POLICY_PREFERRED, 2);
		place(fd, touched, where);
		EXPECT_EQ(0, strcmp("111111", where)) TH_LOG("preferred ones on %s", where);
		close(fd);
		fd = create_lazy_on(self->device, PAGES, ACTMEM_POLICY_INTERLEAVE, 3);
		place(fd, touched, where);
		EXPECT_EQ(0, strcmp("010101", where)) TH_LOG("interleaved ones on %s", where);
		close(fd);
		fd = create_lazy_on(self->device, PAGES, ACTMEM_POLICY_INTERLEAVE, 0);
		for (i = 0; i < PAGES; i++)
			wanted[i] = '0' + i % self->nodes;
		wanted[i] = 0;
		place(fd, touched, where);
		EXPECT_EQ(0, strcmp(wanted, where)) TH_LOG("interleaved ones on %s", where);
		close(fd);
	}
}

TEST_F(lazy_placement, a_full_node)
{
	/* Not quite absurd: all that the node has, some of which is in use. */
	size_t pages = node_memory(1, "MemTotal") / PAGE_BYTES;
	int fd = create_lazy_on(self->device, pages, ACTMEM_POLICY_BIND, 2);
	struct actmem_ioctl_range arg;

	ASSERT_LE(0, fd);
	EXPECT_EQ(-ENOMEM, change_range(fd, ACTMEM_IOC_POPULATE, 0, pages, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_EQ(1, arg.why.node);
	EXPECT_EQ(pages * PAGE_BYTES, arg.why.wanted);
	EXPECT_EQ(arg.done, arg.why.available);
	EXPECT_LT(0, arg.done);
	/* Those that it got, it keeps. */
	EXPECT_EQ((long)(arg.done / PAGE_BYTES), pages_held(fd));
	EXPECT_EQ(0, change_range(fd, ACTMEM_IOC_DISCARD, 0, pages, &arg));
	EXPECT_EQ(pages * PAGE_BYTES, arg.done);
	EXPECT_EQ(0, pages_held(fd));
	close(fd);
}

/* A region that was made outside the cpuset, on all nodes and on node 1. */
static int in_cpuset_of_node_0(int device)
{
	int striped = create_lazy_on(device, 4, ACTMEM_POLICY_INTERLEAVE, 0);
	int bound = create_lazy_on(device, 4, ACTMEM_POLICY_BIND, 2);
	char *memory = map(bound, 4), *stripes = map(striped, 4);
	struct actmem_ioctl_range arg;

	CHECK(memory != MAP_FAILED && stripes != MAP_FAILED);
	CHECK(!populate(bound, 3, 1));
	CHECK(!put("/tmp/cgroup/one/cgroup.procs", "0"));
	catch_bus_errors(-1);
	CHECK(!touch(memory) && bus_error.count == 1);
	CHECK(change_range(bound, ACTMEM_IOC_POPULATE, 0, 4, &arg) == -EPERM && !arg.done);
	CHECK(arg.why.reason == ACTMEM_WHY_CPUSET && arg.why.node == 1);
	/* What is there may be used. */
	CHECK(touch(memory + 3 * PAGE_BYTES));
	CHECK(touch(stripes) && !touch(stripes + PAGE_BYTES));
	CHECK(change_range(striped, ACTMEM_IOC_POPULATE, 0, 4, &arg) == -EPERM);
	CHECK(arg.why.node == 1 && arg.done == PAGE_BYTES);
	return 0;
}

TEST_F(lazy_placement, the_cpuset_of_who_touches_is_obeyed)
{
	mkdir("/tmp", 0755);
	mkdir("/tmp/cgroup", 0755);
	ASSERT_EQ(0, mount("cgroup", "/tmp/cgroup", "cgroup2", 0, NULL));
	ASSERT_EQ(0, put("/tmp/cgroup/cgroup.subtree_control", "+cpuset"));
	ASSERT_EQ(0, mkdir("/tmp/cgroup/one", 0755));
	ASSERT_EQ(0, put("/tmp/cgroup/one/cpuset.mems", "0"));
	EXPECT_EQ(0, as_user(0, in_cpuset_of_node_0, self->device));
	/* A pool of that node is no way around it. */
	ASSERT_EQ(0, put(SYSFS "/node1/pool_bytes", "16777216"));
	while (number_in(SYSFS "/node1/pool_free_bytes") != 16777216)
		usleep(20000);
	EXPECT_EQ(0, as_user(0, in_cpuset_of_node_0, self->device));
	ASSERT_EQ(0, put(SYSFS "/node1/pool_bytes", "0"));
	EXPECT_EQ(0, rmdir("/tmp/cgroup/one"));
	EXPECT_EQ(0, umount("/tmp/cgroup"));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
