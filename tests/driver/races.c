// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Many at once: regions are made, mapped, pinned, passed over by a kill, and
 * go, while others ask about all of them.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/uio.h>

#include "driver_test.h"

#define WORKERS	4
#define ROUNDS	60
#define PAGES	3

/* One life of a region, in one of several ways; in a child if it is killed. */
static int live(int device, unsigned int way)
{
	int fd = create_pages(device, PAGES), ends[2];
	struct iovec vector;
	char *memory;

	CHECK(fd >= 0);
	memory = map(fd, PAGES);
	CHECK(memory != MAP_FAILED);
	if (way & 1)
		memory[PAGE_BYTES] = 1;
	if (way & 2) {
		vector = (struct iovec){ memory + (way % PAGES) * PAGE_BYTES, 4096 };
		CHECK(!pipe2(ends, O_CLOEXEC));
		CHECK(vmsplice(ends[1], &vector, 1, 0) == 4096);
	}
	if (way & 4)
		raise(SIGKILL);
	close(fd);
	munmap(memory, PAGES * PAGE_BYTES);
	if (way & 2) {
		close(ends[0]);
		close(ends[1]);
	}
	return 0;
}

static int work(int device, unsigned int number)
{
	unsigned int round;

	for (round = 0; round < ROUNDS; round++) {
		unsigned int way = round * 5 + number;
		pid_t child;

		if (!(way & 4)) {
			CHECK(!live(device, way));
			continue;
		}
		child = fork();
		if (!child)
			_exit(live(device, way));
		CHECK(wait_for(child) == -1);
	}
	return 0;
}

/* Asks about everything; nothing that it learns may be impossible. */
static int ask(int device)
{
	struct actmem_ioctl_info now;
	uint64_t ids[64];
	int count, i;

	/* Not of one moment: regions that came while it was made are in it, too. */
	count = list(device, ids, 64);
	CHECK(count >= 0 && count <= 64);
	for (i = 0; i < count; i++) {
		int err = info(device, ids[i], &now);

		if (err == -ENOENT)
			continue;
		CHECK(!err);
		CHECK(now.id == ids[i] && now.length == PAGES * PAGE_BYTES);
		CHECK(now.allocated_bytes <= now.length);
		CHECK(now.mapped_bytes <= now.length && now.pinned_bytes <= now.length);
	}
	return 0;
}

TEST_F(driver, many_at_once)
{
	pid_t workers[WORKERS];
	int i, left = WORKERS;

	for (i = 0; i < WORKERS; i++) {
		workers[i] = fork();
		if (!workers[i]) {
			int line = work(self->device, i);

			if (line)
				fprintf(stderr, "# line %d fails in a worker\n", line);
			_exit(!!line);
		}
	}
	for (i = 0; left; i = (i + 1) % WORKERS) {
		int status, line = ask(self->device);

		EXPECT_EQ(0, line);
		if (workers[i] && waitpid(workers[i], &status, WNOHANG) == workers[i]) {
			EXPECT_EQ(0, status);
			workers[i] = 0;
			left--;
		}
	}
	EXPECT_EQ(0, regions());
}

struct faulter {
	char *memory;
	pthread_barrier_t *start;
};

static void *fault_all(void *context)
{
	struct faulter *faulter = context;
	size_t i;

	pthread_barrier_wait(faulter->start);
	for (i = 0; i < PAGES; i++)
		__atomic_fetch_add((int *)(faulter->memory + i * PAGE_BYTES), 1, __ATOMIC_RELAXED);
	return NULL;
}

TEST_F(driver, threads_that_fault_on_the_same_page)
{
	struct actmem_ioctl_info now;
	pthread_t threads[WORKERS];
	pthread_barrier_t start;
	struct faulter faulter;
	int round, i;

	ASSERT_EQ(0, pthread_barrier_init(&start, NULL, WORKERS));
	for (round = 0; round < 20; round++) {
		int fd = create_pages(self->device, PAGES);

		ASSERT_LE(0, fd);
		faulter = (struct faulter){ map(fd, PAGES), &start };
		ASSERT_NE(MAP_FAILED, faulter.memory);
		for (i = 0; i < WORKERS; i++)
			ASSERT_EQ(0, pthread_create(&threads[i], NULL, fault_all, &faulter));
		for (i = 0; i < WORKERS; i++)
			ASSERT_EQ(0, pthread_join(threads[i], NULL));
		EXPECT_EQ(WORKERS, *(int *)(faulter.memory + (PAGES - 1) * PAGE_BYTES));
		EXPECT_EQ(PAGES * PAGE_BYTES, pmd_mapped(faulter.memory, PAGES * PAGE_BYTES));
		ASSERT_EQ(0, info(fd, 0, &now));
		EXPECT_EQ(0, now.pinned_bytes);
		EXPECT_EQ(PAGES * PAGE_BYTES, now.mapped_bytes);
		munmap(faulter.memory, PAGES * PAGE_BYTES);
		close(fd);
	}
}

struct closer {
	int fd;
	pthread_barrier_t *start;
};

static void *close_one(void *context)
{
	struct closer *closer = context;

	pthread_barrier_wait(closer->start);
	close(closer->fd);
	return NULL;
}

/* Either may be the last to let go of the file. */
TEST_F(driver, a_watch_goes_with_its_region)
{
	pthread_barrier_t start;
	struct closer closer;
	pthread_t thread;
	char path[64];
	int round, fd;

	ASSERT_EQ(0, pthread_barrier_init(&start, NULL, 2));
	for (round = 0; round < 200; round++) {
		fd = create_pages(self->device, 1);
		ASSERT_LE(0, fd);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		closer = (struct closer){ inotify_init1(IN_CLOEXEC), &start };
		ASSERT_LE(0, inotify_add_watch(closer.fd, path, IN_ALL_EVENTS));
		ASSERT_EQ(0, pthread_create(&thread, NULL, close_one, &closer));
		pthread_barrier_wait(&start);
		close(fd);
		ASSERT_EQ(0, pthread_join(thread, NULL));
		ASSERT_EQ(0, regions());
	}
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
