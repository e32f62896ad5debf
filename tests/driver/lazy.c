// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Lazy regions: they hold nothing until they are touched, and then what was
 * touched, counted exactly.
 */
#include <linux/mman.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>

#define PAGES		6
#define MAKE_REGION	create_lazy

#include "region_fixture.h"

static long stat_pages(int fd)
{
	struct stat status;

	return fstat(fd, &status) ? -1 : (long)(status.st_blocks * 512 / PAGE_BYTES);
}

/* Whether everybody who can be asked says that so many pages are held. */
static bool holds(int fd, long pages)
{
	return pages_held(fd) == pages && stat_pages(fd) == pages &&
	       node_sum("region_bytes") == pages * (long)PAGE_BYTES;
}

TEST_F(region, holds_nothing_until_it_is_touched)
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
	EXPECT_EQ(2 * PAGE_BYTES, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
}

TEST_F(region, is_mapped_by_huge_pages)
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

TEST_F(region, threads_that_race_for_a_page_get_one)
{
	enum { THREADS = 4, ROUNDS = 20 };
	struct actmem_ioctl_info now;
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
		ASSERT_EQ(0, info(self->fd, 0, &now));
		EXPECT_EQ(0, now.pinned_bytes);
		EXPECT_EQ(LENGTH, now.mapped_bytes);
		EXPECT_TRUE(holds(self->fd, PAGES));
		EXPECT_EQ(LENGTH, pmd_mapped(self->memory, LENGTH));
		ASSERT_EQ(0, discard(self->fd, 0, PAGES));
		EXPECT_TRUE(holds(self->fd, 0));
	}
}

TEST_F(region, processes_share_what_each_of_them_touches)
{
	struct actmem_ioctl_create arg = region_of(2);
	char *memory;
	pid_t child;

	arg.flags = LAZY | ACTMEM_CREATE_INHERIT;
	ASSERT_LE(0, create(self->device, &arg));
	memory = mapped(map(arg.fd, 2));
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

TEST_F(region, advice_and_locks)
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
	/* To punch a hole. */
	EXPECT_ERRNO(EOPNOTSUPP, madvise(memory, LENGTH, MADV_REMOVE));
	EXPECT_EQ(7, memory[0]);
	EXPECT_EQ(1, demand_faults(self->fd));
	EXPECT_TRUE(holds(self->fd, 1));

	EXPECT_EQ(0, madvise(memory + PAGE_BYTES, PAGE_BYTES, MADV_POPULATE_READ));
	EXPECT_EQ(0, madvise(memory + 2 * PAGE_BYTES, PAGE_BYTES, MADV_POPULATE_WRITE));
	EXPECT_TRUE(holds(self->fd, 3));
	/* Marks nothing, as VM_DONTEXPAND is set, but has all pages allocated. */
	EXPECT_EQ(0, mlock(memory, LENGTH));
	EXPECT_TRUE(holds(self->fd, PAGES));
	EXPECT_EQ(PAGES, demand_faults(self->fd));
	EXPECT_EQ(0, smaps_bytes(memory, LENGTH, "Locked"));
	EXPECT_EQ(0, discard(self->fd, 0, PAGES));
	EXPECT_TRUE(holds(self->fd, 0));
	EXPECT_EQ(0, memory[0]);
	EXPECT_EQ(0, munlock(memory, LENGTH));
}

TEST_F(region, its_faults_are_nobody_elses_to_handle)
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

TEST_F(region, another_process_may_touch_it_for_us)
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

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
