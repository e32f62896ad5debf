// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * actmem plan and actmem probe: becomes Python, whose module actmem has both, as they count
 * and measure programs of JAX.
 */
#include <err.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "become.h"
#include "python_path.h"
#include "tool.h"

#define PYTHON	"python3"

/* The Python module, but no file of the folder that the command is called in. */
static int set_environment(void)
{
	char folder[PATH_MAX];

	if (!find_library_folder(folder))
		return STATUS_FAILED;
	if (setenv("PYTHONSAFEPATH", "1", 1)) {
		warn("cannot set the environment");
		return STATUS_FAILED;
	}
	return python_path_set(folder);
}

/* @first: what the arguments of the command come after, up to a NULL. */
static int become_python(const char *const *first, int argc, char **argv)
{
	const char **arguments;
	size_t count = 0;
	int status;

	while (first[count])
		count++;
	arguments = calloc(count + argc, sizeof(*arguments));
	status = arguments ? set_environment() : STATUS_FAILED;
	if (!arguments)
		warn("cannot run '" PYTHON "'");
	if (!status) {
		memcpy(arguments, first, count * sizeof(*first));
		memcpy(arguments + count, argv + 1, (argc - 1) * sizeof(*argv));
		status = become_program(PYTHON, (char **)arguments,
					"; activate an environment with JAX");
	}
	free(arguments);
	return status;
}

int cmd_plan(int argc, char **argv)
{
	static const char *const first[] = { PYTHON, "-m", "actmem", "plan", NULL };

	return become_python(first, argc, argv);
}

/* It has this command measure the host's memory and files. */
int cmd_probe(int argc, char **argv)
{
	char folder[PATH_MAX], option[PATH_MAX + sizeof("--command=/actmem")];
	const char *const first[] = { PYTHON, "-m", "actmem", "probe", option, NULL };

	if (!own_folder(folder)) {
		warn("cannot tell where this command lies");
		return STATUS_FAILED;
	}
	snprintf(option, sizeof(option), "--command=%s/actmem", folder);
	return become_python(first, argc, argv);
}
