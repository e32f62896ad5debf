// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Placement: every page is on the node that the policy says, within the
 * task's cpuset, and where that cannot be the call fails and says why. Wants a
 * machine with two nodes or more.
 */
#include <sched.h>

#include "cgroup_test.h"
#include "nodes_fixture.h"

#define PAGES	6

static long node_bytes(int node)
{
	return number_in(SYSFS "/node%d/region_bytes", node);
}

/* Creates a region and tells the node of each of its pages, in a letter. */
static int placed(int device, struct actmem_ioctl_create *arg, char *where)
{
	size_t pages = arg->length / PAGE_BYTES, i;
	char *memory;
	int fd = create(device, arg);

	if (fd < 0)
		return fd;
	memory = map(fd, pages);
	for (i = 0; i < pages && memory != MAP_FAILED; i++)
		where[i] = '0' + node_of(memory + i * PAGE_BYTES);
	where[i] = 0;
	munmap(memory, arg->length);
	return fd;
}

TEST_F(placement, bind_to_each_node)
{
	int node;

	for (node = 0; node < self->nodes; node++) {
		struct actmem_ioctl_create arg = region_on(PAGES, ACTMEM_POLICY_BIND, 1 << node);
		uint64_t bytes[ACTMEM_NODE_MAX] = { 0 };
		struct actmem_ioctl_info now = { .size = sizeof(now) };
		char where[PAGES + 1], wanted[PAGES + 1] = "";
		int fd = must(placed(self->device, &arg, where));

		memset(wanted, '0' + node, PAGES);
		EXPECT_EQ(0, strcmp(wanted, where))
			TH_LOG("pages on %s", where);
		EXPECT_EQ((long)(PAGES * PAGE_BYTES), node_bytes(node));
		EXPECT_EQ((long)(PAGES * PAGE_BYTES), node_sum("region_bytes"));
		now.node_bytes = (uintptr_t)bytes;
		now.node_count = ACTMEM_NODE_MAX;
		ASSERT_EQ(0, call(fd, ACTMEM_IOC_INFO, &now));
		EXPECT_EQ(PAGES * PAGE_BYTES, bytes[node]);
		EXPECT_EQ(0, bytes[(node + 1) % self->nodes]);
		EXPECT_EQ(1ULL << node, now.nodes[0]);
		close(fd);
	}
}

/*
 * Leaves no page free on a node. Several failures in a row, since each of them
 * makes the kernel look for memory to give back.
 */
static void fill_node(int device, int node, struct actmem_ioctl_create *last)
{
	size_t pages = 32;
	int failures = 0;

	while (failures < 5) {
		*last = region_on(pages, ACTMEM_POLICY_BIND, 1 << node);
		if (create(device, last) >= 0)
			failures = 0;
		else if (pages > 1)
			pages /= 2;
		else
			failures++;
	}
}

