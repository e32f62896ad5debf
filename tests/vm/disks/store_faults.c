/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store by each engine whose spill files lie on a disk that fails, changes what it
 * is given, is full, is slow or does not answer; in a memory cgroup that is as large
 * as it needs, or whose memory.high falls; and killed. No block is lost as long as the
 * disk gives it back.
 */
#include <pthread.h>

#include "disk.h"
#include "memory_group.h"
#include "../../store/store_folder.h"

#define BYTES		(128 * KIB)
#define BLOCKS		(2 * BUDGET / BYTES)
#define DISK_BYTES	(64 * MIB)
#define SPILL_BYTES	(16 * MIB)
#define FOLDER		"/tmp/store-disk"
#define KILLS		5
#define TIMES		8
#define GROUP_BYTES	(24 * MIB)
#define HIGH_BUDGET	(12 * MIB)
#define HIGH_BYTES	(8 * MIB)
#define ROUNDS		100

static struct disk disk;
static const char *const folder = FOLDER;

static struct actmem_store_options options_for(enum actmem_engine engine, uint32_t flags)
{
	static struct actmem_queue_options queue;
	struct actmem_store_options options = store_options(BUDGET, &folder, 1);

	options.flags = flags;
	/* There at once, so that the file system has nothing to do while the disk fails. */
	options.spill_bytes = SPILL_BYTES;
	ACTMEM_INIT(&queue);
	queue.engine = engine;
	options.queue = &queue;
	return options;
}

/* Where the disk has the only spill file, which is in one piece. */
static uint64_t place_of_file(void)
{
	int fds[SPILL_FILES_MAX];
	unsigned int count = open_spill_files(FOLDER, fds);
	uint64_t first = disk_place_of(fds[0], 0);

	if (count != 1 || disk_place_of(fds[0], SPILL_BYTES - 4096) != first + SPILL_BYTES - 4096)
		tap_bail("the spill file is in pieces");
	close_all(fds, count);
	return first;
}

/* What can be put; the error that ended it. */
static unsigned int put_all(struct actmem_store *store, unsigned int first, unsigned int end,
			    int *error)
{
	unsigned int i;

	for (i = first, *error = 0; i < end && !*error; i++)
		*error = put_named(store, i, BYTES);
	return i - !!*error;
}

/* Of blocks below @end that are there: how many fail with @error; none is wrong. */
static unsigned int take_some(struct actmem_store *store, unsigned int end, int error)
{
	unsigned int failed = 0, i;
	int result;

	for (i = end; i--; ) {
		result = take_named(store, i, BYTES);
		failed += result && result == error;
		if (result && result != error && result != -ENOENT)
			tap_bail("block %u comes back as %d", i, result);
	}
	return failed;
}

static void test_errors(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_store_options options = options_for(engine, 0);
	struct actmem_store *store = store_or_bail(am, &options);
	uint64_t place = place_of_file();
	unsigned int well, failed;
	int error;

	printf("# %s\n", actmem_store_describe(store));
	well = put_all(store, 0, BLOCKS, &error);
	if (error)
		tap_bail("put");
	await_quiet(store);
	disk_break(&disk, place, SPILL_BYTES);
	well = put_all(store, well, 4 * BLOCKS, &error);
	ok(error == -EIO, "a disk that fails is an error of the put that needs it to work");
	says(FOLDER);
	says("bytes at");
	returns(put_named(store, 4 * BLOCKS, BYTES), -EIO);
	ok(stats_of(store).blocks == well && stats_of(store).failed_spills_total,
	   "%u blocks stay", well);
	failed = take_some(store, well, -EIO);
	ok(failed, "%u of them are in its file, which is told when they are wanted", failed);
	ok(stats_of(store).failed_fills_total >= failed && stats_of(store).blocks == failed,
	   "and stay");
	disk_work(&disk);
	ok(!take_some(store, well, -EIO) && !stats_of(store).blocks,
	   "when it works again every block comes back as it was put");
	if (put_all(store, 0, BLOCKS, &error) != BLOCKS)
		tap_bail("put after the disk failed");
	ok(!take_some(store, BLOCKS, -EIO), "and the store goes on");
	destroy_empty(store);
}

