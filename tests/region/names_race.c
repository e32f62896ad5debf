/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions that are files, made by many at once, and by some that are killed: one
 * makes it, whoever finds it finds it complete, and nothing is left half made.
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common.h"

#define RACERS		6
#define ROUNDS		8

static const char *folder;
static char path[64];

static int make_or_find(struct actmem *am, struct actmem_region **region)
{
	struct actmem_region_options options = { .size = sizeof(options), .length = LENGTH };

	return actmem_region_open(am, path, &options, ACTMEM_OPEN_CREATE, region);
}

static struct actmem_region *opened(struct actmem *am)
{
	struct actmem_region *region;

	if (actmem_region_open(am, path, NULL, 0, &region))
		tap_bail("actmem_region_open");
	return region;
}

struct racer {
	int start;
	int result;
	unsigned int number;
};

static bool race(void *context)
{
	struct racer *racer = context;
	struct actmem_region *region;
	struct actmem *am;
	char byte, found;
	char *memory;

	if (actmem_open(&am, NULL))
		return false;
	/* All go when the parent closes its end. */
	while (read(racer->start, &byte, 1) > 0)
		;
	if (make_or_find(am, &region))
		return false;
	found = actmem_region_found(region) ? 'f' : 'm';
	memory = memory_or_bail(region);
	memory[LENGTH / RACERS * racer->number] = (char)('A' + racer->number);
	return info_or_bail(region).allocated_bytes == LENGTH && write(racer->result, &found, 1) == 1 &&
	       !actmem_region_close(region) && !actmem_close(am);
}

static void race_once(struct actmem *am, unsigned int *made, unsigned int *found,
		      unsigned int *written)
{
	int start[2], result[2];
	struct actmem_region *region;
	pid_t children[RACERS];
	unsigned int i;
	bool passed = true;
	char byte;

	if (pipe2(start, O_CLOEXEC) || pipe2(result, O_CLOEXEC))
		tap_bail("pipe");
	fflush(stdout);
	for (i = 0; i < RACERS; i++) {
		struct racer racer = { start[0], result[1], i };

		children[i] = fork();
		if (!children[i]) {
			close(start[1]);
			passed = race(&racer);
			if (!passed)
				printf("# %s\n", actmem_error());
			fflush(stdout);
			_exit(!passed);
		}
	}
	close(start[1]);
	close(result[1]);
	for (i = 0; i < RACERS; i++)
		passed = child_passed(children[i]) && passed;
	while (read(result[0], &byte, 1) == 1) {
		*made += byte == 'm';
		*found += byte == 'f';
	}
	close(start[0]);
	close(result[0]);
	region = opened(am);
	for (i = 0; i < RACERS; i++)
		*written += memory_or_bail(region)[LENGTH / RACERS * i] == (char)('A' + i);
	actmem_region_close(region);
	if (!passed || unlink(path))
		*made = 1000;
}

static void test_race(struct actmem *am)
{
	unsigned int round, made = 0, found = 0, written = 0;

	for (round = 0; round < ROUNDS; round++)
		race_once(am, &made, &found, &written);
	ok(made == ROUNDS && found == ROUNDS * (RACERS - 1),
	   "of %d at once, one makes it and the others find it complete (%u made, %u found)",
	   RACERS, made, found);
	ok(written == ROUNDS * RACERS, "all have the same memory");
	ok(!count_files(folder), "no file is left");
}

static bool make_for_ever(void *context)
{
	struct actmem_region *region;
	struct actmem *am;

	if (actmem_open(&am, NULL))
		return false;
	for (;;) {
		if (make_or_find(am, &region))
			return false;
		actmem_region_close(region);
		unlink(path);
	}
}

/* Wherever in making and removing it is killed, the next one goes on. */
static void test_killed(struct actmem *am)
{
	unsigned int round, complete = 0;
	struct actmem_region *region;

	for (round = 0; round < ROUNDS; round++) {
		pid_t child;

		fflush(stdout);
		child = fork();
		if (!child)
			_exit(!make_for_ever(NULL));
		usleep(3000 + 1700 * round);
		kill_and_wait(child);
		if (make_or_find(am, &region))
			break;
		complete += info_or_bail(region).allocated_bytes == LENGTH;
		actmem_region_close(region);
		unlink(path);
	}
	ok(complete == ROUNDS, "after kill -9 at any point it is made or found, complete (%u of %d)",
	   complete, ROUNDS);
	ok(!count_files(folder), "no file is left");
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am;

	skip_without_root();
	am = open_or_bail();
	folder = mount_own(am);
	snprintf(path, sizeof(path), "%s/region", folder);
	test_race(am);
	test_killed(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	unmount_own(folder);
	return tap_end();
}
