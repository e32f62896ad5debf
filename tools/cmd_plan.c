// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * `actmem plan` plans the memory of JAX programs, and `actmem probe` measures this machine for
 * those plans. Both subcommands execute Python, because the Python module actmem implements them.
 */
#include <err.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "run.h"
#include "tool.h"

#define PYTHON	"python3"

/* Lets Python import the module actmem, but no file of the current folder. */
static int set_environment(void)
{
	char folder[PATH_MAX];

	if (!find_library_folder(folder))
		return STATUS_FAILED;
	return variable_set("PYTHONSAFEPATH", "1") ?: python_path_set(folder);
}

/*
 * Executes Python with the arguments in @first, an array that ends with NULL, and then those of
 * this command.
 */
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

/*
 * Passes the path of the command `actmem` to the Python module. The module executes this command to
 * measure how fast the host's memory and files are.
 */
int cmd_probe(int argc, char **argv)
{
	char folder[PATH_MAX], option[PATH_MAX + sizeof("--command=/actmem")];
	const char *const first[] = { PYTHON, "-m", "actmem", "probe", option, NULL };

	if (!own_folder(folder)) {
		warn("cannot find the folder of this command");
		return STATUS_FAILED;
	}
	snprintf(option, sizeof(option), "--command=%s/actmem", folder);
	return become_python(first, argc, argv);
}
