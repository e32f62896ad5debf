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

/* The nodes or folders with the numbers @first to @first + @count - 1. */
struct slice {
	unsigned int first, count;
};

/*
 * Divides nodes or folders among the ranks. @things is their number. If there are at least as many
 * things as ranks, each thing belongs to exactly one rank. Otherwise each rank gets one thing, and
 * about equally many ranks share each thing.
 */
struct slice share_slice(unsigned int things, const struct rank *rank);

/* Returns the rank's equal part of @bytes, rounded down to whole base pages. */
uint64_t share_bytes(uint64_t bytes, const struct rank *rank);

/*
 * Chooses the nodes for the rank's memory, and writes the reason to @why. Returns false to leave
 * the choice to the library.
 */
bool share_nodes(const struct rank *rank, struct actmem_nodes *nodes, char why[SHARE_WHY_MAX]);

/* Returns the node of the folder's disk, or -1 if it is not known. */
int share_node_of_folder(const char *folder);

/*
 * Replaces the budget, the limits and the spill folders in the environment by the rank's part of
 * each. Appends the rank's number to the heap's name. If @places, also sets the nodes of the rank's
 * memory. Returns an enum exit_status after printing any error message with warnx().
 */
int share_set(const struct rank *rank, bool places);

#endif
