/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The functions of `actmem run`. They set environment variables for the program, and test the
 * settings before the program starts. Other subcommands also use some of these functions. In the
 * malloc mode, a preloaded library allocates the program's large blocks from huge pages. In the
 * CUDA mode, the same library allocates CUDA's pinned memory from regions.
 */
#ifndef ACTMEM_RUN_H
#define ACTMEM_RUN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "actmem.h"

/* malloc_mode.c */

/* Returns true if the environment requests the malloc mode. */
bool malloc_mode_is_wanted(void);

/*
 * Returns true if the environment requests the malloc mode, but has no setting that concerns only
 * regions.
 */
bool malloc_mode_is_all(void);

/*
 * Checks the settings of the malloc mode if the environment requests it. Reports invalid values, a
 * failed mbind() and disabled huge pages on stderr. If @verbose, also prints the settings in
 * effect. Returns an enum exit_status, STATUS_USAGE for an invalid value.
 */
int malloc_mode_set(bool verbose);

/* preload_mode.c */

/*
 * Puts the preload library of @library_folder first in LD_PRELOAD if the malloc or CUDA mode is
 * wanted. The CUDA mode is wanted unless ACTMEM_CUDA is 0. Sets ACTMEM_CUDA to 1 if the CUDA mode
 * is wanted and supported, or else to 0. Returns an enum exit_status after printing any error
 * message: STATUS_USAGE for an invalid value.
 */
int preload_mode_set(const char *library_folder, bool verbose);

/* Returns true if preload_mode_set() enabled the CUDA mode. */
bool preload_mode_has_cuda(void);

/* torch_mode.c */

/*
 * Adds options to PYTORCH_ALLOC_CONF so that PyTorch does not round up long blocks of pinned
 * memory, and reports this on stderr. Does nothing if the environment already has such an option,
 * if no PyTorch is found, or if a PyTorch that @program could import does not know the options.
 * Returns an enum exit_status.
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
 * Adds the folder of our sitecustomize.py to PYTHONPATH. That file waits for `import jax`. If
 * @offloads, fails if there is no such folder, or if an option in @argv makes Python ignore the
 * file. Returns an enum exit_status after printing any error message.
 */
int python_start_set(const char *library_folder, char *const *argv, bool offloads);

/* trial.c */

/*
 * Tests the environment: opens the backend, creates and closes a region, and creates a store with
 * the budget and spill folders. With ACTMEM_NAME, the region is the first one of that name, new or
 * existing. The test reports on stderr the errors that would otherwise stop the program much later:
 * an invalid value, no device, no permission, no free huge pages, or a limit. If @verbose, prints
 * the backend and pages of the region. If the library has reported a fallback, sets
 * ACTMEM_REPORTED=1, so that the program does not report it again. Returns an enum exit_status,
 * STATUS_USAGE for an invalid value.
 */
int try_environment(bool verbose);

/* become.c */

/*
 * Executes @program, a path or a name to search for in PATH. @argv includes argv[0]. @hint, which
 * may be NULL, is appended to the error message if the name is not in PATH. Returns
 * STATUS_NOT_FOUND or STATUS_NOT_RUN after printing the error message.
 */
int become_program(const char *program, char **argv, const char *hint);

#endif