static void test_allowed(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_store_options options = options_for(engine, ACTMEM_STORE_ALLOW_MEMORY);
	struct actmem_store *store = store_or_bail(am, &options);
	struct actmem_store_stats stats;
	int error;

	disk_break(&disk, place_of_file(), SPILL_BYTES);
	ok(put_all(store, 0, BLOCKS, &error) == BLOCKS,
	   "where that is allowed, what cannot be written stays in memory");
	stats = stats_of(store);
	ok(stats.beyond_budget_bytes && stats.failed_spills_total && !stats.spilled_bytes,
	   "%llu bytes beyond the budget", (unsigned long long)stats.beyond_budget_bytes);
	ok(!take_some(store, BLOCKS, 0), "and comes back");
	disk_work(&disk);
	if (put_all(store, 0, BLOCKS, &error) != BLOCKS)
		tap_bail("put after the disk failed");
	await_quiet(store);
	stats = stats_of(store);
	ok(stats.spilled_bytes && !stats.beyond_budget_bytes &&
	   stats.memory_bytes <= stats.budget_bytes,
	   "when the disk works again, it keeps to its budget again");
	ok(!take_some(store, BLOCKS, 0), "and all comes back");
	destroy_empty(store);
}

static void test_changed(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_store_options options = options_for(engine, ACTMEM_STORE_CHECKSUM);
	struct actmem_store *store = store_or_bail(am, &options);
	unsigned int failed;
	int error;

	if (put_all(store, 0, BLOCKS, &error) != BLOCKS)
		tap_bail("put");
	await_quiet(store);
	disk_corrupt(&disk);
	failed = take_some(store, BLOCKS, -EBADMSG);
	ok(failed, "%u blocks that the disk changed are told by their checksums", failed);
	disk_work(&disk);
	ok(stats_of(store).blocks == failed && !take_some(store, BLOCKS, -EBADMSG) &&
	   !stats_of(store).blocks, "and are right when the disk is");
	destroy_empty(store);
}

static void test_slow(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_store_options options = options_for(engine, ACTMEM_STORE_CHECKSUM);
	struct actmem_store *store = store_or_bail(am, &options);
	struct actmem_store_stats stats;
	unsigned int i;
	int error = 0;

	disk_delay(&disk, 10);
	for (i = 0; i < 2 && !error; i++)
		if (put_all(store, 0, BLOCKS, &error) != BLOCKS || take_some(store, BLOCKS, 0))
			error = -EIO;
	stats = stats_of(store);
	ok(!error && stats.takes_total == 2 * BLOCKS,
	   "a slow disk is waited for (%llu late, %llu not foreseen)",
	   (unsigned long long)stats.late_total, (unsigned long long)stats.misses_total);
	disk_work(&disk);
	destroy_empty(store);
}

struct taker {
	struct actmem_store *store;
	int result;
};

/* By the store's observer: somebody waits for a block. */
static bool is_stalled;
static bool is_over;

static void observe(const struct actmem_store_event *event, void *data)
{
	if (event->kind == ACTMEM_STORE_STALL_BEGIN)
		__atomic_store_n(&is_stalled, true, __ATOMIC_RELEASE);
}

static void *take_first(void *context)
{
	struct taker *taker = context;

	taker->result = take_named(taker->store, 0, BYTES);
	return NULL;
}

static void test_silent(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_store_options options = options_for(engine, 0);
	struct actmem_store *store = store_or_bail(am, &options);
	struct taker taker = { .store = store };
	pthread_t thread;
	unsigned int i;
	int error;

	if (put_all(store, 0, BLOCKS, &error) != BLOCKS)
		tap_bail("put");
	await_quiet(store);
	disk_suspend(&disk);
	/* The first is wanted last, and so is in the file alone. */
	is_stalled = false;
	actmem_store_observe(store, observe, NULL);
	thread = start_thread(take_first, &taker);
	while (!__atomic_load_n(&is_stalled, __ATOMIC_ACQUIRE))
		usleep(1000);
	for (i = BLOCKS; i-- > BLOCKS - 4; )
		error |= take_named(store, i, BYTES);
	ok(!error, "while the disk does not answer, what is in memory can be had");
	returns(actmem_store_drop(store, key_of(1)), 0);
	returns(actmem_store_destroy(store), -EBUSY);
	disk_work(&disk);
	pthread_join(thread, NULL);
	ok(!taker.result, "what was waited for comes when the disk answers");
	ok(!take_some(store, BLOCKS, 0), "and so do all others");
	destroy_empty(store);
}

struct user {
	struct actmem_store *store;
	pthread_t thread;
	uint64_t random, first;
	bool is_there[BLOCKS];
	unsigned int well, failed;
	int wrong;
};

#define USERS	3

/* Puts what is not there and takes what is, for as long as the disk comes and goes. */
static void *use(void *context)
{
	struct user *user = context;
	unsigned int i;
	int error;

	while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE) && !user->wrong) {
		i = (unsigned int)random_below(&user->random, BLOCKS);
		error = user->is_there[i] ? take_named(user->store, user->first + i, BYTES) :
					    put_named(user->store, user->first + i, BYTES);
		user->is_there[i] ^= !error;
		user->well += !error;
		user->failed += error == -EIO;
		user->wrong = error == -EIO ? 0 : error;
	}
	return NULL;
}

