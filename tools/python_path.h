/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Lets a program's Python find the module actmem. */
#ifndef ACTMEM_PYTHON_PATH_H
#define ACTMEM_PYTHON_PATH_H

#include <limits.h>
#include <stdbool.h>

/*
 * Finds the folder of the libactmem that this command itself uses. Returns false after printing the
 * error message.
 */
bool find_library_folder(char folder[PATH_MAX]);

/*
 * Sets PYTHONPATH, and ACTMEM_LIBDIR if necessary. Returns an enum exit_status after printing any
 * error message.
 */
int python_path_set(const char *library_folder);

/*
 * Adds the folder of the sitecustomize.py that waits for `import jax` to PYTHONPATH. If @offloads,
 * fails if there is none, or if the Python that @argv names ignores it. Returns an enum exit_status
 * after printing any error message.
 */
int python_start_set(const char *library_folder, char *const *argv, bool offloads);

#endif
