/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A process that is killed in the middle of transfers and commands leaves nothing:
 * no file, and no region.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "queue_test.h"

#define TIMES	6

/* A directory of its own beside the program. */
static const char *directory(char path[PATH_MAX])
{
	path_of(path, 0);
	if (mkdir(path, 0700) && errno != EEXIST)
		tap_bail("%s: %s", path, strerror(errno));
	return path;
}

/* Keeps the queue busy until it is killed; tells by the pipe that it has begun. */
static void be_busy(enum actmem_engine engine, const char *path, const char *name, int pipe)
{
	struct actmem *am = open_or_bail();
	struct actmem_queue *queue = queue_or_bail(am, engine, 64 * KIB, 8);
	struct actmem_region *region = region_or_bail(am, name);
	struct actmem_file_options options;
	struct actmem_completion completions[8];
	struct actmem_file *file;
	unsigned int i;

	ACTMEM_INIT(&options);
	options.paths = &path;
	options.path_count = 1;
	options.flags = ACTMEM_FILE_TEMPORARY | ACTMEM_FILE_ALLOW_BUFFERED;
	options.length = LENGTH;
	if (actmem_queue_attach(queue, region, 0) || actmem_file_open(queue, &options, &file))
		_exit(1);
	for (i = 0; ; i++) {
		if (actmem_spill(queue, file, 0, region, 0, LENGTH / 2, NULL) ||
		    actmem_fill(queue, file, LENGTH / 2, region, LENGTH / 2, LENGTH / 2, NULL) ||
		    actmem_queue_populate(queue, region, 0, LENGTH, NULL))
			_exit(1);
		if (!i && write(pipe, "", 1) != 1)
			_exit(1);
		while (actmem_wait(queue, completions, 8, 0) > 0)
			;
		/* No more than a few at a time. */
		if (i % 4 == 3)
			while (actmem_wait(queue, completions, 8, ACTMEM_WAIT_FOREVER) > 0)
				;
	}
}

static void test_killed(enum actmem_engine engine, const char *path, const char *name,
			unsigned int pause_us)
{
	int ends[2], status;
	char begun;
	pid_t child;

	fflush(stdout);
	if (pipe(ends))
		tap_bail("pipe: %s", strerror(errno));
	child = fork();
	if (child < 0)
		tap_bail("fork: %s", strerror(errno));
	if (!child) {
		close(ends[0]);
		be_busy(engine, path, name, ends[1]);
	}
	close(ends[1]);
	if (read(ends[0], &begun, 1) != 1)
		tap_bail("the child did not begin");
	close(ends[0]);
	usleep(pause_us);
	kill(child, SIGKILL);
	if (waitpid(child, &status, 0) != child)
		tap_bail("waitpid: %s", strerror(errno));
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "killed after %u us", pause_us);
	ok(!count_files(path), "no file is left");
}

int main(void)
{
	struct actmem *am = open_or_bail();
	char path[PATH_MAX], name[ACTMEM_NAME_MAX];
	unsigned int i, j;

	directory(path);
	snprintf(name, sizeof(name), "killed-%d", getpid());
	for (i = 0; i < 2; i++) {
		if (!engine_is_there(am, engines[i]))
			continue;
		for (j = 0; j < TIMES; j++)
			test_killed(engines[i], path, name, j * j * 400);
	}
	/* What was in flight ends in the background. */
	while (region_is_listed(name))
		usleep(10000);
	ok(true, "no region is left");
	rmdir(path);
	returns(actmem_close(am), 0);
	return tap_end();
}
