// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Which rank a process is, and how what is meant for all ranks is divided. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "tools/share.h"
#include "tools/tool.h"

#define MOST	12

static const char *const variables[] = {
	"LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
	"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "SLURM_LOCALID",
	"SLURM_STEP_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID", "ACTMEM_BUDGET",
	"ACTMEM_HEAP_LIMIT", "ACTMEM_SPILL", "ACTMEM_SPILL_LIMIT", "ACTMEM_NODES",
	"ACTMEM_POLICY", "ACTMEM_NAME",
};

static int forget(void **state)
{
	size_t i;

	for (i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	setenv("ACTMEM_QUIET", "1", 1);
	setenv("JAX_PLATFORMS", "cpu", 1);
	return 0;
}

static void assert_rank(unsigned int number, unsigned int of, const char *by)
{
	struct rank rank;

	assert_int_equal(rank_find(NULL, &rank), STATUS_OK);
	assert_int_equal(rank.number, number);
	assert_int_equal(rank.of, of);
	assert_string_equal(rank.by, by);
}

static void test_each_launcher(void **state)
{
	struct rank rank;

	assert_int_equal(rank_find(NULL, &rank), STATUS_USAGE);
	setenv("SLURM_LOCALID", "2", 1);
	assert_int_equal(rank_find(NULL, &rank), STATUS_USAGE);
	setenv("SLURM_NTASKS_PER_NODE", "3", 1);
	setenv("SLURM_NODEID", "5", 1);
	assert_rank(2, 3, "SLURM_LOCALID");
	setenv("SLURM_STEP_TASKS_PER_NODE", "1(x5),4", 1);
	assert_rank(2, 4, "SLURM_LOCALID");
	/* What a step of Slurm's has started is nearer. */
	setenv("MPI_LOCALRANKID", "1", 1);
	setenv("MPI_LOCALNRANKS", "2", 1);
	assert_rank(1, 2, "MPI_LOCALRANKID");
	setenv("OMPI_COMM_WORLD_LOCAL_RANK", "7", 1);
	setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "8", 1);
	assert_rank(7, 8, "OMPI_COMM_WORLD_LOCAL_RANK");
	/* A number without how many there are tells nothing. */
	setenv("LOCAL_RANK", "0", 1);
	assert_rank(7, 8, "OMPI_COMM_WORLD_LOCAL_RANK");
	setenv("LOCAL_WORLD_SIZE", "1", 1);
	assert_rank(0, 1, "LOCAL_RANK");
	assert_int_equal(rank_find("3/4", &rank), STATUS_OK);
	assert_int_equal(rank.number, 3);
	assert_int_equal(rank.of, 4);
}

static void test_no_rank(void **state)
{
	static const char *const said[] = { "", "1", "1/", "/2", "2/2", "-1/2", "0/0", "0/1x",
					    "0/99999999999999999999" };
	static const char *const ranks[] = { "4", "-1", "x", "1 " };
	struct rank rank;
	size_t i;

	for (i = 0; i < sizeof(said) / sizeof(said[0]); i++)
		assert_int_equal(rank_find(said[i], &rank), STATUS_USAGE);
	setenv("LOCAL_WORLD_SIZE", "4", 1);
	for (i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		setenv("LOCAL_RANK", ranks[i], 1);
		assert_int_equal(rank_find(NULL, &rank), STATUS_USAGE);
	}
}

static void test_lists_of_slurm(void **state)
{
	static const struct {
		const char *text;
		unsigned int node, tasks;	/* 0: not told */
	} cases[] = {
		{ "4", 0, 4 }, { "4", 1, 0 }, { "4(x2),3", 0, 4 }, { "4(x2),3", 1, 4 },
		{ "4(x2),3", 2, 3 }, { "4(x2),3", 3, 0 }, { "1,2(x3),16", 3, 2 },
		{ "1,2(x3),16", 4, 16 }, { "", 0, 0 }, { "4(x2", 0, 0 }, { "4(x)", 0, 0 },
		{ "4(y2)", 0, 0 }, { "4;3", 0, 0 }, { "4,", 1, 0 },
	};
	unsigned int tasks;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tasks = 0;
		assert_int_equal(rank_slurm_tasks(cases[i].text, cases[i].node, &tasks),
				 !!cases[i].tasks);
		if (cases[i].tasks)
			assert_int_equal(tasks, cases[i].tasks);
	}
}

static void test_slices(void **state)
{
	unsigned int users[MOST], things, thing, least, most, shortest, longest;
	struct slice slice;
	struct rank rank;

	for (things = 1; things <= MOST; things++) {
		for (rank.of = 1; rank.of <= MOST; rank.of++) {
			memset(users, 0, sizeof(users));
			shortest = MOST;
			longest = 0;
			for (rank.number = 0; rank.number < rank.of; rank.number++) {
				slice = share_slice(things, &rank);
				assert_in_range(slice.count, 1, things - slice.first);
				shortest = slice.count < shortest ? slice.count : shortest;
				longest = slice.count > longest ? slice.count : longest;
				for (thing = 0; thing < slice.count; thing++)
					users[slice.first + thing]++;
			}
			least = MOST;
			most = 0;
			for (thing = 0; thing < things; thing++) {
				least = users[thing] < least ? users[thing] : least;
				most = users[thing] > most ? users[thing] : most;
			}
			assert_in_range(longest - shortest, 0, 1);
			assert_in_range(most - least, 0, 1);
			assert_true(least > 0);
			assert_true(most == 1 || things < rank.of);
		}
	}
}

