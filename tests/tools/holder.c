// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Holds regions while they are looked at: holder NAME BYTES... [-- PROGRAM...]
 * makes one of each size and maps the first; lazy:BYTES is a lazy one of which
 * the first half is populated. Then it runs the program and ends with its
 * status; without one it prints "ready" and waits for the end of its input.
 *
 * holder heap BYTES [-- PROGRAM...] takes a block of a heap, and prints "ready found"
 * if that holds already what it else writes to it ("ready wrote").
 *
 * holder mount FOLDER OPTIONS -- PROGRAM... runs it while the driver's file system is
 * mounted there.
 *
 * holder instead FILE OF -- PROGRAM... runs it while FILE is what OF reads as.
 *
 * holder limited PROGRAM... runs it, as root, without the right to lock any memory.
 *
 * holder contained PROGRAM... runs it as Docker does by default: without the driver's device, and
 * mbind() and move_pages() are refused.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/capability.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "actmem.h"
#include "refuse.h"

static int fail(void)
{
	fprintf(stderr, "holder: %s\n", actmem_error());
	return 1;
}

static int run(char **program)
{
	pid_t child = fork();
	int status;

	if (!child) {
		execvp(program[0], program);
		perror(program[0]);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("holder");
		return 1;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static int wait_for_end_of_input(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}

/* Says that it is ready, and runs the program or waits. */
static int hold(const char *ready, char **program)
{
	puts(ready);
	fflush(stdout);
	return program ? run(program) : wait_for_end_of_input();
}

static int run_until_umount(const char *mounted, char **program)
{
	int status = run(program);

	if (umount(mounted)) {
		perror(mounted);
		return 1;
	}
	return status;
}

static int mount_and_run(const char *folder, const char *options, char **program)
{
	int status;

	if (mkdir(folder, 0700) || mount("none", folder, "actmem", 0, options)) {
		perror(folder);
		return 1;
	}
	status = run_until_umount(folder, program);
	if (rmdir(folder)) {
		perror(folder);
		return 1;
	}
	return status;
}

static int run_instead(const char *file, const char *of, char **program)
{
	if (mount(file, of, NULL, MS_BIND, NULL)) {
		perror(of);
		return 1;
	}
	return run_until_umount(of, program);
}

static int run_limited(char **program)
{
	if (prctl(PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0)) {
		perror("holder");
		return 1;
	}
	return run(program);
}

static int run_contained(char **program)
{
	int status;

	if (!refuse_call(SYS_mbind, EPERM) || !refuse_call(SYS_move_pages, EPERM) ||
	    rename("/dev/actmem", "/dev/hidden")) {
		perror("holder");
		return 1;
	}
	status = run(program);
	return rename("/dev/hidden", "/dev/actmem") ? 1 : status;
}

static int make(struct actmem *am, const char *name, const char *size,
		struct actmem_region **region)
{
	struct actmem_region_options options;
	const char *lazy = strchr(size, ':');
	int error;

	ACTMEM_INIT(&options);
	options.name = name;
	options.length = strtoull(lazy ? lazy + 1 : size, NULL, 0);
	options.flags = lazy ? ACTMEM_REGION_LAZY : 0;
	error = actmem_region_create(am, &options, region);
	if (!error && lazy)
		error = actmem_region_populate(*region, 0, options.length / 2);
	return error;
}

static int hold_block(struct actmem *am, const char *size, char **program)
{
	size_t bytes = strtoull(size, NULL, 0);
	struct actmem_heap_options options;
	const char *grow = getenv("ACTMEM_HEAP_GROW");
	struct actmem_heap *heap;
	unsigned char *block;
	bool found = true;
	size_t i;

	ACTMEM_INIT(&options);
	options.grow_bytes = grow ? strtoull(grow, NULL, 10) << 20 : 0;
	if (actmem_heap_create(am, &options, &heap) ||
	    actmem_heap_alloc(heap, bytes, 0, (void **)&block))
		return fail();
	for (i = 0; i < bytes; i++) {
		unsigned char wanted = (unsigned char)(i / 4096 + i % 251 + 1);

		found = found && block[i] == wanted;
		block[i] = wanted;
	}
	return hold(found ? "ready found" : "ready wrote", program);
}

int main(int argc, char **argv)
{
	struct actmem_region *region;
	struct actmem *am;
	void *address;
	int i;

	if (argc < 3) {
		fprintf(stderr, "usage: holder NAME BYTES... [-- PROGRAM...]\n");
		return 2;
	}
	if (!strcmp(argv[1], "mount") && argc > 5)
		return mount_and_run(argv[2], argv[3], argv + 5);
	if (!strcmp(argv[1], "instead") && argc > 5)
		return run_instead(argv[2], argv[3], argv + 5);
	if (!strcmp(argv[1], "limited"))
		return run_limited(argv + 2);
	if (!strcmp(argv[1], "contained"))
		return run_contained(argv + 2);
	if (actmem_open(&am, NULL))
		return fail();
	if (!strcmp(argv[1], "heap"))
		return hold_block(am, argv[2], argc > 4 ? argv + 4 : NULL);
	for (i = 2; i < argc && strcmp(argv[i], "--"); i++) {
		if (make(am, argv[1], argv[i], &region))
			return fail();
		if (i == 2 && actmem_region_map(region, &address))
			return fail();
	}
	return i + 1 < argc ? run(argv + i + 1) : hold("ready", NULL);
}
