/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Processes whose limit falls and rises while their stores are in use: two stores that spill
 * share the excess, and the one that does not spill keeps its memory. On the driver they exceed
 * the limit of their user, on memfd each its own.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "store_test.h"
#include "watch/published.h"

#define BLOCK		(MIB / 2)
#define BLOCKS		24
#define SPILLING	(8 * MIB)	/* budget of a store that spills */
#define KEEPING		(BLOCKS * BLOCK)
#define LIMIT		(SPILLING + KEEPING)
#define USER_LIMIT	"/sys/class/misc/actmem/user_limit_bytes"
#define WAITS		6000		/* of 10 ms */
#define JOBS		3

/* What a process shows of itself. The last one does not spill. */
struct job {
	pid_t pid;
	_Atomic uint64_t bytes;
	_Atomic unsigned int rounds;
	_Atomic bool is_to_end;
};

static bool run_round(struct actmem_store *store, uint64_t round)
{
	uint64_t i;
	int error = 0;

	for (i = 0; i < BLOCKS && !error; i++)
		error = put_block(store, i, BLOCK, round + i);
	while (i-- && !error)
		error = take_block(store, i, BLOCK, round + i);
	return !error;
}

static int run_job(struct job *job, bool spills)
{
	const char *path = spill_path();
	uint64_t budget = spills ? SPILLING : KEEPING;
	struct actmem_store_options options = store_options(budget, &path, spills);
	struct actmem *am = open_or_bail();
	struct actmem_store *store;
	bool is_good = true;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	options.grow_bytes = 2 * MIB;
	store = store_or_bail(am, &options);
	while (is_good && !job->is_to_end) {
		is_good = run_round(store, job->rounds);
		job->bytes = stats_of(store).memory_bytes;
		job->rounds++;
	}
	is_good = is_good && !actmem_store_destroy(store) && !actmem_close(am);
	if (!is_good)
		printf("# %s\n", actmem_error());
	fflush(stdout);
	return is_good ? 0 : 1;
}

static void start_jobs(struct job *jobs)
{
	unsigned int i;
	pid_t child;

	fflush(stdout);
	for (i = 0; i < JOBS; i++) {
		child = fork();
		if (!child)
			_exit(run_job(&jobs[i], i < JOBS - 1));
		jobs[i].pid = child;
	}
}

static bool awaits(const struct job *job, uint64_t least, uint64_t most)
{
	unsigned int i;

	for (i = 0; i < WAITS && (job->bytes < least || job->bytes > most); i++)
		usleep(10000);
	return job->bytes >= least && job->bytes <= most;
}

/* Waits until the job has done some rounds more. */
static bool goes_on(const struct job *job)
{
	unsigned int i, rounds = job->rounds;

	for (i = 0; i < WAITS && job->rounds < rounds + 3; i++)
		usleep(10000);
	return job->rounds >= rounds + 3;
}

static bool set_user_limit(const char *text)
{
	FILE *file = fopen(USER_LIMIT, "we");
	bool is_set = file && fputs(text, file) >= 0;

	return file && !fclose(file) && is_set;
}

/* UINT64_MAX: no limit. */
static bool set_limits(const struct job *jobs, bool is_driver, uint64_t all, uint64_t each)
{
	bool is_good = true;
	char text[32] = "max";
	unsigned int i;

	if (is_driver) {
		if (all != UINT64_MAX)
			snprintf(text, sizeof(text), "%llu", (unsigned long long)all);
		return set_user_limit(text);
	}
	for (i = 0; i < JOBS; i++)
		is_good &= published_set_limit(jobs[i].pid, each == UINT64_MAX ? 0 : each) == 1;
	return is_good;
}

static void test_limits(struct job *jobs, bool is_driver)
{
	unsigned int i;

	for (i = 0; i < JOBS - 1; i++)
		ok(awaits(&jobs[i], SPILLING, SPILLING), "job %u uses its budget", i);
	ok(awaits(&jobs[i], KEEPING, KEEPING), "a job that does not spill uses its budget");
	ok(set_limits(jobs, is_driver, LIMIT, SPILLING / 2), "the limit falls below the usage");
	for (i = 0; i < JOBS - 1; i++)
		ok(awaits(&jobs[i], 2 * MIB, SPILLING - 2 * MIB), "job %u returns its share", i);
	for (i = 0; is_driver && i < WAITS && jobs[0].bytes + jobs[1].bytes + KEEPING > LIMIT; i++)
		usleep(10000);
	ok(jobs[0].bytes + jobs[1].bytes + KEEPING <= LIMIT, "the usage falls to the limit");
	for (i = 0; i < JOBS; i++)
		ok(goes_on(&jobs[i]), "job %u goes on", i);
	ok(jobs[0].bytes + jobs[1].bytes + KEEPING <= LIMIT, "the usage stays below the limit");
	ok(jobs[JOBS - 1].bytes == KEEPING, "the job that does not spill keeps its memory");
	ok(set_limits(jobs, is_driver, UINT64_MAX, UINT64_MAX), "the limit rises");
	for (i = 0; i < JOBS - 1; i++)
		ok(awaits(&jobs[i], SPILLING, SPILLING), "job %u uses its budget again", i);
}

int main(void)
{
	struct job *jobs = mmap(NULL, JOBS * sizeof(*jobs), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct actmem *am = open_or_bail();
	bool is_driver = on_driver(am);
	unsigned int i;
	int status;

	actmem_close(am);
	if (jobs == MAP_FAILED)
		tap_bail("mmap");
	start_jobs(jobs);
	test_limits(jobs, is_driver);
	for (i = 0; i < JOBS; i++)
		jobs[i].is_to_end = true;
	for (i = 0; i < JOBS; i++)
		ok(waitpid(jobs[i].pid, &status, 0) == jobs[i].pid && !status,
		   "job %u had no wrong byte and leaves nothing", i);
	return tap_end();
}
