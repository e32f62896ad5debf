/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Settings of the driver that are kept for the next boot: rules of udev's, which hold
 * whenever the module is loaded. A limit is written by the rule. A pool takes longer than
 * udev gives a rule, so the rule has systemd start a unit that sets it.
 */
#ifndef ACTMEM_SAVED_H
#define ACTMEM_SAVED_H

#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"

#define SAVED_FILE	"/etc/udev/rules.d/80-actmem-settings.rules"

/* Those that are as in a module newly loaded are not in the file. */
struct saved {
	uint64_t user_limit;				/* NO_LIMIT: none */
	uint64_t node_limits[ACTMEM_NODES_MAX];		/* likewise */
	uint64_t pools[ACTMEM_NODES_MAX];
};

/*
 * Whether saved_change() can be expected to work: for before that which takes time, or
 * cannot be undone. False: it told why.
 */
bool saved_can_change(bool of_pools);

/*
 * Has @change change what is saved, or return false and tell why not. False: nothing is
 * changed, and it is told why.
 */
bool saved_change(bool (*change)(struct saved *saved, const void *context), const void *context);

#endif
