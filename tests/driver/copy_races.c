// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Long copies, with others at the same pages: no byte is of any other memory
 * than it may be, and nothing is left when the copier is killed. Between nodes,
 * what arrives is on the node that it was to be on.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/uio.h>

#include "copy_test.h"

/* More than are copied at a time, even if each comes in one piece. */
#define LONG_PAGES	70
#define PAGES		6

static int create_on(int device, size_t pages, uint32_t policy, uint64_t nodes, uint32_t flags)
{
	struct actmem_ioctl_create arg = region_of(pages);

	arg.policy = policy;
	arg.nodes[0] = nodes;
	arg.flags = flags;
	return create(device, &arg);
}

/* In pieces of which each page takes two, to pages that are made meanwhile. */
static int copy_long(int device, uint32_t policy, uint64_t nodes)
{
	const uint64_t offset = 4097, bytes = (LONG_PAGES - 1) * PAGE_BYTES;
	int to = create_on(device, LONG_PAGES, policy, nodes, ACTMEM_CREATE_LAZY);
	int from = create_pages(device, LONG_PAGES - 1);
	char *target, *source;

	CHECK(to >= 0 && from >= 0);
	source = map(from, LONG_PAGES - 1);
	CHECK(source != MAP_FAILED);
	mark(source, bytes);
	CHECK(!copy(to, offset, from, 0, bytes));
	target = map(to, LONG_PAGES);
	CHECK(target != MAP_FAILED);
	CHECK(is_marked(target + offset, bytes));
	CHECK(!target[offset - 1] && !target[offset + bytes]);
	munmap(target, LONG_PAGES * PAGE_BYTES);
	munmap(source, bytes);
	close(to);
	close(from);
	return 0;
}

TEST_F(driver, long_copies)
{
	EXPECT_EQ(0, copy_long(self->device, ACTMEM_POLICY_PREFERRED, 0));
	EXPECT_EQ(0, copy_long(self->device, ACTMEM_POLICY_INTERLEAVE, 0));
}

TEST_F(driver, between_nodes)
{
	uint64_t bytes[ACTMEM_NODE_MAX] = { 0 };
	struct actmem_ioctl_info now;
	int to, from, node;
	char *memory;

	for (node = 0; node_memory(node, "MemTotal"); node++) {
		from = create_on(self->device, PAGES, ACTMEM_POLICY_BIND, 1, 0);
		to = create_on(self->device, PAGES, ACTMEM_POLICY_BIND, 1 << node,
			       ACTMEM_CREATE_LAZY);
		ASSERT_LE(0, from);
		ASSERT_LE(0, to);
		memory = map(from, PAGES);
		ASSERT_NE(MAP_FAILED, memory);
		mark(memory, PAGES * PAGE_BYTES);
		munmap(memory, PAGES * PAGE_BYTES);
		ASSERT_EQ(0, copy(to, 0, from, 0, PAGES * PAGE_BYTES));

		now = (struct actmem_ioctl_info){ .size = sizeof(now) };
		now.node_bytes = (uintptr_t)bytes;
		now.node_count = ACTMEM_NODE_MAX;
		ASSERT_EQ(0, call(to, ACTMEM_IOC_INFO, &now));
		EXPECT_EQ(PAGES * PAGE_BYTES, bytes[node]);
		EXPECT_EQ(PAGES * PAGE_BYTES, now.allocated_bytes);
		memory = map(to, PAGES);
		ASSERT_NE(MAP_FAILED, memory);
		EXPECT_TRUE(is_marked(memory, PAGES * PAGE_BYTES));
		munmap(memory, PAGES * PAGE_BYTES);
		close(to);
		close(from);
	}
	if (node < 2)
		SKIP(return, "this machine has one memory node only");
}

/* Who waits for two pages must not wait for who waits for them the other way round. */
static int copy_to_and_fro(int one, int other)
{
	int i;

	for (i = 0; i < 40; i++)
		CHECK(!copy(one, i, other, 40, PAGES * PAGE_BYTES - 40));
	return 0;
}

TEST_F(driver, both_ways_at_once)
{
	int one = create_pages(self->device, PAGES), other = create_pages(self->device, PAGES);
	pid_t child;

	ASSERT_LE(0, one);
	ASSERT_LE(0, other);
	child = fork();
	if (!child)
		_exit(!!copy_to_and_fro(one, other));
	EXPECT_EQ(0, copy_to_and_fro(other, one));
	EXPECT_EQ(0, wait_for(child));
	close(one);
	close(other);
}

/* One in the middle of a copy, as it does nothing else. */
static void copy_for_ever(int device, int ready)
{
	int from = create_pages(device, LONG_PAGES);
	int to = create_on(device, LONG_PAGES, ACTMEM_POLICY_PREFERRED, 0, ACTMEM_CREATE_LAZY);
	uint64_t i;

	if (from < 0 || to < 0 || write(ready, "", 1) != 1)
		_exit(1);
	for (i = 0;; i = (i + 1) % 512)
		if (copy(to, i, from, 0, LONG_PAGES * PAGE_BYTES - 512))
			_exit(1);
}

