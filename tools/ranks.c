// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Determines the rank of this process among a job's processes on this machine, and the number of
 * these processes.
 */
#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "ranks.h"
#include "tool.h"

/* The launchers, innermost first: mpirun and torchrun can themselves run in a Slurm step. */
static const struct launcher {
	const char *rank, *of, *else_of;
} launchers[] = {
	{ "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL },
	{ "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL },
	{ "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL },
	{ "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE" },
};

/* Parses a number at *@text, and advances *@text past the number. */
static bool parse_leading(const char **text, unsigned int *number)
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

static bool parse_whole(const char *text, unsigned int *number)
{
	return parse_leading(&text, number) && !*text;
}

bool rank_slurm_tasks(const char *text, unsigned int node, unsigned int *tasks)
{
	unsigned int nodes;

	while (parse_leading(&text, tasks)) {
		nodes = 1;
		if (!strncmp(text, "(x", 2)) {
			text += 2;
			if (!parse_leading(&text, &nodes) || *text++ != ')')
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

static const char *variable_value(const char *variable)
{
	const char *text = variable ? getenv(variable) : NULL;

	return text && *text ? text : NULL;
}

/*
 * Reads the number of ranks on this machine. SLURM_STEP_TASKS_PER_NODE lists the number of tasks of
 * each node. SLURM_NTASKS_PER_NODE is a single number, which applies to each node.
 */
static bool count_of(const char *variable, const char *text, unsigned int *of)
{
	unsigned int node = 0;
	const char *which = variable_value("SLURM_NODEID");

	if (strncmp(variable, "SLURM_", 6))
		return parse_whole(text, of);
	if (!strcmp(variable, "SLURM_STEP_TASKS_PER_NODE") && which && !parse_whole(which, &node))
		return false;
	return rank_slurm_tasks(text, node, of);
}

static int find_said(const char *said, struct rank *rank)
{
	const char *text = said;

	rank->by = "--share";
	if (parse_leading(&text, &rank->number) && *text++ == '/' && parse_whole(text, &rank->of) &&
	    rank->number < rank->of)
		return STATUS_OK;
	warnx("--share is '%s', but must be RANK/OF, such as 0/4 to 3/4 for four processes", said);
	return STATUS_USAGE;
}

int rank_find(const char *said, struct rank *rank)
{
	const char *number, *of, *variable;
	size_t i;

	if (said)
		return find_said(said, rank);
	for (i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		variable = variable_value(launchers[i].of) ? launchers[i].of : launchers[i].else_of;
		number = variable_value(launchers[i].rank);
		of = variable_value(variable);
		if (!number || !of)
			continue;
		rank->by = launchers[i].rank;
		if (parse_whole(number, &rank->number) && count_of(variable, of, &rank->of) &&
		    rank->number < rank->of)
			return STATUS_OK;
		warnx("%s is '%s' and %s is '%s', which is not a valid rank; use --share=RANK/OF",
		      rank->by, number, variable, of);
		return STATUS_USAGE;
	}
	warnx("cannot share: no variable has the rank of this process on this machine (SLURM_LOCALID with SLURM_STEP_TASKS_PER_NODE or SLURM_NTASKS_PER_NODE, OMPI_COMM_WORLD_LOCAL_RANK with _LOCAL_SIZE, MPI_LOCALRANKID with MPI_LOCALNRANKS, LOCAL_RANK with LOCAL_WORLD_SIZE); start it with srun, mpirun or torchrun, or use --share=RANK/OF");
	return STATUS_USAGE;
}
