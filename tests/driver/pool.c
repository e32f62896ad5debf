// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Warm pools: what they hold, who gets it and what comes back. The second node
 * is the one that is looked at, as the first has most of what else happens on
 * the machine.
 */
#include <pthread.h>
#include <sys/mount.h>
#include <sys/uio.h>
#include <time.h>

#include "driver_test.h"

#define NODE	1
#define FULL	32
#define SOME	(FULL / 8)
#define MODULE	"/vm/modules/actmem.ko"

static int set_text(int node, const char *name, const char *text)
{
	char path[128];

	snprintf(path, sizeof(path), SYSFS "/node%d/%s", node, name);
	return put(path, text);
}

static int set(int node, const char *name, size_t bytes)
{
	char text[32];

	snprintf(text, sizeof(text), "%zu\n", bytes);
	return set_text(node, name, text);
}

static long get(int node, const char *name)
{
	return number_in(SYSFS "/node%d/%s", node, name);
}

static int set_pool(int node, size_t pages)
{
	return set(node, "pool_bytes", pages * PAGE_BYTES);
}

/* In pages. */
static long ready(int node)
{
	return get(node, "pool_free_bytes") / (long)PAGE_BYTES;
}

static long lent(int node)
{
	return get(node, "pool_lent_bytes") / (long)PAGE_BYTES;
}

/* Ends by the harness's time limit if it never comes to that. */
static void wait_ready(int node, long pages)
{
	while (ready(node) != pages)
		usleep(20000);
}

/*
 * What is free, with the pages that each processor keeps at hand, of which
 * MemFree knows nothing.
 */
static size_t unused_memory(int node)
{
	FILE *file = fopen("/proc/zoneinfo", "re");
	size_t pages = 0, count;
	char line[256];
	int here = -1;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node %d, zone", &here) == 1 || here != node)
			continue;
		if (sscanf(line, " nr_free_pages %zu", &count) == 1 ||
		    sscanf(line, " count: %zu", &count) == 1)
			pages += count;
	}
	if (file)
		fclose(file);
	return pages * 4096;
}

static int create_on(int device, int node, size_t pages)
{
	struct actmem_ioctl_create arg = region_on(pages, ACTMEM_POLICY_BIND, 1 << node);

	return create(device, &arg);
}

/* Finds zeros only, and leaves a pattern. */
static bool was_zero(int fd, size_t pages)
{
	size_t length = pages * PAGE_BYTES;
	char *memory = map(fd, pages);
	bool zero;

	if (memory == MAP_FAILED)
		return false;
	zero = !memory[0] && !memcmp(memory, memory + 1, length - 1);
	memset(memory, 0xa5, length);
	munmap(memory, length);
	return zero;
}

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

FIXTURE(pool)
{
	int device;
};

FIXTURE_SETUP(pool)
{
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	if (!node_memory(NODE, "MemTotal"))
		SKIP(return, "this machine has one memory node only");
	ASSERT_EQ(0, regions());
	ASSERT_EQ(0, node_sum("pool_bytes"));
	ASSERT_EQ(0, node_sum("pool_min_bytes"));
	ASSERT_EQ(0, node_sum("pool_free_bytes"));
	ASSERT_EQ(0, node_sum("pool_lent_bytes"));
}

FIXTURE_TEARDOWN(pool)
{
	int node;

	for (node = 0; node_memory(node, "MemTotal"); node++) {
		set_pool(node, 0);
		set(node, "pool_min_bytes", 0);
	}
	close(self->device);
}

TEST_F(pool, each_node_is_filled)
{
	int node;

	/* The last one may have no processors. */
	for (node = 0; node_memory(node, "MemTotal"); node++) {
		size_t unused = unused_memory(node);

		ASSERT_EQ(0, set_pool(node, FULL));
		EXPECT_EQ((long)(FULL * PAGE_BYTES), get(node, "pool_bytes"));
		wait_ready(node, FULL);
		EXPECT_GT(unused - FULL / 2 * PAGE_BYTES, unused_memory(node));
	}
	EXPECT_EQ((long)(node * FULL * PAGE_BYTES), node_sum("pool_free_bytes"));
	EXPECT_EQ(0, node_sum("region_bytes"));
}

