/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What each of a job's processes on a machine has of what is meant for all of them. */
#ifndef ACTMEM_SHARE_H
#define ACTMEM_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "actmem.h"
#include "ranks.h"

#define SHARE_WHY_MAX	64

/* So many of a number of things, from that one on. */
struct slice {
	unsigned int first, count;
};

/*
 * Of things in a row. Where there are enough, no two ranks have the same one, and all are
 * somebody's; else each rank has one, and each is used by about as many.
 */
struct slice share_slice(unsigned int things, const struct rank *rank);

/* An equal part, in whole base pages: all parts together are no more than @bytes. */
uint64_t share_bytes(uint64_t bytes, const struct rank *rank);

/*
 * The nodes that the rank's memory is to be on, and whose they are, in words. False: leave
 * it to the library.
 */
bool share_nodes(const struct rank *rank, struct actmem_nodes *nodes, char why[SHARE_WHY_MAX]);

/* The node that the disk below a folder is at; -1: not known. */
int share_node_of_folder(const char *folder);

/*
 * Leaves the rank's part of them in the environment, and if it @places memory, on which
 * nodes. An enum exit_status, told by warnx().
 */
int share_set(const struct rank *rank, bool places);

#endif