static void test_sizes(void **state)
{
	static const uint64_t sizes[] = { 1, 4096, 4097, 12345678, 1 << 20, 3ULL << 30,
					  UINT64_MAX };
	uint64_t part;
	struct rank rank;
	size_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (rank.of = 1; rank.of <= MOST; rank.of++) {
			rank.number = rank.of - 1;
			part = share_bytes(sizes[i], &rank);
			assert_int_equal(part % 4096, 0);
			assert_true(part <= sizes[i] / rank.of);
			assert_true(sizes[i] / rank.of - part < 4096);
		}
	}
}

static void assert_set(const char *variable, const char *value)
{
	const char *text = getenv(variable);

	if (value)
		assert_non_null(text);
	if (value)
		assert_string_equal(text, value);
	else
		assert_null(text);
}

static void test_environment(void **state)
{
	struct rank rank = { 2, 3, "--share" };

	setenv("ACTMEM_BUDGET", "10M", 1);
	setenv("ACTMEM_SPILL", "/:/proc:/sys:/dev", 1);
	setenv("ACTMEM_SPILL_LIMIT", "1G", 1);
	setenv("ACTMEM_NAME", "/mnt/job", 1);
	assert_int_equal(share_set(&rank, true), STATUS_OK);
	assert_set("ACTMEM_BUDGET", "3493888");
	assert_set("ACTMEM_SPILL_LIMIT", "357912576");
	assert_set("ACTMEM_NAME", "/mnt/job.2");
	assert_set("ACTMEM_HEAP_LIMIT", NULL);
	/* What cannot be read is left to what tells so. */
	setenv("ACTMEM_BUDGET", "much", 1);
	setenv("ACTMEM_SPILL", "/a::/b", 1);
	unsetenv("ACTMEM_SPILL_LIMIT");
	assert_int_equal(share_set(&rank, true), STATUS_OK);
	assert_set("ACTMEM_BUDGET", "much");
	assert_set("ACTMEM_SPILL", "/a::/b");
	setenv("ACTMEM_BUDGET", "12287", 1);
	assert_int_equal(share_set(&rank, true), STATUS_USAGE);
}

/* Of folders that nothing is known of, the order is the user's. */
static void test_folders(void **state)
{
	static const char *const expected[] = { "/none/a", "/none/b", "/none/c:/none/d" };
	struct rank rank = { 0, 3, "--share" };

	for (; rank.number < rank.of; rank.number++) {
		setenv("ACTMEM_SPILL", "/none/a:/none/b:/none/c:/none/d", 1);
		assert_int_equal(share_set(&rank, true), STATUS_OK);
		assert_set("ACTMEM_SPILL", expected[rank.number]);
	}
	rank.of = 5;
	rank.number = 4;
	setenv("ACTMEM_SPILL", "/none/a:/none/b", 1);
	assert_int_equal(share_set(&rank, true), STATUS_OK);
	assert_set("ACTMEM_SPILL", "/none/b");
}

/* Named nodes are divided though this machine may have none of them, which is told later. */
static void test_nodes(void **state)
{
	static const char *const expected[] = { "1000", "1001", "1002,1003" };
	struct rank rank = { 0, 3, "--share" };

	for (; rank.number < rank.of; rank.number++) {
		setenv("ACTMEM_NODES", "1000-1003", 1);
		assert_int_equal(share_set(&rank, true), STATUS_OK);
		assert_set("ACTMEM_NODES", expected[rank.number]);
	}
	setenv("ACTMEM_NODES", "1000-1003", 1);
	assert_int_equal(share_set(&(struct rank){ 2, 3, "--share" }, false), STATUS_OK);
	assert_set("ACTMEM_NODES", "1000-1003");
	setenv("ACTMEM_POLICY", "interleave", 1);
	rank.number = 2;
	assert_int_equal(share_set(&rank, true), STATUS_OK);
	assert_set("ACTMEM_NODES", "1000-1003");
	setenv("ACTMEM_POLICY", "preferred", 1);
	assert_int_equal(share_set(&rank, true), STATUS_OK);
	assert_set("ACTMEM_NODES", "1002");
}

#define MANY_CPUS	4096

/* As the kernel of a machine with MANY_CPUS, of which this process may use the first. */
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *cpus)
{
	if (size < MANY_CPUS / 8) {
		errno = EINVAL;
		return -1;
	}
	memset(cpus, 0, size);
	CPU_SET_S(0, size, cpus);
	return 0;
}

static void test_many_cpus(void **state)
{
	setenv("ACTMEM_NODES", "0,1000,1001", 1);
	assert_int_equal(share_set(&(struct rank){ 1, 3, "--share" }, true), STATUS_OK);
	assert_set("ACTMEM_NODES", "0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_each_launcher, forget),
		cmocka_unit_test_setup(test_no_rank, forget),
		cmocka_unit_test_setup(test_lists_of_slurm, forget),
		cmocka_unit_test_setup(test_slices, forget),
		cmocka_unit_test_setup(test_sizes, forget),
		cmocka_unit_test_setup(test_environment, forget),
		cmocka_unit_test_setup(test_folders, forget),
		cmocka_unit_test_setup(test_nodes, forget),
		cmocka_unit_test_setup(test_many_cpus, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