static void test_comes_and_goes(struct actmem *am, enum actmem_engine engine, uint64_t *random)
{
	struct actmem_store_options options = options_for(engine, ACTMEM_STORE_CHECKSUM);
	struct actmem_store *store = store_or_bail(am, &options);
	struct user *users = calloc(USERS, sizeof(*users));
	uint64_t place = place_of_file();
	unsigned int i, j, well = 0, failed = 0;
	int wrong = 0;

	is_over = false;
	for (i = 0; i < USERS; i++) {
		users[i] = (struct user){ .store = store, .random = next_random(random),
					  .first = i * BLOCKS };
		users[i].thread = start_thread(use, &users[i]);
	}
	for (i = 0; i < TIMES; i++) {
		usleep(50000);
		disk_break(&disk, place, SPILL_BYTES);
		usleep(50000);
		disk_work(&disk);
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	for (i = 0; i < USERS; i++) {
		pthread_join(users[i].thread, NULL);
		well += users[i].well;
		failed += users[i].failed;
		wrong = users[i].wrong ? users[i].wrong : wrong;
		for (j = 0; j < BLOCKS; j++)
			if (users[i].is_there[j] && take_named(store, users[i].first + j, BYTES))
				tap_bail("a block is lost");
	}
	ok(!wrong && well, "on a disk that comes and goes %u calls go well and %u do not (%d)",
	   well, failed, wrong);
	ok(!stats_of(store).blocks, "and what was put is there in the end");
	free(users);
	destroy_empty(store);
}

static void test_full(struct actmem *am, enum actmem_engine engine)
{
	struct actmem_store_options options = options_for(engine, ACTMEM_STORE_CHECKSUM);
	struct disk small = disk_make("actmem-small", 256 * MIB, 8 * MIB);
	uint64_t room;
	struct actmem_store *store;
	unsigned int well;
	int error;

	disk_format(&small, FOLDER);
	room = disk_free_bytes(FOLDER);
	returns(actmem_store_create(am, &options, &store), -ENOSPC);
	says(FOLDER);
	options.spill_bytes = 0;
	store = store_or_bail(am, &options);
	well = put_all(store, 0, 4 * BLOCKS, &error);
	ok(error == -ENOSPC && well > BUDGET / BYTES, "after %u blocks the disk is full", well);
	says(FOLDER);
	ok(!take_some(store, well, -EBADMSG), "they all come back");
	destroy_empty(store);
	ok(disk_free_bytes(FOLDER) == room, "and all room of the disk");
	disk_unmount(FOLDER);
	disk_remove(&small);
}

static bool lives_within(void *context)
{
	const struct group *group = context;
	struct actmem_store_options options = options_for(ACTMEM_ENGINE_AUTO, 0);
	struct actmem_store *store;
	struct actmem *am;
	unsigned int i;
	int error;

	if (!enter_group(group) || actmem_open(&am, NULL))
		return false;
	/* Three times what the group may have goes through the store. */
	store = store_or_bail(am, &options);
	for (i = 0; i < 3 * GROUP_BYTES / (BLOCKS * BYTES); i++)
		if (put_all(store, 0, BLOCKS, &error) != BLOCKS || take_some(store, BLOCKS, 0))
			return false;
	if (actmem_store_destroy(store))
		return false;
	/* One that keeps all of it in memory is told that there is no more. */
	options = store_options(0, NULL, 0);
	options.grow_bytes = 2 * MIB;
	store = store_or_bail(am, &options);
	i = put_all(store, 0, 2 * GROUP_BYTES / BYTES, &error);
	printf("# after %llu bytes: %s\n", i * BYTES, actmem_error());
	return error == -ENOMEM && strstr(actmem_error(), "memory cgroup") &&
	       !take_some(store, i, 0) && !actmem_store_destroy(store) && !actmem_close(am);
}

static bool lives_on_memfd(void *context)
{
	return !setenv("ACTMEM_BACKEND", "memfd", 1) && !setenv("ACTMEM_PAGES", "4K", 1) &&
	       lives_within(context);
}

/* Waits, or puts and takes, until the store has at least @least and at most @most bytes. */
static bool comes_to(struct actmem_store *store, uint64_t least, uint64_t most, bool is_used)
{
	unsigned int i, blocks = 2 * HIGH_BUDGET / BYTES;
	uint64_t bytes = stats_of(store).memory_bytes;
	int error = 0;

	for (i = 0; i < ROUNDS && (bytes < least || bytes > most); i++) {
		usleep(is_used ? 0 : 100000);
		if (is_used && (put_all(store, 0, blocks, &error) != blocks ||
				take_some(store, blocks, 0)))
			return false;
		bytes = stats_of(store).memory_bytes;
	}
	printf("# %llu bytes: %s\n", (unsigned long long)bytes, actmem_store_describe(store));
	return bytes >= least && bytes <= most;
}

/*
 * A memory.high that is set later makes the store return memory. When the process has moved to a
 * cgroup without one, the store uses its budget again.
 */
static bool follows_high(void *context)
{
	const struct group *group = context;
	struct actmem_store_options options = options_for(ACTMEM_ENGINE_AUTO, 0);
	struct actmem_store *store;
	struct actmem *am;

	/* The machine has no hugetlb pages, so the default of 2M falls back to 4K. */
	setenv("ACTMEM_BACKEND", "memfd", 1);
	unsetenv("ACTMEM_PAGES");
	options.budget_bytes = HIGH_BUDGET;
	options.grow_bytes = 2 * MIB;
	if (!enter_group(group) || actmem_open(&am, NULL))
		return false;
	store = store_or_bail(am, &options);
	return comes_to(store, HIGH_BUDGET, HIGH_BUDGET, true) &&
	       put_in_group(group->folder, "memory.high", "8388608") &&
	       comes_to(store, 0, HIGH_BYTES, false) &&
	       strstr(actmem_store_describe(store), "/memory.high is 8.0 MiB") &&
	       put_in_group(group->mount, "cgroup.procs", "0") &&
	       put_in_group(group->folder, "memory.high", "0") &&
	       comes_to(store, HIGH_BUDGET, HIGH_BUDGET, true) &&
	       !actmem_store_destroy(store) && !actmem_close(am);
}

/* Waits until the disk has @bytes free: ext4 frees the blocks of a removed file later. */
static bool await_free_bytes(uint64_t bytes)
{
	unsigned int wait;

	for (wait = 0; disk_free_bytes(FOLDER) != bytes && wait < 500; wait++)
		usleep(20000);
	return disk_free_bytes(FOLDER) == bytes;
}

static void test_cgroup(struct group *group)
{
	uint64_t free_bytes;

	disk = disk_make("actmem-store", 0, DISK_BYTES);
	disk_format(&disk, FOLDER);
	free_bytes = disk_free_bytes(FOLDER);
	ok(in_child(lives_within, group),
	   "a store lives in a memory cgroup by its budget, and without one is refused, not killed");
	ok(await_free_bytes(free_bytes), "its files leave the disk");
	ok(in_child(lives_on_memfd, group), "and so does one of small pages");
	ok(in_child(follows_high, group),
	   "a store returns memory when memory.high falls, until its process has moved away");
	disk_unmount(FOLDER);
	disk_remove(&disk);
}

static void be_busy(void *context, int begun)
{
	const enum actmem_engine *engine = context;
	struct actmem_store_options options = options_for(*engine, ACTMEM_STORE_CHECKSUM);
	struct actmem_store *store;
	struct actmem *am;
	int error;

	if (actmem_open(&am, NULL) || actmem_store_create(am, &options, &store) ||
	    write(begun, "", 1) != 1)
		return;
	while (put_all(store, 0, BLOCKS, &error) == BLOCKS && !take_some(store, BLOCKS, 0))
		;
}

static void test_killed(enum actmem_engine engine, uint64_t *random)
{
	uint64_t room = disk_free_bytes(FOLDER);
	bool good = true;
	unsigned int i;
	pid_t child;

	for (i = 0; i < KILLS; i++) {
		child = begin_child(be_busy, &engine);
		usleep((unsigned int)random_below(random, 100000));
		if (!kill_and_wait(child))
			tap_bail("the child has ended by itself");
		good = await_free_bytes(room) && good;
	}
	ok(good, "killed %d times, it leaves no byte of the disk in use", KILLS);
}

static void test_engine(struct actmem *am, enum actmem_engine engine, uint64_t *random)
{
	disk = disk_make("actmem-store", 0, DISK_BYTES);
	disk_format(&disk, FOLDER);
	test_errors(am, engine);
	test_allowed(am, engine);
	test_changed(am, engine);
	test_slow(am, engine);
	test_silent(am, engine);
	test_comes_and_goes(am, engine, random);
	test_killed(engine, random);
	disk_unmount(FOLDER);
	disk_remove(&disk);
	test_full(am, engine);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();
	uint64_t random = seed_given();
	struct group group = { 0 };

	/* First, as it has the mounts of this process be its own. */
	if (!make_group(&group, GROUP_BYTES))
		tap_bail("no memory cgroup can be made (%s)", strerror(errno));
	test_engine(am, ACTMEM_ENGINE_URING, &random);
	test_engine(am, ACTMEM_ENGINE_WORKERS, &random);
	test_cgroup(&group);
	remove_group(&group);
	return end_tests(am, before);
}
