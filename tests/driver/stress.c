// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * No byte is lost and no page leaks while processes on all processors touch,
 * pin, read from a disk, fork, populate and discard pages of shared regions.
 *
 * Each worker is the only one to write to a small page of its own in every
 * huge page, so that it knows what must be there. Every other pair of pages is
 * kept: nobody discards those, and a worker finds what it wrote last. The pages
 * between may be discarded at any time: each word of a worker is what it wrote
 * last, or zero. Anything else, older or of another page, is somebody's page in
 * the wrong hands. A page between that the worker holds by a pipe is kept for
 * that time, and what the pipe has must be that page.
 *
 * ACTMEM_STRESS_ROUNDS is how much each worker does.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "pool_test.h"

#define DISK		"/dev/nvme0n1"
#define WORKERS		4
#define REGIONS		2
#define PAGES		16
#define ALL		(PAGES * PAGE_BYTES)
#define ROUNDS		800
#define WORDS		4

/* Unmaps pages now and then, to see who touches them. */
#define BALANCING	"/proc/sys/kernel/numa_balancing"

/* What happened, so that a stress in which nothing happens fails. */
struct tally {
	atomic_long discarded;
	atomic_long busy;
	atomic_long zeros;
	atomic_long held;
	atomic_long transferred;
	atomic_long forked;
};

struct worker {
	struct tally *tally;
	int fds[REGIONS];
	char *memory[REGIONS];
	int disk;			/* -1: there is none */
	char *block;			/* ordinary memory for O_DIRECT */
	unsigned int number;
	unsigned int sequence;
	uint64_t random;
	uint64_t last[REGIONS][PAGES];
	bool is_holding;
	unsigned int held_region;
	unsigned int held_page;
	int ends[2];			/* of the pipe that holds it */
};

static bool holds(const struct worker *worker, unsigned int region, unsigned int page)
{
	return worker->is_holding && worker->held_region == region && worker->held_page == page;
}

static bool is_kept(const struct worker *worker, unsigned int region, unsigned int page)
{
	return page % 4 < 2 || holds(worker, region, page);
}

static unsigned int choose(struct worker *worker, unsigned int count)
{
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 7;
	worker->random ^= worker->random << 17;
	return (worker->random >> 33) % count;
}

/* The worker's small page: they lie at the edges, and in the middle. */
static char *own(struct worker *worker, unsigned int region, unsigned int page)
{
	static const size_t places[WORKERS] = { 0, PAGE_BYTES - 4096, 4096, PAGE_BYTES / 2 };

	return worker->memory[region] + page * PAGE_BYTES + places[worker->number];
}

/* Says who wrote it where and when; never 0. */
static uint64_t new_stamp(struct worker *worker, unsigned int region, unsigned int page)
{
	return 1ULL << 63 | (uint64_t)worker->number << 56 | (uint64_t)region << 48 |
	       (uint64_t)page << 32 | ++worker->sequence;
}

static volatile uint64_t *word(char *small_page, unsigned int i)
{
	return (volatile uint64_t *)(small_page + i * (4096 / WORDS) + i * sizeof(uint64_t));
}

static void write_stamp(char *small_page, uint64_t stamp)
{
	unsigned int i;

	for (i = 0; i < WORDS; i++)
		*word(small_page, i) = stamp;
}

/* All of the worker's words are @stamp, or zero where that may be. */
static bool has_stamp(struct worker *worker, char *small_page, uint64_t stamp, bool may_be_zero)
{
	unsigned int i;

	for (i = 0; i < WORDS; i++) {
		uint64_t found = *word(small_page, i);

		if (found == stamp)
			continue;
		if (!found && may_be_zero) {
			atomic_fetch_add(&worker->tally->zeros, 1);
			continue;
		}
		fprintf(stderr, "# worker %u finds %016llx, not %016llx\n", worker->number,
			(unsigned long long)found, (unsigned long long)stamp);
		return false;
	}
	return true;
}

static bool is_as_left(struct worker *worker, unsigned int region, unsigned int page)
{
	return has_stamp(worker, own(worker, region, page), worker->last[region][page],
			 !is_kept(worker, region, page));
}

static int touch_page(struct worker *worker, unsigned int region, unsigned int page)
{
	CHECK(is_as_left(worker, region, page));
	worker->last[region][page] = new_stamp(worker, region, page);
	write_stamp(own(worker, region, page), worker->last[region][page]);
	CHECK(is_as_left(worker, region, page));
	return 0;
}

/* It may have been discarded until the pipe has it, but not from then on. */
static int hold_page(struct worker *worker, unsigned int region, unsigned int page)
{
	CHECK(!touch_page(worker, region, page));
	CHECK(!hold(own(worker, region, page), worker->ends));
	worker->last[region][page] = new_stamp(worker, region, page);
	write_stamp(own(worker, region, page), worker->last[region][page]);
	worker->is_holding = true;
	worker->held_region = region;
	worker->held_page = page;
	CHECK(is_as_left(worker, region, page));
	atomic_fetch_add(&worker->tally->held, 1);
	return 0;
}

