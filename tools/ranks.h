/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The rank of this process among a job's processes on this machine. */
#ifndef ACTMEM_RANKS_H
#define ACTMEM_RANKS_H

#include <stdbool.h>

#define RANKS_MAX	65536

struct rank {
	unsigned int number;		/* from 0 to @of - 1 */
	unsigned int of;		/* number of ranks on this machine */
	const char *by;			/* the variable or option that sets the rank */
};

/*
 * Reads the rank from @said, such as "1/4". If @said is NULL, reads the rank from the variables of
 * the job's launcher. Returns an enum exit_status after printing any error message with warnx().
 */
int rank_find(const char *said, struct rank *rank);

/*
 * Reads the number of tasks on node @node (from 0 on) from a Slurm list such as "4(x2),3". Returns
 * false if @text is not such a list.
 */
bool rank_slurm_tasks(const char *text, unsigned int node, unsigned int *tasks);

#endif
