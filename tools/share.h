/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The part of a job's resources that each of its processes on a machine gets. */
#ifndef ACTMEM_SHARE_H
#define ACTMEM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "actmem.h"
#include "ranks.h"

#define SHARE_WHY_MAX	64

/* @count of a number of things, starting at @first. */
struct slice {
	unsigned int first, count;
};

/*
 * Divides @things among the ranks. If there are enough, no two ranks share a thing, and each thing
 * belongs to a rank. Otherwise each rank gets one thing, and the ranks are divided about equally
 * among the things.
 */
struct slice share_slice(unsigned int things, const struct rank *rank);

/* Returns an equal part, in whole base pages. All parts together are at most @bytes. */
uint64_t share_bytes(uint64_t bytes, const struct rank *rank);

/*
 * Chooses the nodes for the rank's memory, and writes the reason to @why. Returns false if the
 * library must choose.
 */
bool share_nodes(const struct rank *rank, struct actmem_nodes *nodes, char why[SHARE_WHY_MAX]);

/* Returns the node of the folder's disk, or -1 if it is not known. */
int share_node_of_folder(const char *folder);

/*
 * Sets the rank's part of each setting in the environment and, if @places, the nodes of its memory.
 * Returns an enum exit_status after printing any error message with warnx().
 */
int share_set(const struct rank *rank, bool places);

#endif
