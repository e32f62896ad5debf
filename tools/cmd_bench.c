// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * actmem bench and actmem replay: becomes actmem-bench, which has both. It gets the name
 * "actmem" as argv[0], and speaks under that name, as it was called.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tool.h"

#define PROGRAM		"actmem-bench"

/* The one beside this command, which is of the same version, or else that in PATH. */
static void become_bench(char **argv)
{
	char folder[PATH_MAX], path[PATH_MAX + sizeof("/" PROGRAM)];

	if (own_folder(folder)) {
		snprintf(path, sizeof(path), "%s/" PROGRAM, folder);
		execv(path, argv);
		if (errno != ENOENT) {
			warn("cannot run '%s'", path);
			return;
		}
	}
	execvp(PROGRAM, argv);
	if (errno == ENOENT)
		warnx("'%s' is neither beside this command nor in PATH: install it (make install)",
		      PROGRAM);
	else
		warn("cannot run '%s' of PATH", PROGRAM);
}

static int hand_over(const char *subcommand, int argc, char **argv)
{
	const char **arguments = calloc(argc + 2, sizeof(*arguments));

	if (!arguments) {
		warn("cannot run '%s'", PROGRAM);
		return STATUS_FAILED;
	}
	arguments[0] = "actmem";
	arguments[1] = subcommand;
	memcpy(arguments + 2, argv + 1, (argc - 1) * sizeof(*argv));
	become_bench((char **)arguments);
	free(arguments);
	return STATUS_FAILED;
}

int cmd_bench(int argc, char **argv)
{
	return hand_over("bench", argc, argv);
}

int cmd_replay(int argc, char **argv)
{
	return hand_over("replay", argc, argv);
}
