/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * resident FILE PROGRAM [ARGUMENT]...: runs a program, and writes to FILE the highest resident
 * memory in KiB of the program and of each process that it waited for. A child of this small
 * program inherits no large peak, as it would inherit Python's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct rusage usage;
	pid_t child;
	int status;
	FILE *file;

	if (argc < 3)
		return 2;
	setenv("LD_PRELOAD", getenv("RESIDENT_PRELOAD") ?: "", 1);
	child = fork();
	if (!child) {
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	if (child < 0 || wait4(child, &status, 0, &usage) != child)
		return 1;
	file = fopen(argv[1], "w");
	if (!file || fprintf(file, "%ld\n", usage.ru_maxrss) < 0 || fclose(file))
		return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