TEST_F(pool, a_region_takes_from_it_and_gives_back)
{
	int fd, round;

	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	for (round = 0; round < 3; round++) {
		fd = create_on(self->device, NODE, SOME);
		ASSERT_LE(0, fd);
		EXPECT_EQ(FULL - SOME, ready(NODE));
		EXPECT_EQ(SOME, lent(NODE));
		EXPECT_EQ((long)(SOME * PAGE_BYTES), get(NODE, "region_bytes"));
		EXPECT_TRUE(was_zero(fd, SOME));
		close(fd);
		EXPECT_EQ(0, lent(NODE));
		EXPECT_EQ(0, get(NODE, "region_bytes"));
		wait_ready(NODE, FULL);
	}
}

TEST_F(pool, what_was_written_is_gone)
{
	int fd, round;

	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	for (round = 0; round < 3; round++) {
		/* More than it holds; and again before all are ready. */
		fd = create_on(self->device, NODE, 2 * FULL);
		ASSERT_LE(0, fd);
		EXPECT_TRUE(was_zero(fd, 2 * FULL));
		close(fd);
		fd = create_on(self->device, NODE, FULL);
		ASSERT_LE(0, fd);
		EXPECT_TRUE(was_zero(fd, FULL));
		close(fd);
	}
	wait_ready(NODE, FULL);
}

/* What it has lent is still its own, so that it gets no other pages for it. */
TEST_F(pool, what_is_lent_counts)
{
	int fd, more;

	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	fd = create_on(self->device, NODE, FULL + SOME);
	ASSERT_LE(0, fd);
	EXPECT_EQ(FULL, lent(NODE));
	/* As long as a fill would take, and the worker is awake. */
	ASSERT_EQ(0, set_pool(NODE, FULL));
	more = create_on(self->device, NODE, SOME);
	ASSERT_LE(0, more);
	usleep(200000);
	EXPECT_EQ(0, ready(NODE));
	EXPECT_EQ(FULL, lent(NODE));
	EXPECT_EQ((long)((FULL + 2 * SOME) * PAGE_BYTES), get(NODE, "region_bytes"));
	/* What was not taken from it does not come to it. */
	close(more);
	EXPECT_EQ(FULL, lent(NODE));
	EXPECT_EQ(0, ready(NODE));
	close(fd);
	EXPECT_EQ(0, lent(NODE));
	wait_ready(NODE, FULL);
}

TEST_F(pool, shrinking_while_it_has_lent)
{
	int fds[4], i;

	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	for (i = 0; i < 4; i++) {
		fds[i] = create_on(self->device, NODE, FULL / 4);
		ASSERT_LE(0, fds[i]);
	}
	close(fds[0]);
	EXPECT_EQ(FULL / 4 * 3, lent(NODE));
	wait_ready(NODE, FULL / 4);
	/* What is held goes at once, what is lent when it returns, but for the rest. */
	ASSERT_EQ(0, set_pool(NODE, FULL / 2));
	EXPECT_EQ(0, ready(NODE));
	EXPECT_EQ(FULL / 4 * 3, lent(NODE));
	close(fds[1]);
	EXPECT_EQ(FULL / 2, lent(NODE));
	close(fds[2]);
	EXPECT_EQ(FULL / 4, lent(NODE));
	wait_ready(NODE, FULL / 4);
	/* Grown, it is filled by what it lacks. */
	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL / 4 * 3);
	ASSERT_EQ(0, set_pool(NODE, 0));
	EXPECT_EQ(0, ready(NODE));
	EXPECT_EQ(FULL / 4, lent(NODE));
	close(fds[3]);
	EXPECT_EQ(0, ready(NODE));
	EXPECT_EQ(0, lent(NODE));
}