static int run_on(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

/*
 * Fills node 1 and asks for @pages more, until nothing of them comes to lie
 * there: what the kernel gives back in between is taken first.
 */
static int create_beside(int device, struct actmem_ioctl_create *arg, char *where, int *fd)
{
	struct actmem_ioctl_create wanted = *arg, filled;
	int tries = 20;

	do {
		fill_node(device, 1, &filled);
		CHECK(filled.why.reason == ACTMEM_WHY_NODE_FULL && filled.why.node == 1);
		CHECK(filled.why.wanted == PAGE_BYTES && filled.why.available == 0);
		*arg = wanted;
		*fd = placed(device, arg, where);
	} while (*fd >= 0 && strchr(where, '1') && --tries);
	CHECK(tries);
	return 0;
}

/*
 * Has pages of two nodes where the processor's own, 1, which is full but for the
 * @spares, comes first, and the other goes on. Several tasks are at it: which slots get
 * what was left is up to chance. So is how much that is, as the kernel gives memory back
 * meanwhile, and has some in lists of another processor's and under its watermarks: more
 * is asked for, or freed, until some of it comes to lie on either.
 */
static int create_on_both(int device, const struct actmem_ioctl_create *spares, int count)
{
	size_t pages = 32, most = 256;
	char where[most + 1];
	bool first, other;
	int freed = 0;

	do {
		struct actmem_ioctl_create arg = region_on(pages, ACTMEM_POLICY_BIND, 3);
		int fd = placed(device, &arg, where);

		CHECK(fd >= 0 && strspn(where, "01") == pages);
		first = strchr(where, '1');
		other = strchr(where, '0');
		close(fd);
		if (!other) {
			pages += 32;
			CHECK(pages <= most);
		}
		if (!first) {
			CHECK(freed < count);
			close(spares[freed++].fd);
			/* The lists are emptied each second. */
			usleep(1500000);
		}
	} while (!first || !other);
	return 0;
}

static int beside_a_full_node(int device)
{
	struct actmem_ioctl_create spares[4], arg;
	char where[33];
	size_t i;
	int fd;

	CHECK(!run_on(1));
	for (i = 0; i < ARRAY_SIZE(spares); i++) {
		spares[i] = region_on(16, ACTMEM_POLICY_BIND, 2);
		CHECK(create(device, &spares[i]) >= 0);
	}
	arg = region_on(2, ACTMEM_POLICY_INTERLEAVE, 3);
	CHECK(!create_beside(device, &arg, where, &fd) && fd == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_NODE_FULL && arg.why.node == 1);
	CHECK(arg.why.wanted == PAGE_BYTES && arg.why.available == 0);
	arg = region_on(2, ACTMEM_POLICY_PREFERRED, 2);
	CHECK(!create_beside(device, &arg, where, &fd) && fd >= 0);
	return create_on_both(device, spares, ARRAY_SIZE(spares));
}

TEST_F(placement, a_node_filled_by_regions)
{
	EXPECT_EQ(0, as_user(0, beside_a_full_node, self->device));
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, node_sum("region_bytes"));
}

/* Debian's 7.2 has CMA, and 6.12 has not; the tests' machine has some of it, by cma=. */
static bool kernel_has_cma(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	bool has_cma = false;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		has_cma = has_cma || !strncmp(line, "CmaTotal:", 9);
	if (file)
		fclose(file);
	return has_cma;
}

/* The last node that has memory for CMA, of which that much is free. */
static int node_with_cma(int nodes, size_t *bytes)
{
	while (nodes--) {
		*bytes = zones_memory(nodes, "nr_free_cma");
		if (*bytes)
			return nodes;
	}
	return -1;
}

/* As its pages move, to make room, and those of regions do not. */
TEST_F(placement, memory_for_cma_is_not_there)
{
	struct actmem_ioctl_create arg;
	size_t unused, cma;
	int node;

	if (!kernel_has_cma())
		return;
	ASSERT_EQ(0, put("/proc/sys/vm/drop_caches", "3"));
	node = node_with_cma(self->nodes, &cma);
	ASSERT_LE(0, node);
	unused = unused_memory(node);
	/* More than the node could have, which is refused by what is free. */
	arg = region_on(2 * node_memory(node, "MemTotal") / PAGE_BYTES, ACTMEM_POLICY_BIND, 1 << node);
	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_LE(cma / 2, arg.why.movable);
	EXPECT_LE(arg.why.available, unused - cma / 2);
}

/* Where no node is named, it is that of the processor. */
TEST_F(placement, preferred)
{
	struct actmem_ioctl_create arg;
	char where[PAGES + 1];
	unsigned int cpu, node;
	int fd;

	for (cpu = 0; cpu < 2; cpu++) {
		ASSERT_EQ(0, run_on(cpu));
		ASSERT_EQ(0, syscall(SYS_getcpu, NULL, &node, NULL));
		arg = region_on(PAGES, ACTMEM_POLICY_PREFERRED, 0);
		fd = must(placed(self->device, &arg, where));
		EXPECT_EQ('0' + (int)node, where[0]);
		EXPECT_EQ('0' + (int)node, where[PAGES - 1]);
		close(fd);
	}
}

