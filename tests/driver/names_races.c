// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Processes that race for what a mount's limit leaves, by all ways to have pages:
 * what they hold together is never more than the limit, and in the end exactly
 * that. Meanwhile names come and go, and the limit changes.
 */
#include "names_test.h"
#include "race_test.h"

#define ROUNDS		120
#define PAGES		3

/* Of a length by the create call, or by ftruncate: pages, 0 if refused, or an error. */
static int take(int fd, int pages, unsigned int way)
{
	struct actmem_ioctl_create arg = region_of(pages);
	int err;

	if (way % 2)
		err = call(fd, ACTMEM_IOC_CREATE, &arg);
	else
		err = ftruncate(fd, pages * PAGE_BYTES) ? -errno : 0;
	err = err ?: populate(fd, 0, pages);
	if (err)
		return err == -ENOSPC ? 0 : err;
	claim(pages);
	return pages;
}

/* A file of so many pages, or none. */
static int take_file(const char *path, int pages, unsigned int way)
{
	int fd = make_file(path), taken;

	if (fd < 0)
		return fd;
	taken = take(fd, pages, way);
	if (taken <= 0)
		unlink(path);
	close(fd);
	return taken;
}

static int race_to_the_end(int number)
{
	unsigned int seed = number + 1;
	char path[64];
	int round, taken;

	snprintf(path, sizeof(path), AT "/%d", number);
	for (round = 0; round < ROUNDS; round++) {
		taken = take_file(path, 1 + rand_r(&seed) % PAGES, rand_r(&seed));
		CHECK(taken >= 0);
		if (taken) {
			__atomic_sub_fetch(&race->held, taken, __ATOMIC_SEQ_CST);
			CHECK(!unlink(path));
		}
	}
	/* From now on each page that is left goes to somebody. */
	pthread_barrier_wait(&race->barrier);
	for (round = 0; ; round++) {
		snprintf(path, sizeof(path), AT "/%d-%d", number, round);
		taken = take_file(path, 1, round);
		CHECK(taken >= 0);
		if (!taken)
			return 0;
	}
}

TEST_F(names, a_race_ends_exactly_at_the_limit)
{
	pid_t workers[WORKERS];
	int i;

	make_race(self->device, WORKERS);
	for (i = 0; i < WORKERS; i++)
		workers[i] = start_child(0, race_to_the_end, i);
	for (i = 0; i < WORKERS; i++)
		EXPECT_EQ(0, wait_for(workers[i]));
	EXPECT_FALSE(race->exceeded);
	EXPECT_EQ(LIMIT, race->held);
	EXPECT_EQ(LIMIT, pages_used(AT));
	EXPECT_EQ(LIMIT * (long)PAGE_BYTES, node_sum("region_bytes"));
	munmap(race, sizeof(*race));
}

static int touch_all(int number)
{
	char *memory = mapped(map(open(AT "/shared", O_RDWR | O_CLOEXEC), LIMIT + 2));
	size_t i;

	for (i = 0; i < LIMIT + 2; i++)
		memory[(i + number) % (LIMIT + 2) * PAGE_BYTES] = 1;
	return 0;
}

/* All but the last pages under the limit are had by whoever touches them first. */
TEST_F(names, touching_ends_exactly_at_the_limit)
{
	int fd = must(make_named(AT "/shared", LIMIT + 2)), i, status;
	pid_t workers[WORKERS];

	for (i = 0; i < WORKERS; i++)
		workers[i] = start_child(0, touch_all, i);
	for (i = 0; i < WORKERS; i++) {
		ASSERT_EQ(workers[i], waitpid(workers[i], &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
	}
	EXPECT_EQ(LIMIT, pages_used(AT));
	EXPECT_EQ(LIMIT, pages_allocated(fd));
	close(fd);
}

static void *change_limit(void *context)
{
	bool *done = context;
	int i;

	/* Up and down, also below the usage. */
	for (i = 0; !__atomic_load_n(done, __ATOMIC_SEQ_CST); i++) {
		if (remount_names(AT, i % 2 ? "size=4M" : "size=16M"))
			return (void *)1;
	}
	return NULL;
}

TEST_F(names, the_limit_changes_under_the_race)
{
	pthread_t changer;
	bool done = false;
	void *wrong;
	int round, fd, err;

	ASSERT_EQ(0, pthread_create(&changer, NULL, change_limit, &done));
	for (round = 0; round < ROUNDS; round++) {
		fd = must(make_named(AT "/region", LIMIT));
		err = populate(fd, 0, 1 + round % LIMIT);
		EXPECT_TRUE(!err || err == -ENOSPC);
		close(fd);
		ASSERT_EQ(0, unlink(AT "/region"));
	}
	__atomic_store_n(&done, true, __ATOMIC_SEQ_CST);
	ASSERT_EQ(0, pthread_join(changer, &wrong));
	EXPECT_EQ(NULL, wrong);
	EXPECT_EQ(0, pages_used(AT));
}

/* A name is taken away and made anew while others open, map and read it. */
static int use_while_it_goes(int number)
{
	char byte;
	int round;

	for (round = 0; round < ROUNDS; round++) {
		int fd = open(AT "/region", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
		char *memory;

		CHECK(fd >= 0);
		if (!ftruncate(fd, PAGE_BYTES)) {
			memory = mapped(map(fd, 1));
			CHECK(pread(fd, &byte, 1, 0) == 1);
			memory[0] = number;
			CHECK(memory[PAGE_BYTES - 1] == 0);
			munmap(memory, PAGE_BYTES);
		}
		if (round % 3 == 0)
			unlink(AT "/region");
		else if (round % 3 == 1)
			rename(AT "/region", AT "/renamed");
		close(fd);
	}
	return 0;
}

TEST_F(names, names_come_and_go)
{
	pid_t workers[WORKERS];
	int i;

	for (i = 0; i < WORKERS; i++)
		workers[i] = start_child(0, use_while_it_goes, i + 1);
	for (i = 0; i < WORKERS; i++)
		EXPECT_EQ(0, wait_for(workers[i]));
	unlink(AT "/region");
	unlink(AT "/renamed");
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, pages_used(AT));
}

/* Is ended before it has all of them. */
static int allocate_much(int pages)
{
	int fd = open(AT "/much", O_RDWR | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK(!ftruncate(fd, pages * PAGE_BYTES));
	CHECK(!populate(fd, 0, pages));
	return 0;
}

/* While a file gets its pages, which takes long, others need not wait for it. */
TEST_F(names, removed_while_it_gets_its_pages)
{
	size_t pages = (node_memory(0, "MemFree") + node_memory(1, "MemFree") +
			node_memory(2, "MemFree")) / PAGE_BYTES * 3 / 4;
	pid_t child;
	int fd;

	ASSERT_EQ(0, remount_names(AT, "size=100%"));
	fd = must(make_file(AT "/much"));
	child = start_child(0, allocate_much, pages);
	ASSERT_LT(0, child);
	while (!regions())
		usleep(1000);
	EXPECT_EQ(0, rename(AT "/much", AT "/other"));
	EXPECT_EQ(0, unlink(AT "/other"));
	EXPECT_GT(pages * PAGE_BYTES, node_sum("region_bytes"));
	EXPECT_EQ(0, kill(child, SIGKILL));
	EXPECT_NE(0, wait_for(child));
	EXPECT_EQ(1, regions());
	close(fd);
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, node_sum("region_bytes"));
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
