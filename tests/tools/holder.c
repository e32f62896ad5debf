// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Holds regions while they are looked at: holder NAME BYTES... [-- PROGRAM...]
 * makes one of each size and maps the first. Then it runs the program and
 * ends with its status; without one it prints "ready" and waits for the end of
 * its input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../../lib/actmem.h"

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

	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
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
	if (actmem_open(&am, NULL))
		return fail();
	for (i = 2; i < argc && strcmp(argv[i], "--"); i++) {
		struct actmem_region_options options;

		ACTMEM_INIT(&options);
		options.name = argv[1];
		options.length = strtoull(argv[i], NULL, 0);
		if (actmem_region_create(am, &options, &region))
			return fail();
		if (i == 2 && actmem_region_map(region, &address))
			return fail();
	}
	return i + 1 < argc ? run(argv + i + 1) : wait_for_end_of_input();
}
