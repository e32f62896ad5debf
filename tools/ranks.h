/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Which of a job's processes on this machine this one is. */
#ifndef ACTMEM_RANKS_H
#define ACTMEM_RANKS_H

#include <stdbool.h>

#define RANKS_MAX	65536

struct rank {
	unsigned int number;		/* from 0 on, below @of */
	unsigned int of;
	const char *by;			/* the variable or option that told it */
};

/*
 * From @said, "1/4", or where that is NULL from the variables of whoever has started the
 * job. An enum exit_status, told by warnx().
 */
int rank_find(const char *said, struct rank *rank);

/* Of "4(x2),3", as Slurm has it, those on its node @node, from 0 on. False: not that. */
bool rank_slurm_tasks(const char *text, unsigned int node, unsigned int *tasks);

#endif
