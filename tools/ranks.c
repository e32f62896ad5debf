// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Determines the rank of this process among a job's processes on this machine, and their number. */
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ranks.h"
#include "tool.h"

/* Innermost first: mpirun and torchrun may themselves run in a Slurm step. */
static const struct launcher {
	const char *rank, *of, *else_of;
} launchers[] = {
	{ "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL },
	{ "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL },
	{ "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL },
	{ "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE" },
};

/* Parses a number at *@text, and moves *@text behind it. */
static bool take_number(const char **text, unsigned int *number)
{
	unsigned long value;
	char *end;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	value = strtoul(*text, &end, 10);
	if (errno || value > RANKS_MAX)
		return false;
	*number = (unsigned int)value;
	*text = end;
	return true;
}

static bool number_of(const char *text, unsigned int *number)
{
	return take_number(&text, number) && !*text;
}

bool rank_slurm_tasks(const char *text, unsigned int node, unsigned int *tasks)
{
	unsigned int nodes;

	while (take_number(&text, tasks)) {
		nodes = 1;
		if (!strncmp(text, "(x", 2)) {
			text += 2;
			if (!take_number(&text, &nodes) || *text++ != ')')
				return false;
		}
		if (node < nodes)
			return !*text || *text == ',';
		node -= nodes;
		if (*text++ != ',')
			return false;
	}
	return false;
}

static const char *value_of(const char *variable)
{
	const char *text = variable ? getenv(variable) : NULL;

	return text && *text ? text : NULL;
}

/*
 * Slurm's list covers all nodes of a step. The requested SLURM_NTASKS_PER_NODE is the same on each.
 */
static bool count_of(const char *variable, const char *text, unsigned int *of)
{
	unsigned int node = 0;
	const char *which = value_of("SLURM_NODEID");

	if (strncmp(variable, "SLURM_", 6))
		return number_of(text, of);
	if (!strcmp(variable, "SLURM_STEP_TASKS_PER_NODE") && which && !number_of(which, &node))
		return false;
	return rank_slurm_tasks(text, node, of);
}

static int find_said(const char *said, struct rank *rank)
{
	const char *text = said;

	rank->by = "--share";
	if (take_number(&text, &rank->number) && *text++ == '/' && number_of(text, &rank->of) &&
	    rank->number < rank->of)
		return STATUS_OK;
	warnx("--share is '%s'; it may be RANK/OF, as 0/4 and up to 3/4 of four processes", said);
	return STATUS_USAGE;
}

int rank_find(const char *said, struct rank *rank)
{
	const char *number, *of, *variable;
	size_t i;

	if (said)
		return find_said(said, rank);
	for (i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		variable = value_of(launchers[i].of) ? launchers[i].of : launchers[i].else_of;
		number = value_of(launchers[i].rank);
		of = value_of(variable);
		if (!number || !of)
			continue;
		rank->by = launchers[i].rank;
		if (number_of(number, &rank->number) && count_of(variable, of, &rank->of) &&
		    rank->number < rank->of)
			return STATUS_OK;
		warnx("%s is '%s' and %s '%s', which is no rank of that many; say --share=RANK/OF",
		      rank->by, number, variable, of);
		return STATUS_USAGE;
	}
	warnx("cannot share: no variable tells which of how many processes on this machine this is (SLURM_LOCALID with SLURM_STEP_TASKS_PER_NODE or SLURM_NTASKS_PER_NODE, OMPI_COMM_WORLD_LOCAL_RANK with _LOCAL_SIZE, MPI_LOCALRANKID with MPI_LOCALNRANKS, LOCAL_RANK with LOCAL_WORLD_SIZE); start it by srun, mpirun or torchrun, or say --share=RANK/OF");
	return STATUS_USAGE;
}
