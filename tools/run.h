/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The parts of `actmem run`, some of which other subcommands also use. They set environment
 * variables for the program, and test them before it starts.
 */
#ifndef ACTMEM_RUN_H
#define ACTMEM_RUN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "actmem.h"

/* malloc_mode.c */

/* Returns true if the environment asks for the malloc mode. */
bool malloc_mode_is_wanted(void);

/* Returns true if the environment asks for the malloc mode, and for nothing about regions. */
bool malloc_mode_is_all(void);

/*
 * Sets up the malloc mode if the environment asks for it. Prints invalid values and missing memory
 * on the nodes or huge pages on stderr. If @verbose, also prints the settings in effect. Returns an
 * enum exit_status, STATUS_USAGE for an invalid value.
 */
int malloc_mode_set(bool verbose);

/* preload_mode.c */

/*
 * Puts the preload library of @library_folder first in LD_PRELOAD if one of its modes is wanted.
 * The CUDA mode is wanted unless ACTMEM_CUDA is 0, and this function then sets ACTMEM_CUDA to 1.
 * Returns an enum exit_status after printing any error message: STATUS_USAGE for an invalid value.
 */
int preload_mode_set(const char *library_folder, bool verbose);

/* Returns true if preload_mode_set() enabled the CUDA mode. */
bool preload_mode_has_cuda(void);

/* torch_mode.c */

/*
 * Adds options to PYTORCH_ALLOC_CONF so that PyTorch does not round up long blocks of pinned
 * memory, and reports this on stderr. Does nothing if the environment already has such an option,
 * or if a PyTorch that @program may find does not know them. Returns an enum exit_status.
 */
int torch_mode_set(const char *program);

/* python_path.c */

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

/* trial.c */

/*
 * Opens the backend. Creates a region and closes it or, with ACTMEM_NAME, creates or opens the
 * first region of that name. Creates a store with the budget and spill folders. This reports errors
 * on stderr that would otherwise stop the program much later: an invalid value, no device, no
 * permission, no free huge pages, or a limit. If @verbose, prints the backend and pages of the
 * region. If the library has reported worse memory than huge pages, sets ACTMEM_REPORTED=1, so that
 * the program does not repeat the report.
 * Returns an enum exit_status, STATUS_USAGE for an invalid value.
 */
int try_environment(bool verbose);

/* become.c */

/*
 * Executes @program, which is a path or a name to look for in PATH, with @argv, which includes
 * argv[0]. @hint follows the error message if PATH does not have the name; it may be NULL. Returns
 * STATUS_NOT_FOUND or STATUS_NOT_RUN after printing the error message.
 */
int become_program(const char *program, char **argv, const char *hint);

#endif
