/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A process that is killed in the middle of transfers leaves nothing:
 * no file, and no region.
 */
#include <sys/stat.h>

#include "queue_test.h"

#define TIMES	6

struct busy {
	enum actmem_engine engine;
	const char *path;		/* of the directory */
	const char *name;		/* of the region */
};

/* A directory of its own beside the program. */
static const char *directory(char path[PATH_MAX])
{
	path_of(path, 0);
	if (mkdir(path, 0700) && errno != EEXIST)
		tap_bail("%s: %s", path, strerror(errno));
	return path;
}

/* Keeps a queue busy until it is killed. */
static void be_busy(void *context, int begun)
{
	const struct busy *busy = context;
	struct actmem *am = open_or_bail();
	struct actmem_queue *queue = queue_or_bail(am, busy->engine, 64 * KIB, 8);
	struct actmem_region *region = region_or_bail(am, busy->name);
	struct actmem_file_options options = {
		.size = sizeof(options), .paths = &busy->path, .path_count = 1,
		.flags = ACTMEM_FILE_TEMPORARY | ACTMEM_FILE_ALLOW_BUFFERED, .length = LENGTH,
	};
	struct actmem_completion completions[8];
	struct actmem_file *file;
	unsigned int i;

	if (actmem_queue_attach(queue, region, 0) || actmem_file_open(queue, &options, &file))
		_exit(1);
	for (i = 0; ; i++) {
		if (actmem_queue_spill(queue, file, 0, region, 0, LENGTH / 2, NULL) ||
		    actmem_queue_fill(queue, file, LENGTH / 2, region, LENGTH / 2, LENGTH / 2,
				      NULL))
			_exit(1);
		if (!i && write(begun, "", 1) != 1)
			_exit(1);
		while (actmem_queue_wait(queue, completions, 8, 0) > 0)
			;
		/* No more than a few at a time. */
		if (i % 4 == 3)
			while (actmem_queue_wait(queue, completions, 8, ACTMEM_WAIT_FOREVER) > 0)
				;
	}
}

static void test_killed(struct busy *busy, unsigned int pause_us)
{
	pid_t child = begin_child(be_busy, busy);

	usleep(pause_us);
	ok(kill_and_wait(child), "killed after %u us", pause_us);
	ok(!count_files(busy->path), "no file is left");
}

int main(void)
{
	struct actmem *am = open_or_bail();
	char path[PATH_MAX], name[ACTMEM_NAME_MAX];
	struct busy busy = { .path = directory(path), .name = name };
	unsigned int i, j;

	snprintf(name, sizeof(name), "killed-%d", getpid());
	for (i = 0; i < 2; i++) {
		if (!engine_is_there(am, engines[i]))
			continue;
		busy.engine = engines[i];
		for (j = 0; j < TIMES; j++)
			test_killed(&busy, j * j * 400);
	}
	/* What was in flight ends in the background. */
	while (region_is_listed(name))
		usleep(10000);
	ok(true, "no region is left");
	rmdir(path);
	returns(actmem_close(am), 0);
	return tap_end();
}