/* Makes a region and returns how long that took, as long as it is all zeros. */
static double time_of(int device, size_t pages)
{
	double begun = seconds(), spent;
	int fd = create_on(device, NODE, pages);

	spent = seconds() - begun;
	if (fd < 0 || !was_zero(fd, pages))
		spent = -1;
	close(fd);
	return spent;
}

TEST_F(pool, a_warm_region_and_a_cold_one)
{
	const size_t pages = 4 * FULL;
	double cold, warm;
	int round;

	for (round = 0; round < 3; round++) {
		ASSERT_EQ(0, set_pool(NODE, 0));
		cold = time_of(self->device, pages);
		ASSERT_LT(0, cold);
		ASSERT_EQ(0, set_pool(NODE, pages));
		wait_ready(NODE, pages);
		warm = time_of(self->device, pages);
		ASSERT_LT(0, warm);
		TH_LOG("%zu MiB: cold %.3f ms, warm %.3f ms", pages * PAGE_BYTES >> 20,
		       cold * 1e3, warm * 1e3);
	}
}

TEST_F(pool, a_page_that_is_pinned_does_not_come_back)
{
	struct iovec vector = { .iov_len = 4096 };
	unsigned char bytes[4096];
	int fd, next, ends[2];
	size_t i;
	char *memory;

	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	fd = create_on(self->device, NODE, SOME);
	ASSERT_LE(0, fd);
	memory = map(fd, SOME);
	ASSERT_NE(MAP_FAILED, memory);
	memset(memory, 0x5a, SOME * PAGE_BYTES);
	ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
	vector.iov_base = memory + PAGE_BYTES;
	ASSERT_EQ(4096, vmsplice(ends[1], &vector, 1, 0));
	munmap(memory, SOME * PAGE_BYTES);
	close(fd);
	wait_ready(NODE, FULL - 1);
	EXPECT_EQ((long)PAGE_BYTES, get(NODE, "lingering_bytes"));
	EXPECT_EQ(1, lent(NODE));

	for (i = 0; i < 4; i++) {
		next = create_on(self->device, NODE, FULL);
		ASSERT_LE(0, next);
		EXPECT_TRUE(was_zero(next, FULL));
		close(next);
	}
	ASSERT_EQ(4096, read(ends[0], bytes, sizeof(bytes)));
	for (i = 0; i < sizeof(bytes); i++)
		ASSERT_EQ(0x5a, bytes[i]);
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, get(NODE, "lingering_bytes"));
	wait_ready(NODE, FULL);
	close(ends[0]);
	close(ends[1]);
}

TEST_F(pool, shrinking_frees)
{
	size_t unused;

	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	unused = unused_memory(NODE);
	ASSERT_EQ(0, set_pool(NODE, 5));
	EXPECT_EQ(5, ready(NODE));
	ASSERT_EQ(0, set_pool(NODE, 0));
	EXPECT_EQ(0, ready(NODE));
	EXPECT_LT(unused + FULL / 2 * PAGE_BYTES, unused_memory(NODE));
	/* With nothing to hold, nothing is held. */
	close(create_on(self->device, NODE, SOME));
	EXPECT_EQ(0, ready(NODE));
}

static int write_as_user(int device)
{
	CHECK(set_pool(NODE, 1) == -EACCES);
	CHECK(set(NODE, "pool_min_bytes", PAGE_BYTES) == -EACCES);
	CHECK(ready(NODE) == 0);
	return 0;
}

