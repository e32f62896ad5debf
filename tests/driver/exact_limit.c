// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A limit of just what a region needs lets everybody have it: whoever touches
 * its pages at the same time, populates or discards them. What is refused to one
 * of them would be SIGBUS, which ends the process.
 */
#include <pthread.h>

#include "driver_test.h"

#define PAGES		4
#define THREADS		4
#define ROUNDS		60

enum beside { NOBODY, POPULATES, DISCARDS };

/* Whose limit it is: of the user's RLIMIT_MEMLOCK, or of the node that all pages are on. */
enum limit { MEMLOCK, NODE };

struct crowd {
	int fd;
	unsigned char *memory;
	enum beside beside;
	pthread_barrier_t barrier;
	/* Of the one beside; errors add up. */
	int err;
	bool ended;
};

static void *touch_with_others(void *arg)
{
	struct crowd *crowd = arg;
	int round, i;

	for (round = 0; round < ROUNDS; round++) {
		for (i = 0; i < PAGES; i++) {
			pthread_barrier_wait(&crowd->barrier);
			__atomic_fetch_add(crowd->memory + i * PAGE_BYTES, 1, __ATOMIC_RELAXED);
		}
		/* One of them makes room, or there is somebody who does. */
		if (pthread_barrier_wait(&crowd->barrier) && crowd->beside != DISCARDS) {
			int err = discard(crowd->fd, 0, PAGES);

			/* It is populated again this very moment. */
			if (err && !(crowd->beside == POPULATES && err == -EBUSY))
				crowd->err++;
		}
	}
	return NULL;
}

static void *go_on_beside(void *arg)
{
	struct crowd *crowd = arg;
	int i;

	for (i = 0; !__atomic_load_n(&crowd->ended, __ATOMIC_RELAXED); i++) {
		int err = crowd->beside == POPULATES ? populate(crowd->fd, 0, PAGES) :
						       discard(crowd->fd, i % PAGES, 1);

		/* Somebody touches it this very moment. */
		if (err && !(crowd->beside == DISCARDS && err == -EBUSY))
			crowd->err++;
	}
	return NULL;
}

static int create_on_node(int device, size_t pages, uint32_t flags)
{
	struct actmem_ioctl_create arg = region_on(pages, ACTMEM_POLICY_BIND, 1);

	arg.flags = flags;
	return create(device, &arg);
}

static int crowd_with(int device, enum beside beside, enum limit limit)
{
	struct crowd crowd = { .beside = beside };
	pthread_t threads[THREADS], other;
	int i;

	CHECK(!set_memlock(PAGES * PAGE_BYTES));
	crowd.fd = must(create_on_node(device, PAGES, LAZY));
	crowd.memory = mapped(map(crowd.fd, PAGES));
	CHECK(!pthread_barrier_init(&crowd.barrier, NULL, THREADS));
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, touch_with_others, &crowd));
	if (beside != NOBODY)
		CHECK(!pthread_create(&other, NULL, go_on_beside, &crowd));
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	__atomic_store_n(&crowd.ended, true, __ATOMIC_RELAXED);
	if (beside != NOBODY)
		pthread_join(other, NULL);
	CHECK(!crowd.err);

	/* It was all that there is. */
	CHECK(!populate(crowd.fd, 0, PAGES));
	CHECK(create_on_node(device, 1, 0) == (limit == NODE ? -EDQUOT : -ENOMEM));
	CHECK(!discard(crowd.fd, 0, PAGES));
	close(crowd.fd);
	return 0;
}

/* Of each test, for the function that its child runs. */
static enum beside beside;
static enum limit limit;

static int crowd(int device)
{
	return crowd_with(device, beside, limit);
}

TEST_F(driver, touched_by_many)
{
	limit = MEMLOCK;
	for (beside = NOBODY; beside <= DISCARDS; beside++)
		EXPECT_EQ(0, as_user(USER, crowd, self->device));
}

TEST_F(driver, of_a_node)
{
	ASSERT_EQ(0, set_limit(SYSFS "/node0/limit_bytes", PAGES));
	limit = NODE;
	for (beside = POPULATES; beside <= DISCARDS; beside++)
		EXPECT_EQ(0, as_user(USER, crowd, self->device));
	EXPECT_EQ(0, set_limit(SYSFS "/node0/limit_bytes", -1));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
