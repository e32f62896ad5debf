// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Lets a program's Python find the module actmem, which is installed beside libactmem. */
#include <dlfcn.h>
#include <err.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actmem.h"
#include "run.h"
#include "tool.h"

#define START_FOLDER	"/actmem/_start"

bool find_library_folder(char folder[PATH_MAX])
{
	Dl_info info;
	char *slash;

	if (!dladdr((void *)actmem_open, &info) || !realpath(info.dli_fname, folder)) {
		warnx("cannot find the folder of libactmem");
		return false;
	}
	slash = strrchr(folder, '/');
	*slash = '\0';
	return true;
}

static bool find_python_folder(char folder[PATH_MAX], const char *library_folder,
			       const char *place)
{
	char path[2 * PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s/actmem/__init__.py", library_folder, place);
	if (access(path, R_OK))
		return false;
	snprintf(path, sizeof(path), "%s/%s", library_folder, place);
	return realpath(path, folder);
}

/*
 * An installed Python module has its libraries beside it. In the source tree, the libraries are in
 * build/lib, and ACTMEM_LIBDIR names that folder.
 */
int python_path_set(const char *library_folder)
{
	char python_folder[PATH_MAX];

	if (find_python_folder(python_folder, library_folder, "actmem/python"))
		return variable_prepend("PYTHONPATH", python_folder);
	if (!find_python_folder(python_folder, library_folder, "../../lib/python"))
		return STATUS_OK;
	return variable_set("ACTMEM_LIBDIR", library_folder) ?:
	       variable_prepend("PYTHONPATH", python_folder);
}

/*
 * Returns the option in @argv that makes Python ignore our sitecustomize.py, or 0 if there is none.
 */
static char ignoring_option(char *const *argv)
{
	const char *program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
	const char *letter;

	if (strncmp(program, "python", 6) || strspn(program + 6, "0123456789.") < strlen(program + 6))
		return 0;
	for (argv++; *argv && **argv == '-'; argv++) {
		if (!(*argv)[1] || !strcmp(*argv, "--"))
			return 0;
		if (!strcmp(*argv, "--check-hash-based-pycs") && argv[1])
			argv++;
		else if ((*argv)[1] == '-')
			continue;
		for (letter = *argv + 1; *letter; letter++) {
			if (strchr("IES", *letter))
				return *letter;
			if (strchr("cm", *letter))
				return 0;
			if (strchr("WX", *letter)) {
				if (!letter[1] && argv[1])
					argv++;
				break;
			}
		}
	}
	return 0;
}

int python_start_set(const char *library_folder, char *const *argv, bool offloads)
{
	char option = ignoring_option(argv), folder[PATH_MAX + sizeof(START_FOLDER)];
	bool is_found = find_python_folder(folder, library_folder, "actmem/python") ||
			find_python_folder(folder, library_folder, "../../lib/python");

	if (offloads && !is_found) {
		warnx("there is no Python module for --offload beside '%s': install it (python3-actmem), or set ACTMEM_OFFLOAD=0",
		      library_folder);
		return STATUS_FAILED;
	}
	if (offloads && option) {
		warnx("--offload does not reach '%s -%c', which ignores PYTHONPATH or sitecustomize: run it without -%c, or call actmem.jax.patch() in the program",
		      argv[0], option, option);
		return STATUS_FAILED;
	}
	return is_found ? variable_prepend("PYTHONPATH", strcat(folder, START_FOLDER)) : STATUS_OK;
}