static int release_page(struct worker *worker)
{
	unsigned int region = worker->held_region, page = worker->held_page;
	char bytes[4096] __attribute__((aligned(8)));

	CHECK(is_as_left(worker, region, page));
	CHECK(read(worker->ends[0], bytes, 4096) == 4096);
	CHECK(has_stamp(worker, bytes, worker->last[region][page], false));
	let_go(worker->ends);
	worker->is_holding = false;
	return 0;
}

/* The disk reads from the region, or writes to it. */
static int transfer(struct worker *worker, unsigned int region, unsigned int page)
{
	off_t place = worker->number * 4096;
	char *small_page = own(worker, region, page);
	uint64_t stamp = new_stamp(worker, region, page);

	if (worker->disk < 0)
		return 0;
	if (choose(worker, 2)) {
		memset(worker->block, 0, 4096);
		write_stamp(worker->block, stamp);
		CHECK(pwrite(worker->disk, worker->block, 4096, place) == 4096);
		CHECK(pread(worker->disk, small_page, 4096, place) == 4096);
		worker->last[region][page] = stamp;
		CHECK(is_as_left(worker, region, page));
	} else {
		CHECK(pwrite(worker->disk, small_page, 4096, place) == 4096);
		memset(worker->block, 0xff, 4096);
		CHECK(pread(worker->disk, worker->block, 4096, place) == 4096);
		CHECK(has_stamp(worker, worker->block, worker->last[region][page],
				!is_kept(worker, region, page)));
	}
	atomic_fetch_add(&worker->tally->transferred, 1);
	return 0;
}

/* A child with all the mappings, which may be killed while it holds a page. */
static int fork_child(struct worker *worker, unsigned int region, unsigned int page)
{
	bool is_killed = choose(worker, 2);
	pid_t child = fork();
	int ends[2];

	CHECK(child >= 0);
	if (!child) {
		unsigned int i;

		for (i = 0; i < PAGES; i++)
			if (!is_as_left(worker, region, i))
				_exit(1);
		if (hold(own(worker, region, page), ends))
			_exit(2);
		if (is_killed)
			raise(SIGKILL);
		_exit(0);
	}
	CHECK(wait_for(child) == (is_killed ? -1 : 0));
	atomic_fetch_add(&worker->tally->forked, 1);
	return 0;
}

/* One or both of a pair between those that are kept. */
static int discard_some(struct worker *worker, unsigned int region, unsigned int page)
{
	struct actmem_ioctl_range arg;
	unsigned int first = page / 4 * 4 + 2 + page % 2;
	unsigned int count = first % 2 ? 1 : 1 + choose(worker, 2);
	bool must_fail = holds(worker, region, first) ||
			 (count > 1 && holds(worker, region, first + 1));
	int err = change_range(worker->fds[region], ACTMEM_IOC_DISCARD, first, count, &arg);

	CHECK(err == -EBUSY || (!err && !must_fail));
	CHECK(err ? arg.done < count * PAGE_BYTES : arg.done == count * PAGE_BYTES);
	atomic_fetch_add(err ? &worker->tally->busy : &worker->tally->discarded, 1);
	return 0;
}

static int remap(struct worker *worker, unsigned int region)
{
	CHECK(!munmap(worker->memory[region], ALL));
	worker->memory[region] = map(worker->fds[region], PAGES);
	CHECK(worker->memory[region] != MAP_FAILED);
	return 0;
}

static int act(struct worker *worker)
{
	unsigned int region = choose(worker, REGIONS), page = choose(worker, PAGES);

	switch (choose(worker, 16)) {
	case 0:
		return fork_child(worker, region, page);
	case 1:
		return remap(worker, region);
	case 2:
		CHECK(!populate(worker->fds[region], page, 1 + choose(worker, PAGES - page)));
		return 0;
	case 3:
	case 4:
		return worker->is_holding ? release_page(worker) :
					    hold_page(worker, region, page);
	case 5:
	case 6:
		return transfer(worker, region, page);
	case 7:
	case 8:
	case 9:
	case 10:
		return discard_some(worker, region, page);
	default:
		return touch_page(worker, region, page);
	}
}

static int work(struct worker *worker, long rounds)
{
	unsigned int region, page;
	int line = 0;

	for (region = 0; region < REGIONS; region++)
		worker->memory[region] = map(worker->fds[region], PAGES);
	while (!line && rounds--)
		line = act(worker);
	if (!line && worker->is_holding)
		line = release_page(worker);
	for (region = 0; region < REGIONS && !line; region++)
		for (page = 0; page < PAGES && !line; page++)
			if (!is_as_left(worker, region, page))
				line = __LINE__;
	return line;
}