TEST_F(driver, killed_while_it_copies)
{
	int round, ready[2], status;
	char byte;

	for (round = 0; round < 20; round++) {
		pid_t child;

		ASSERT_EQ(0, pipe2(ready, O_CLOEXEC));
		child = fork();
		if (!child)
			copy_for_ever(self->device, ready[1]);
		ASSERT_EQ(1, read(ready[0], &byte, 1));
		usleep(round * 3000);
		ASSERT_EQ(0, kill(child, SIGKILL));
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		close(ready[0]);
		close(ready[1]);
		ASSERT_EQ(0, regions());
		ASSERT_EQ(0, node_sum("region_bytes"));
	}
	EXPECT_EQ(0, lingering_regions());
}

#define OLD	0x11
#define NEW	0x22
#define WRITTEN	0x33
#define FOREIGN	0x44

struct scene {
	int device, to, from;
	char *target, *source;
	bool stop, is_wrong;
};

static bool may_be(char byte)
{
	return !byte || byte == OLD || byte == NEW || byte == WRITTEN;
}

/* Pages that are given back go to it and come from it, with other contents. */
static void *use_memory(void *context)
{
	struct scene *scene = context;

	while (!__atomic_load_n(&scene->stop, __ATOMIC_RELAXED)) {
		int fd = create_pages(scene->device, 2);
		char *memory = fd < 0 ? MAP_FAILED : map(fd, 2);

		if (memory != MAP_FAILED) {
			memset(memory, FOREIGN, 2 * PAGE_BYTES);
			munmap(memory, 2 * PAGE_BYTES);
		}
		close(fd);
	}
	return NULL;
}

/* The source's pages come and go, and are zero or hold what is new. */
static void *discard_source(void *context)
{
	struct scene *scene = context;
	size_t i;

	for (i = 0; !__atomic_load_n(&scene->stop, __ATOMIC_RELAXED); i = (i + 1) % PAGES) {
		int err = discard(scene->from, i, 1);

		if (err && err != -EBUSY)
			scene->is_wrong = true;
		if (i % 2)
			memset(scene->source + i * PAGE_BYTES, NEW, PAGE_BYTES);
	}
	return NULL;
}

/* Where it is copied to, others read, write, discard and hold pages. */
static void *touch_target(void *context)
{
	struct scene *scene = context;
	int ends[2];
	size_t i;

	if (pipe2(ends, O_CLOEXEC))
		return NULL;
	for (i = 0; !__atomic_load_n(&scene->stop, __ATOMIC_RELAXED); i++) {
		char *page = scene->target + i % PAGES * PAGE_BYTES, taken[4096];
		struct iovec vector = { page + 8192, sizeof(taken) };
		size_t j;

		page[i % PAGE_BYTES] = WRITTEN;
		if (vmsplice(ends[1], &vector, 1, 0) != sizeof(taken))
			scene->is_wrong = true;
		if (i % 7 == 0)
			discard(scene->to, (i + 1) % PAGES, 1);
		if (read(ends[0], taken, sizeof(taken)) != sizeof(taken))
			scene->is_wrong = true;
		for (j = 0; j < sizeof(taken); j++)
			if (!may_be(taken[j]))
				scene->is_wrong = true;
	}
	close(ends[0]);
	close(ends[1]);
	return NULL;
}

TEST_F(driver, with_others_at_the_same_pages)
{
	static void *(*const others[])(void *) = { use_memory, discard_source, touch_target };
	struct scene scene = {
		.device = self->device,
		.to = create_pages(self->device, PAGES),
		.from = create_pages(self->device, PAGES),
	};
	pthread_t threads[3];
	size_t i, wrong = 0;
	int round;

	ASSERT_LE(0, scene.to);
	ASSERT_LE(0, scene.from);
	scene.target = map(scene.to, PAGES);
	scene.source = map(scene.from, PAGES);
	ASSERT_NE(MAP_FAILED, scene.target);
	ASSERT_NE(MAP_FAILED, scene.source);
	memset(scene.target, OLD, PAGES * PAGE_BYTES);
	memset(scene.source, NEW, PAGES * PAGE_BYTES);
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, pthread_create(&threads[i], NULL, others[i], &scene));
	for (round = 0; round < 150; round++)
		EXPECT_EQ(0, copy(scene.to, round * 8191 % PAGE_BYTES, scene.from, round,
				  (PAGES - 1) * PAGE_BYTES));
	__atomic_store_n(&scene.stop, true, __ATOMIC_RELAXED);
	for (i = 0; i < 3; i++)
		ASSERT_EQ(0, pthread_join(threads[i], NULL));
	EXPECT_FALSE(scene.is_wrong);
	for (i = 0; i < PAGES * PAGE_BYTES; i++)
		wrong += !may_be(scene.target[i]);
	EXPECT_EQ(0, wrong);
	munmap(scene.target, PAGES * PAGE_BYTES);
	munmap(scene.source, PAGES * PAGE_BYTES);
	close(scene.to);
	close(scene.from);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