/* More on one node than that node has, though not than all have. */
TEST_F(placement, interleave)
{
	struct actmem_ioctl_create arg = region_on(node_memory(1, "MemTotal") / PAGE_BYTES * 2 + 2,
						   ACTMEM_POLICY_INTERLEAVE, 3);

	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_EQ(arg.length / 2, arg.why.wanted);
}

TEST_F(placement, the_policy_of_the_task_does_not_count)
{
	struct actmem_ioctl_create arg = region_on(PAGES, ACTMEM_POLICY_BIND, 2);
	unsigned long mask = 1;
	char where[PAGES + 1];
	int fd;

	/* MPOL_BIND */
	ASSERT_EQ(0, syscall(SYS_set_mempolicy, 2, &mask, 64));
	fd = must(placed(self->device, &arg, where));
	EXPECT_EQ(0, strcmp("111111", where));
	close(fd);
}

TEST_F(placement, nothing_moves_the_pages)
{
	struct actmem_ioctl_create arg = region_on(PAGES, ACTMEM_POLICY_BIND, 2);
	unsigned long from = 2, to = 1;
	char *memory;
	size_t i;

	ASSERT_LE(0, create(self->device, &arg));
	memory = mapped(map_and_touch(arg.fd, PAGES));
	/* MPOL_BIND, with MPOL_MF_STRICT, MPOL_MF_MOVE and MPOL_MF_MOVE_ALL */
	EXPECT_ERRNO(EIO, syscall(SYS_mbind, memory, arg.length, 2, &to, 64, 7));
	syscall(SYS_migrate_pages, 0, 64, &from, &to);
	for (i = 0; i < PAGES; i++)
		EXPECT_EQ(1, node_of(memory + i * PAGE_BYTES));
	EXPECT_EQ(arg.length, pmd_mapped(memory, arg.length));
	munmap(memory, arg.length);
	close(arg.fd);
}

static int in_cpuset_of_node_0(int device)
{
	struct actmem_ioctl_create arg;
	char where[PAGES + 1];

	CHECK(!enter_cgroup());
	arg = region_on(PAGES, ACTMEM_POLICY_BIND, 1);
	CHECK(placed(device, &arg, where) >= 0);
	CHECK(!strcmp(where, "000000"));
	arg = region_on(PAGES, ACTMEM_POLICY_BIND, 2);
	CHECK(create(device, &arg) == -EPERM);
	CHECK(arg.why.reason == ACTMEM_WHY_CPUSET && arg.why.node == 1);
	arg = region_on(PAGES, ACTMEM_POLICY_BIND, 3);
	CHECK(create(device, &arg) == -EPERM && arg.why.node == 1);
	arg = region_on(PAGES, ACTMEM_POLICY_PREFERRED, 2);
	CHECK(create(device, &arg) == -EPERM);
	arg = region_on(PAGES, ACTMEM_POLICY_INTERLEAVE, 3);
	CHECK(create(device, &arg) == -EPERM);

	/* Where no node is named, those of the cpuset are meant. */
	arg = region_on(PAGES, ACTMEM_POLICY_PREFERRED, 0);
	CHECK(placed(device, &arg, where) >= 0);
	CHECK(!strcmp(where, "000000"));
	arg = region_on(PAGES, ACTMEM_POLICY_INTERLEAVE, 0);
	CHECK(placed(device, &arg, where) >= 0);
	CHECK(!strcmp(where, "000000"));
	/* Not even when that is all there is. */
	arg = region_on(node_memory(0, "MemTotal") / PAGE_BYTES, ACTMEM_POLICY_PREFERRED, 0);
	CHECK(create(device, &arg) == -ENOMEM && arg.why.node == 0);
	CHECK(node_bytes(1) == 0);
	return 0;
}

TEST_F(placement, the_cpuset_is_obeyed)
{
	ASSERT_EQ(0, make_cgroup("+cpuset"));
	ASSERT_EQ(0, put(CGROUP "/cpuset.mems", "0"));
	EXPECT_EQ(0, as_user(0, in_cpuset_of_node_0, self->device));
	EXPECT_EQ(0, remove_cgroup());
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