static long rounds_wanted(void)
{
	const char *text = getenv("ACTMEM_STRESS_ROUNDS");

	return text ? atol(text) : ROUNDS;
}

static void start(struct worker *worker, unsigned int number, pid_t *pid)
{
	int line;

	*pid = fork();
	if (*pid)
		return;
	worker->number = number;
	worker->random = 0x9e3779b97f4a7c15ULL * (number + 1);
	line = work(worker, rounds_wanted());
	if (line)
		fprintf(stderr, "# line %d fails in worker %u\n", line, number);
	_exit(!!line);
}

FIXTURE(stress)
{
	int device;
	struct worker worker;
};

FIXTURE_SETUP(stress)
{
	struct actmem_ioctl_create arg = region_of(PAGES);
	unsigned int i;

	self->device = open_device();
	ASSERT_EQ(0, regions());
	memset(&self->worker, 0, sizeof(self->worker));
	self->worker.tally = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->worker.tally);
	self->worker.block = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, self->worker.block);
	self->worker.disk = open(DISK, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (self->worker.disk < 0)
		TH_LOG("without direct I/O: there is no " DISK);
	if (!access(BALANCING, W_OK))
		ASSERT_EQ(0, put(BALANCING, "1"));
	arg.flags = LAZY | ACTMEM_CREATE_INHERIT;
	for (i = 0; i < REGIONS; i++) {
		ASSERT_LE(0, create(self->device, &arg));
		self->worker.fds[i] = arg.fd;
	}
}

/* Nothing is held by anybody any more, so that all of it can go. */
FIXTURE_TEARDOWN(stress)
{
	struct actmem_ioctl_info now;
	unsigned int i;

	if (!access(BALANCING, W_OK))
		EXPECT_EQ(0, put(BALANCING, "0"));
	for (i = 0; i < REGIONS; i++) {
		ASSERT_EQ(0, info(self->worker.fds[i], 0, &now));
		EXPECT_EQ(0, now.mapped_bytes);
		EXPECT_EQ(0, now.pinned_bytes);
		EXPECT_EQ(0, discard(self->worker.fds[i], 0, PAGES));
		EXPECT_EQ(0, pages_held(self->worker.fds[i]));
		close(self->worker.fds[i]);
	}
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, lingering_regions());
	EXPECT_EQ(0, node_sum("region_bytes"));
	if (self->worker.disk >= 0)
		close(self->worker.disk);
	close(self->device);
}

static void run_workers(struct __test_metadata *_metadata, struct worker *worker)
{
	struct tally *tally = worker->tally;
	pid_t workers[WORKERS];
	int i;

	for (i = 0; i < WORKERS; i++)
		start(worker, i, &workers[i]);
	for (i = 0; i < WORKERS; i++)
		EXPECT_EQ(0, wait_for(workers[i]));
	TH_LOG("discards %ld, refused %ld, zeros %ld, held %ld, transfers %ld, forks %ld",
	       tally->discarded, tally->busy, tally->zeros, tally->held, tally->transferred,
	       tally->forked);
	EXPECT_LT(0, tally->discarded);
	EXPECT_LT(0, tally->busy);
	EXPECT_LT(0, tally->zeros);
	EXPECT_LT(0, tally->held);
	EXPECT_LT(0, tally->forked);
	EXPECT_EQ(worker->disk >= 0, tally->transferred > 0);
}

TEST_F(stress, no_byte_is_lost)
{
	run_workers(_metadata, &self->worker);
}

/* Nothing but faults on a page that is discarded all the time. */
TEST_F(stress, faults_meet_discards)
{
	pid_t workers[WORKERS];
	long round;
	int i;

	for (i = 0; i < WORKERS; i++) {
		workers[i] = fork();
		if (!workers[i]) {
			volatile char *memory = map(self->worker.fds[0], PAGES);

			for (;;)
				(void)memory[i * 4096];
		}
		ASSERT_LT(0, workers[i]);
	}
	/* It may take the workers a while to begin. */
	for (round = 0; round < rounds_wanted() ||
	     demand_faults(self->worker.fds[0]) < rounds_wanted() / 8; round++) {
		int err = discard(self->worker.fds[0], 0, 1);

		ASSERT_TRUE(!err || err == -EBUSY);
	}
	for (i = 0; i < WORKERS; i++) {
		kill(workers[i], SIGKILL);
		EXPECT_EQ(-1, wait_for(workers[i]));
	}
}

/* Pages go round through a pool that is smaller than what is in use. */
TEST_F(stress, no_byte_is_lost_with_a_pool)
{
	ASSERT_EQ(0, set_pool(0, 8));
	run_workers(_metadata, &self->worker);
	EXPECT_EQ(0, set_pool(0, 0));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
