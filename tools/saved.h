/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Keeps settings of the driver for the next boot, in udev rules that apply whenever the module is
 * loaded. The rule for a limit sets the limit directly. Setting a pool takes longer than udev
 * allows, so the rule for a pool makes systemd start a unit that sets the pool.
 */
#ifndef ACTMEM_SAVED_H
#define ACTMEM_SAVED_H

#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"

#define SAVED_FILE	"/etc/udev/rules.d/80-actmem-settings.rules"

/* The file omits settings that have the default values of a newly loaded module. */
struct saved {
	uint64_t user_limit;				/* NO_LIMIT: none */
	uint64_t node_limits[ACTMEM_NODES_MAX];		/* NO_LIMIT: none */
	uint64_t pools[ACTMEM_NODES_MAX];
};

/*
 * Checks whether saved_change() is likely to succeed, for pools if @of_pools. Call this function
 * before an operation that can take minutes or cannot be undone. Returns false after printing the
 * error message.
 */
bool saved_can_change(bool of_pools);

/*
 * Calls @change to modify the saved settings, and writes them. If @change prints an error message
 * and returns false, nothing is written. saved_change() returns false after printing an error
 * message. The message says if the file was written despite the error.
 */
bool saved_change(bool (*change)(struct saved *saved, const void *context), const void *context);

#endif
