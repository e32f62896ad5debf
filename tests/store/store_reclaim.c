/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Processes whose limit falls and rises while their stores are in use: two stores that spill
 * share the excess, and the one that does not spill keeps its memory. On the driver they exceed
 * the limit of their user or, with the argument dmem, that of their cgroup; on memfd each its own.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "store_test.h"
#include "watch/published.h"

#define BLOCK		(MIB / 2)
#define BLOCKS		24
#define SPILLING	(8 * MIB)	/* budget of a store that spills */
#define KEEPING		(BLOCKS * BLOCK)
#define LIMIT		(SPILLING + KEEPING)
#define USER_LIMIT	"/sys/class/misc/actmem/user_limit_bytes"
#define CGROUPS		"/tmp/cgroup"
#define CGROUP		CGROUPS "/jobs"
#define NODE		"1"		/* dmem.max has a limit for each node */
#define WAITS		6000		/* of 10 ms */
#define JOBS		3

enum limit {
	LIMIT_OF_HANDLE,
	LIMIT_OF_USER,
	LIMIT_OF_CGROUP,
};

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

static bool put(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");
	bool is_set = file && fputs(text, file) >= 0;

	return file && !fclose(file) && is_set;
}

/* UINT64_MAX: no limit. */
static bool set_limits(const struct job *jobs, enum limit limit, uint64_t all, uint64_t each)
{
	bool is_good = true;
	char text[32] = "max", line[64];
	unsigned int i;

	if (all != UINT64_MAX)
		snprintf(text, sizeof(text), "%llu", (unsigned long long)all);
	snprintf(line, sizeof(line), "actmem/node" NODE " %s", text);
	if (limit == LIMIT_OF_CGROUP)
		return put(CGROUP "/dmem.max", line);
	if (limit == LIMIT_OF_USER)
		return put(USER_LIMIT, text);
	for (i = 0; i < JOBS; i++)
		is_good &= published_set_limit(jobs[i].pid, each == UINT64_MAX ? 0 : each) == 1;
	return is_good;
}

static void test_limits(struct job *jobs, enum limit limit)
{
	unsigned int i;

	for (i = 0; i < JOBS - 1; i++)
		ok(awaits(&jobs[i], SPILLING, SPILLING), "job %u uses its budget", i);
	ok(awaits(&jobs[i], KEEPING, KEEPING), "a job that does not spill uses its budget");
	ok(set_limits(jobs, limit, LIMIT, SPILLING / 2), "the limit falls below the usage");
	for (i = 0; i < JOBS - 1; i++)
		ok(awaits(&jobs[i], 2 * MIB, SPILLING - 2 * MIB), "job %u returns its share", i);
	for (i = 0; limit && i < WAITS && jobs[0].bytes + jobs[1].bytes + KEEPING > LIMIT; i++)
		usleep(10000);
	ok(jobs[0].bytes + jobs[1].bytes + KEEPING <= LIMIT, "the usage falls to the limit");
	for (i = 0; i < JOBS; i++)
		ok(goes_on(&jobs[i]), "job %u goes on", i);
	ok(jobs[0].bytes + jobs[1].bytes + KEEPING <= LIMIT, "the usage stays below the limit");
	ok(jobs[JOBS - 1].bytes == KEEPING, "the job that does not spill keeps its memory");
	ok(set_limits(jobs, limit, UINT64_MAX, UINT64_MAX), "the limit rises");
	for (i = 0; i < JOBS - 1; i++)
		ok(awaits(&jobs[i], SPILLING, SPILLING), "job %u uses its budget again", i);
}

static void enter_cgroup(void)
{
	mkdir("/tmp", 0755);
	mkdir(CGROUPS, 0755);
	if (mount("cgroup", CGROUPS, "cgroup2", 0, NULL) || setenv("ACTMEM_NODES", NODE, 1) ||
	    setenv("ACTMEM_BACKEND", "driver", 1) ||
	    !put(CGROUPS "/cgroup.subtree_control", "+dmem") || mkdir(CGROUP, 0755) ||
	    !put(CGROUP "/cgroup.procs", "0"))
		tap_bail(CGROUP ": %m");
}

static bool on_this_driver(void)
{
	struct actmem *am = open_or_bail();
	bool is_driver = on_driver(am);

	actmem_close(am);
	return is_driver;
}

int main(int argc, char **argv)
{
	struct job *jobs = mmap(NULL, JOBS * sizeof(*jobs), PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	bool is_dmem = argc == 2 && !strcmp(argv[1], "dmem");
	enum limit limit = LIMIT_OF_CGROUP;
	unsigned int i;
	int status;

	if (is_dmem)
		enter_cgroup();
	else
		limit = on_this_driver() ? LIMIT_OF_USER : LIMIT_OF_HANDLE;
	if (jobs == MAP_FAILED)
		tap_bail("mmap");
	start_jobs(jobs);
	test_limits(jobs, limit);
	for (i = 0; i < JOBS; i++)
		jobs[i].is_to_end = true;
	for (i = 0; i < JOBS; i++)
		ok(waitpid(jobs[i].pid, &status, 0) == jobs[i].pid && !status,
		   "job %u had no wrong byte and leaves nothing", i);
	ok(!is_dmem || (put(CGROUPS "/cgroup.procs", "0") && !rmdir(CGROUP) && !umount(CGROUPS)),
	   "nothing of the jobs is left in their cgroup");
	return tap_end();
}
