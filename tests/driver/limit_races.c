// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Processes that race for what a limit leaves: what they hold together is never
 * more than the limit, and in the end it is exactly that.
 */
#define LIMIT		7

#include "race_test.h"

#define ROUNDS		150
#define HELD_MAX	4

/* What one process holds. */
struct holding {
	int fd;
	int pages;
};

static void give_up(struct holding *holding)
{
	if (!holding->pages)
		return;
	__atomic_sub_fetch(&race->held, holding->pages, __ATOMIC_SEQ_CST);
	close(holding->fd);
	holding->pages = 0;
}

static bool is_refusal(int err)
{
	return err == -EDQUOT || err == -ENOMEM;
}

/* At once, or as a lazy region that is populated: 0 if that was refused. */
static int take(struct holding *holding, int pages, bool lazily)
{
	struct actmem_ioctl_create arg = region_on(pages, ACTMEM_POLICY_BIND, 1);
	struct actmem_ioctl_range all = { .size = sizeof(all), .length = arg.length };
	int err;

	arg.flags = lazily ? LAZY : 0;
	err = create(race->device, &arg);
	if (err < 0)
		return is_refusal(err) ? 0 : err;
	err = lazily ? call(arg.fd, ACTMEM_IOC_POPULATE, &all) : 0;
	if (err) {
		close(arg.fd);
		return is_refusal(err) ? 0 : err;
	}
	*holding = (struct holding){ arg.fd, pages };
	claim(pages);
	return pages;
}

static int take_and_give_up(struct holding *holdings, unsigned int seed)
{
	int round;

	for (round = 0; round < ROUNDS; round++) {
		struct holding *holding = &holdings[rand_r(&seed) % HELD_MAX];

		give_up(holding);
		CHECK(take(holding, 1 + rand_r(&seed) % 3, rand_r(&seed) & 1) >= 0);
	}
	return 0;
}

static int race_to_the_end(int seed)
{
	struct holding holdings[HELD_MAX] = {}, last[LIMIT + 1] = {};
	int i, line;

	line = take_and_give_up(holdings, seed);
	__atomic_add_fetch(&race->done, 1, __ATOMIC_SEQ_CST);
	/* Nobody gives up anything any more: each page that is left goes to somebody. */
	pthread_barrier_wait(&race->barrier);
	for (i = 0; i <= LIMIT && !line; i++) {
		int got = take(&last[i], 1, false);

		if (got < 0)
			line = __LINE__;
		if (got <= 0)
			break;
	}
	/* For the test to look, and to have looked. */
	pthread_barrier_wait(&race->barrier);
	pthread_barrier_wait(&race->barrier);
	return line;
}

FIXTURE(race)
{
	int device;
	pid_t workers[WORKERS];
};

FIXTURE_SETUP(race)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
	make_race(self->device, WORKERS + 1);
	ASSERT_EQ(0, set_memlock(1000 * PAGE_BYTES));
}

FIXTURE_TEARDOWN(race)
{
	EXPECT_EQ(0, set_limit(SYSFS "/node0/limit_bytes", -1));
	EXPECT_EQ(0, set_limit(SYSFS "/user_limit_bytes", -1));
	EXPECT_EQ(0, regions());
	close(self->device);
}

static void start(pid_t workers[WORKERS], uid_t even, uid_t odd)
{
	int i;

	for (i = 0; i < WORKERS; i++)
		workers[i] = start_child(i & 1 ? odd : even, race_to_the_end, i);
}

/* Bytes held while nobody gives up or takes anything. */
static void expect_all_taken(struct __test_metadata *_metadata, const pid_t workers[WORKERS])
{
	int i;

	pthread_barrier_wait(&race->barrier);
	pthread_barrier_wait(&race->barrier);
	EXPECT_EQ(LIMIT, race->held);
	EXPECT_FALSE(race->exceeded);
	EXPECT_EQ(LIMIT * (long)PAGE_BYTES, node_sum("region_bytes"));
	pthread_barrier_wait(&race->barrier);
	for (i = 0; i < WORKERS; i++)
		EXPECT_EQ(0, wait_for(workers[i]));
}

TEST_F(race, for_memlock)
{
	ASSERT_EQ(0, set_memlock(LIMIT * PAGE_BYTES));
	start(self->workers, USER, USER);
	expect_all_taken(_metadata, self->workers);
}

TEST_F(race, for_the_limit_of_each_user)
{
	ASSERT_EQ(0, set_limit(SYSFS "/user_limit_bytes", LIMIT));
	start(self->workers, USER, USER);
	expect_all_taken(_metadata, self->workers);
}

TEST_F(race, for_the_limit_of_a_node)
{
	ASSERT_EQ(0, set_limit(SYSFS "/node0/limit_bytes", LIMIT));
	start(self->workers, USER, OTHER_USER);
	expect_all_taken(_metadata, self->workers);
}

/* Whichever refuses, what the other has reserved comes back. */
TEST_F(race, for_the_limits_of_user_and_node)
{
	ASSERT_EQ(0, set_limit(SYSFS "/user_limit_bytes", LIMIT + 1));
	ASSERT_EQ(0, set_limit(SYSFS "/node0/limit_bytes", LIMIT));
	start(self->workers, USER, USER);
	expect_all_taken(_metadata, self->workers);
}

static int left_by_memlock(int device)
{
	int pages = 0;

	while (create_pages(device, 1) >= 0)
		pages++;
	CHECK(pages == LIMIT);
	return 0;
}

/* Whatever was charged to whom, all of it is uncharged there. */
TEST_F(race, with_limits_that_change)
{
	static const char *const limits[] = { "max", "6291456", "max", "33554432", "0" };
	int i;

	ASSERT_EQ(0, set_memlock(LIMIT * PAGE_BYTES));
	/* Each holds for itself, and there is more for all than one limit says. */
	start(self->workers, USER, USER);
	for (i = 0; __atomic_load_n(&race->done, __ATOMIC_SEQ_CST) < WORKERS; i++) {
		ASSERT_EQ(0, put(SYSFS "/user_limit_bytes", limits[i % 5]));
		EXPECT_LE(0, regions());
	}
	ASSERT_EQ(0, put(SYSFS "/user_limit_bytes", "max"));
	for (i = 0; i < 3; i++)
		pthread_barrier_wait(&race->barrier);
	for (i = 0; i < WORKERS; i++)
		EXPECT_EQ(0, wait_for(self->workers[i]));
	EXPECT_EQ(0, as_user(USER, left_by_memlock, self->device));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