TEST_F(pool, bad_settings)
{
	static const char *const names[] = { "pool_bytes", "pool_min_bytes" };
	static const char *const bad[] = {
		"1", "2097151", "2097153", "-2097152", "2M", "abc", "\n", " ", "0x200000",
		"2097152 2097152", "1e6", "2097152.0",
	};
	size_t most = node_memory(NODE, "MemTotal") / PAGE_BYTES * PAGE_BYTES;
	size_t i, j;

	for (i = 0; i < 2; i++) {
		ASSERT_EQ(0, set(NODE, names[i], 3 * PAGE_BYTES));
		for (j = 0; j < sizeof(bad) / sizeof(bad[0]); j++)
			EXPECT_EQ(-EINVAL, set_text(NODE, names[i], bad[j])) {
				TH_LOG("bad[%zu] to names[%zu]", j, i);
			}
		EXPECT_EQ(-ERANGE, set(NODE, names[i], most + PAGE_BYTES));
		EXPECT_EQ(-ERANGE, set_text(NODE, names[i], "18446744073707454464"));
		EXPECT_EQ(-ERANGE, set_text(NODE, names[i], "18446744073709551616"));
		EXPECT_EQ((long)(3 * PAGE_BYTES), get(NODE, names[i]));
	}
	EXPECT_EQ(-EACCES, set_text(NODE, "pool_free_bytes", "0"));
	EXPECT_EQ(-EACCES, set_text(NODE, "pool_lent_bytes", "0"));
	wait_ready(NODE, 3);
	/* As large as may be: it is filled as far as the node has memory. */
	EXPECT_EQ(0, set(NODE, "pool_min_bytes", most));
	EXPECT_EQ(0, set(NODE, "pool_min_bytes", 0));
	ASSERT_EQ(0, set_pool(NODE, 0));
	EXPECT_EQ(0, as_user(USER, write_as_user, self->device));
}

TEST_F(pool, a_target_beyond_what_is_free)
{
	size_t most = node_memory(NODE, "MemTotal") / PAGE_BYTES;
	struct actmem_ioctl_create arg = region_on(most, ACTMEM_POLICY_BIND, 1 << NODE);
	long before = -1, now = 0;

	ASSERT_EQ(0, set_pool(NODE, most));
	while (now != before || now < FULL) {
		before = now;
		usleep(500000);
		now = ready(NODE);
	}
	EXPECT_LT(now, (long)most);
	/* It leaves others something without their having to reclaim. */
	EXPECT_LT(PAGE_BYTES, unused_memory(NODE));
	/* What a node had to give includes its pool. */
	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_EQ(NODE, arg.why.node);
	EXPECT_EQ(most * PAGE_BYTES, arg.why.wanted);
	EXPECT_LE((size_t)now * PAGE_BYTES, arg.why.available);
	EXPECT_LT(arg.why.available, arg.why.wanted);
	/* Fails before it begins, but tells the same. */
	arg = region_on(2 * most, ACTMEM_POLICY_BIND, 1 << NODE);
	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_LE(most / 2 * PAGE_BYTES, arg.why.available);
	EXPECT_EQ(0, regions());
}

TEST_F(pool, memory_pressure_shrinks_it_to_the_floor)
{
	int fd;

	ASSERT_EQ(0, set_pool(NODE, FULL));
	ASSERT_EQ(0, set(NODE, "pool_min_bytes", 8 * PAGE_BYTES));
	wait_ready(NODE, FULL);
	fd = create_on(self->device, NODE, SOME);
	ASSERT_LE(0, fd);
	ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
	EXPECT_EQ(8 - SOME, ready(NODE));
	EXPECT_EQ(SOME, lent(NODE));
	/* What comes back now is kept up to the floor. */
	ASSERT_EQ(0, set(NODE, "pool_min_bytes", 6 * PAGE_BYTES));
	close(fd);
	EXPECT_EQ(0, lent(NODE));
	wait_ready(NODE, 6);
	EXPECT_EQ((long)(FULL * PAGE_BYTES), get(NODE, "pool_bytes"));
	/* After a while it is filled again. */
	wait_ready(NODE, FULL);
	ASSERT_EQ(0, set(NODE, "pool_min_bytes", 0));
	ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
	EXPECT_EQ(0, ready(NODE));
	/* An administrator who says so need not wait. */
	ASSERT_EQ(0, set_pool(NODE, SOME));
	wait_ready(NODE, SOME);
}

