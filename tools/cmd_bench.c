// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * actmem bench and actmem replay execute actmem-bench, which implements both subcommands. The
 * argv[0] of actmem-bench is "actmem", so that its messages begin with the name that the user
 * called.
 */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "run.h"
#include "tool.h"

#define PROGRAM		"actmem-bench"

/*
 * Executes the actmem-bench in this command's folder, because that program has the same version. If
 * there is none, executes the actmem-bench in PATH.
 */
static int become_bench(char **argv)
{
	char folder[PATH_MAX], path[PATH_MAX + sizeof("/" PROGRAM)];

	if (own_folder(folder)) {
		snprintf(path, sizeof(path), "%s/" PROGRAM, folder);
		if (!access(path, F_OK))
			return become_program(path, argv, NULL);
	}
	return become_program(PROGRAM, argv, ", nor beside this command; install it (make install)");
}

static int hand_over(const char *subcommand, int argc, char **argv)
{
	const char **arguments = calloc(argc + 2, sizeof(*arguments));
	int status;

	if (!arguments) {
		warn("cannot run '%s'", PROGRAM);
		return STATUS_FAILED;
	}
	arguments[0] = "actmem";
	arguments[1] = subcommand;
	memcpy(arguments + 2, argv + 1, (argc - 1) * sizeof(*argv));
	status = become_bench((char **)arguments);
	free(arguments);
	return status;
}

int cmd_bench(int argc, char **argv)
{
	return hand_over("bench", argc, argv);
}

int cmd_replay(int argc, char **argv)
{
	return hand_over("replay", argc, argv);
}
