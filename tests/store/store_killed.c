/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A process that is killed while its store spills and fills leaves nothing: no spill
 * file, none of the disk's room, and no region. STEPS= kills more often.
 */
#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "store_folder.h"

#define STEPS		8
#define BYTES		(64 * KIB)
#define BLOCKS		(2 * BUDGET / BYTES)
#define PAUSE_MAX_US	40000
#define WAIT_US		10000
#define WAITS		1000

struct victim {
	const char *folder;
	const char *name;		/* of its regions */
	enum actmem_engine engine;
};

struct busy {
	struct actmem_store *store;
	uint64_t first;
};

/* Puts and takes for ever, some in the reverse order and some not. */
static void *be_busy(void *context)
{
	struct busy *busy = context;
	uint64_t i, turn;

	for (turn = 0; ; turn++) {
		for (i = 0; i < BLOCKS; i++)
			if (put_named(busy->store, busy->first + i, BYTES))
				_exit(1);
		for (i = 0; i < BLOCKS; i++)
			if (take_named(busy->store, busy->first + (turn % 2 ? i : BLOCKS - 1 - i),
				       BYTES))
				_exit(1);
	}
	return NULL;
}

static void run_until_killed(void *context, int begun)
{
	const struct victim *victim = context;
	struct actmem_store_options options = store_options(BUDGET, &victim->folder, 1);
	struct actmem_region_options region = { .size = sizeof(region) };
	struct actmem_queue_options queue = { .size = sizeof(queue) };
	struct busy busy[2];
	struct actmem *am;
	pthread_t thread;

	/* What it says is said once, by the parent. */
	dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
	am = open_or_bail();
	options.region = &region;
	region.name = victim->name;
	options.queue = &queue;
	queue.engine = victim->engine;
	options.flags |= ACTMEM_STORE_CHECKSUM;
	/* Some are killed before there is a store. */
	if (write(begun, "", 1) != 1)
		_exit(1);
	if (actmem_store_create(am, &options, &busy[0].store))
		_exit(1);
	busy[0].first = 0;
	busy[1] = (struct busy){ busy[0].store, BLOCKS };
	if (pthread_create(&thread, NULL, be_busy, &busy[1]))
		_exit(1);
	be_busy(&busy[0]);
}

static uint64_t free_blocks(const char *folder)
{
	struct statvfs status;

	if (statvfs(folder, &status))
		tap_bail("%s: %s", folder, strerror(errno));
	return status.f_bfree;
}

/* False: it ended by itself, with an error. */
static bool kill_one(struct victim *victim, unsigned int pause_us)
{
	pid_t child = begin_child(run_until_killed, victim);

	usleep(pause_us);
	return kill_and_wait(child);
}

int main(void)
{
	uint64_t seed = seed_given(), kills = number_given("STEPS", STEPS), i, room;
	struct actmem *am = open_or_bail();
	unsigned int wait, busy = 0;
	char path[PATH_MAX], name[ACTMEM_NAME_MAX];
	const char *folder = make_folder(path);
	struct victim victim = { folder, name, ACTMEM_ENGINE_AUTO };
	bool mounted = !geteuid(), good = true;

	snprintf(name, sizeof(name), "store-killed-%d", getpid());
	if (mounted && (unshare(CLONE_NEWNS) ||
			mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
			mount("none", folder, "tmpfs", 0, "mode=0700,size=128M")))
		tap_bail("mount: %s", strerror(errno));
	room = free_blocks(folder);
	for (i = 0; i < kills && good; i++) {
		good = kill_one(&victim, (unsigned int)random_below(&seed, PAUSE_MAX_US));
		good = good && !count_files(folder);
		victim.engine = victim.engine == ACTMEM_ENGINE_AUTO ? ACTMEM_ENGINE_WORKERS :
				ACTMEM_ENGINE_AUTO;
		/* What was in flight ends in the background. */
		busy += mounted && free_blocks(folder) != room;
		for (wait = 0; mounted && free_blocks(folder) != room && wait < WAITS; wait++)
			usleep(WAIT_US);
		for (wait = 0; region_is_listed(name) && wait < WAITS; wait++)
			usleep(WAIT_US);
		good = good && (!mounted || free_blocks(folder) == room) && !region_is_listed(name);
	}
	ok(good, "killed %llu times: no file, no room of the disk and no region is left",
	   (unsigned long long)i);
	printf("# %u times a moment passed until then\n", busy);
	for (wait = 0; mounted && umount(folder) && wait < WAITS; wait++)
		usleep(WAIT_US);
	remove_folder(folder);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	return tap_end();
}