/* A process that wants more memory of the node than the pool leaves. */
static int use_most_of_the_node(int device)
{
	size_t length = unused_memory(NODE) + FULL / 2 * PAGE_BYTES;
	unsigned long mask = 1 << NODE;
	char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	/* MPOL_BIND */
	CHECK(!syscall(SYS_mbind, memory, length, 2, &mask, 64, 0));
	memset(memory, 1, length);
	/* There is no room for all of it as long as this process lives. */
	CHECK(ready(NODE) < 3 * FULL);
	return 0;
}

TEST_F(pool, others_get_its_memory_when_they_need_it)
{
	ASSERT_EQ(0, set_pool(NODE, 3 * FULL));
	wait_ready(NODE, 3 * FULL);
	EXPECT_EQ(0, as_user(0, use_most_of_the_node, self->device));
	wait_ready(NODE, 3 * FULL);
}

static int in_cpuset_of_node_0(int device)
{
	struct actmem_ioctl_create arg;

	CHECK(!put("/tmp/cgroup/one/cgroup.procs", "0"));
	arg = region_on(SOME, ACTMEM_POLICY_BIND, 1 << NODE);
	CHECK(create(device, &arg) == -EPERM && arg.why.reason == ACTMEM_WHY_CPUSET);
	arg = region_on(SOME, ACTMEM_POLICY_PREFERRED, 0);
	CHECK(create(device, &arg) >= 0);
	arg = region_on(SOME, ACTMEM_POLICY_INTERLEAVE, 0);
	CHECK(create(device, &arg) >= 0);
	CHECK(get(0, "region_bytes") == 2 * SOME * PAGE_BYTES);
	/* Not even when its own nodes are full. */
	arg = region_on(node_memory(0, "MemTotal") / PAGE_BYTES, ACTMEM_POLICY_PREFERRED, 0);
	CHECK(create(device, &arg) == -ENOMEM && arg.why.node == 0);
	CHECK(get(NODE, "region_bytes") == 0);
	CHECK(ready(NODE) == FULL);
	return 0;
}

/* What a pool lends is not the cgroup's, what comes beyond it is. */
static int in_memory_cgroup(int device)
{
	static const char current[] = "/tmp/cgroup/one/memory.current";
	struct actmem_ioctl_create arg;
	int fd, other;
	long before;

	CHECK(!put("/tmp/cgroup/one/cgroup.procs", "0"));
	before = number_in(current);
	fd = create_on(device, NODE, SOME);
	CHECK(fd >= 0);
	CHECK(number_in(current) < before + (long)PAGE_BYTES);
	close(fd);
	wait_ready(NODE, FULL);

	/* What is beyond the pool is the cgroup's for good: the pool stays as large. */
	fd = create_on(device, NODE, FULL + 8);
	CHECK(fd >= 0);
	CHECK(lent(NODE) == FULL);
	CHECK(number_in(current) >= before + 8 * (long)PAGE_BYTES);
	CHECK(number_in(current) < before + 9 * (long)PAGE_BYTES);
	other = create_on(device, NODE, 8);
	CHECK(other >= 0);
	CHECK(number_in(current) >= before + 16 * (long)PAGE_BYTES);
	close(fd);
	close(other);
	CHECK(number_in(current) < before + (long)PAGE_BYTES);
	CHECK(lent(NODE) == 0);
	wait_ready(NODE, FULL);

	/*
	 * Pressure, so that nothing is filled for a while. What was charged does
	 * not come back to the pool, though that has room up to its floor.
	 */
	CHECK(!put("/proc/sys/vm/drop_caches", "2"));
	CHECK(ready(NODE) == 0);
	CHECK(!set(NODE, "pool_min_bytes", FULL * PAGE_BYTES));
	before = number_in(current);
	fd = create_on(device, NODE, 8);
	CHECK(fd >= 0);
	CHECK(number_in(current) >= before + 8 * (long)PAGE_BYTES);
	close(fd);
	CHECK(number_in(current) < before + (long)PAGE_BYTES);
	CHECK(ready(NODE) == 0);

	/* What the cgroup has to pay for is what the pool did not give. */
	CHECK(!set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	CHECK(!set(NODE, "pool_min_bytes", 8 * PAGE_BYTES));
	CHECK(!put("/proc/sys/vm/drop_caches", "2"));
	CHECK(ready(NODE) == 8);
	CHECK(!put("/tmp/cgroup/one/memory.max", "16M"));
	arg = region_on(8 + 12, ACTMEM_POLICY_BIND, 1 << NODE);
	CHECK(create(device, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMCG && arg.why.node == -1);
	CHECK(arg.why.wanted == 12 * PAGE_BYTES);
	CHECK(arg.why.available < 8 * PAGE_BYTES);
	CHECK(lent(NODE) == 0);
	return 0;
}

static int in_cgroup(const char *controllers, const char *file, const char *text,
		     int (*function)(int), int device)
{
	int err;

	mkdir("/tmp", 0755);
	mkdir("/tmp/cgroup", 0755);
	if (mount("cgroup", "/tmp/cgroup", "cgroup2", 0, NULL))
		return -errno;
	err = put("/tmp/cgroup/cgroup.subtree_control", controllers) ?:
	      mkdir("/tmp/cgroup/one", 0755) ?:
	      put(file, text) ?: as_user(0, function, device) ?:
	      rmdir("/tmp/cgroup/one");
	return umount("/tmp/cgroup") ?: err;
}

TEST_F(pool, the_cpuset_is_obeyed)
{
	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	EXPECT_EQ(0, in_cgroup("+cpuset", "/tmp/cgroup/one/cpuset.mems", "0",
			       in_cpuset_of_node_0, self->device));
}

TEST_F(pool, the_memory_cgroup_is_not_charged)
{
	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	EXPECT_EQ(0, in_cgroup("+memory", "/tmp/cgroup/one/memory.max", "max",
			       in_memory_cgroup, self->device));
}

static int limited(int device)
{
	struct actmem_ioctl_create arg = region_on(SOME + 1, ACTMEM_POLICY_BIND, 1 << NODE);

	CHECK(create(device, &arg) == -ENOMEM && arg.why.reason == ACTMEM_WHY_MEMLOCK);
	CHECK(ready(NODE) == FULL);
	CHECK(create_on(device, NODE, SOME) >= 0);
	CHECK(ready(NODE) == FULL - SOME);
	return 0;
}

TEST_F(pool, locked_memory_is_limited_as_ever)
{
	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
	ASSERT_EQ(0, set_memlock(SOME * PAGE_BYTES));
	EXPECT_EQ(0, as_user(USER, limited, self->device));
	/* What its end gave back. */
	wait_ready(NODE, FULL);
}

static volatile bool stop;

/* Returns how often it found something that was not zero, or no memory. */
static void *churn(void *device)
{
	long wrong = 0, round;

	for (round = 1; !stop || round < 10; round++) {
		size_t pages = 1 + round % 7;
		int fd = create_on((intptr_t)device, NODE, pages);

		if (fd < 0 || !was_zero(fd, pages))
			wrong++;
		if (fd >= 0)
			close(fd);
	}
	return (void *)wrong;
}

TEST_F(pool, regions_come_and_go_while_it_changes)
{
	static const size_t sizes[] = { FULL, 0, 3, FULL / 2, 0, 1, FULL };
	pthread_t threads[4];
	void *wrong;
	size_t i;

	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, churn,
					    (void *)(intptr_t)self->device));
	for (i = 0; i < 42; i++) {
		EXPECT_EQ(0, set_pool(NODE, sizes[i % 7]));
		if (i % 5 == 0)
			EXPECT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
		usleep(50000);
	}
	stop = true;
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_join(threads[i], &wrong));
		EXPECT_EQ(NULL, wrong);
	}
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, lent(NODE));
	ASSERT_EQ(0, set_pool(NODE, FULL));
	wait_ready(NODE, FULL);
}

/*
 * Takes one block of a node's memory away; its number, -1 if none can go. Not
 * the first, which has what the kernel itself keeps on the node.
 */
static int take_memory_away(int node)
{
	int block, seen = 0;
	char path[96];

	for (block = 0; block < 256; block++) {
		snprintf(path, sizeof(path), "/sys/devices/system/node/node%d/memory%d/state",
			 node, block);
		if (!access(path, W_OK) && seen++ && !put(path, "offline"))
			return block;
	}
	return -1;
}

TEST_F(pool, a_node_that_loses_memory)
{
	size_t most = node_memory(2, "MemTotal") / PAGE_BYTES, left;
	char path[96];
	int block;

	if (!most)
		SKIP(return, "this machine has no third memory node");
	/* Empties it again, for ten seconds, since its own pages cannot go. */
	ASSERT_EQ(0, set_pool(2, most));
	ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "2"));
	block = take_memory_away(2);
	left = node_memory(2, "MemTotal") / PAGE_BYTES;
	if (block < 0)
		SKIP(return, "none of its memory can be taken away");
	EXPECT_GT(most, left);
	EXPECT_EQ((long)(left * PAGE_BYTES), get(2, "pool_bytes"));
	EXPECT_EQ(-ERANGE, set_pool(2, most));
	ASSERT_EQ(0, set_pool(2, FULL));
	wait_ready(2, FULL);
	snprintf(path, sizeof(path), "/sys/devices/system/memory/memory%d/state", block);
	EXPECT_EQ(0, put(path, "online_kernel"));
	EXPECT_EQ(0, set_pool(2, most));
}

static int load(const char *parameters)
{
	int fd = open(MODULE, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 || syscall(SYS_finit_module, fd, parameters, 0) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

static int unload(void)
{
	return syscall(SYS_delete_module, "actmem", O_NONBLOCK) ? -errno : 0;
}

TEST_F(pool, the_parameter_of_the_module)
{
	static const struct {
		const char *parameters;
		int err;
	} bad[] = {
		{ "pool=", -EINVAL },
		{ "pool=64M", -EINVAL },
		{ "pool=0:", -EINVAL },
		{ "pool=:64M", -EINVAL },
		{ "pool=0:64M,", -EINVAL },
		{ "pool=0:64M;1:64M", -EINVAL },
		{ "pool=0:64Q", -EINVAL },
		{ "pool=0:64MM", -EINVAL },
		{ "pool=0:+64M", -EINVAL },
		{ "pool=-1:64M", -EINVAL },
		{ "pool=0x0:64M", -EINVAL },
		{ "pool=0:3M", -EINVAL },
		{ "pool=0:16777217T", -EINVAL },
		{ "pool=0:64M,0:64M", -EINVAL },
		{ "pool=0:64M,99:64M", -ENODEV },
		{ "pool=99999999999:64M", -EINVAL },
		{ "pool=0:64M,1:1T", -ERANGE },
	};
	size_t unused, i;

	close(self->device);
	unused = unused_memory(NODE);
	ASSERT_EQ(0, unload());
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int err = load(bad[i].parameters);

		EXPECT_EQ(bad[i].err, err) {
			TH_LOG("bad[%zu]", i);
		}
		if (!err)
			unload();
	}
	EXPECT_EQ(0, load("pool=1:64M,0:4096K"));
	wait_ready(1, 32);
	wait_ready(0, 2);
	/* With all that it holds. */
	EXPECT_EQ(0, unload());
	EXPECT_LT(unused - FULL / 2 * PAGE_BYTES, unused_memory(NODE));
	ASSERT_EQ(0, load(""));
	EXPECT_EQ(0, node_sum("pool_bytes"));
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
}

TEST_F(pool, unloading_while_it_is_filled)
{
	int i;

	close(self->device);
	for (i = 0; i < 5; i++) {
		EXPECT_EQ(0, set_pool(NODE, 2 * FULL));
		usleep(i * 5000);
		ASSERT_EQ(0, unload());
		ASSERT_EQ(0, load(""));
	}
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
