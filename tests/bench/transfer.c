/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Fills or spills a file from the beginning to the end, once or more, in requests of
 * one size, and prints what it took as JSON; transfer.py runs it in turns with fio.
 * DEPTH of them are under way at a time. The next is handed over, with the same memory,
 * where the queue tells that one has ended, as the store does it, so that one thread
 * begins and ends them all, as in fio.
 *
 * As in fio too, the main thread looks every 10 ms whether that is all, and what this
 * takes of the processor is not told: a processor that is wakened so often sleeps less
 * deeply, and what it does in between costs up to a third less.
 *
 *	transfer fill|spill FILE BLOCK_BYTES DEPTH TOTAL_BYTES [BEGIN_AT]
 *
 * BEGIN_AT: nanoseconds of CLOCK_MONOTONIC.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "queue/queue.h"

#define TAKEN_AT_ONCE	8
#define LOOK_US		10000

struct job {
	struct actmem_queue *queue;
	struct actmem_region *region;
	struct actmem_file *file;
	bool spills;
	uint64_t block_bytes, total_bytes, file_bytes;
	unsigned int depth;
	uint64_t all;			/* requests */
	atomic_ullong begun;
	uint64_t ended;
	double end;			/* seconds, of the last one */
	atomic_bool is_over;
};

static void die(const char *what)
{
	fprintf(stderr, "transfer: %s: %s\n", what, actmem_error());
	exit(1);
}

static double seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double processor_seconds_of_others(void)
{
	return seconds(CLOCK_PROCESS_CPUTIME_ID) - seconds(CLOCK_THREAD_CPUTIME_ID);
}

static void sleep_until(uint64_t ns)
{
	struct timespec then = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &then, NULL) == EINTR)
		;
}

static void set_up(struct job *job, const char *path)
{
	struct actmem_region_options region;
	struct actmem_file_options file;
	struct actmem_queue_options queue;
	struct actmem_file_info info;
	struct actmem *am;
	void *memory;

	ACTMEM_INIT(&region);
	region.length = (job->depth * job->block_bytes + (2 << 20) - 1) >> 21 << 21;
	region.name = "bench";
	ACTMEM_INIT(&queue);
	queue.depth = job->depth;
	queue.block_bytes = job->block_bytes;
	ACTMEM_INIT(&file);
	file.paths = &path;
	file.path_count = 1;
	file.flags = ACTMEM_FILE_NO_ATIME | (job->spills ? 0 : ACTMEM_FILE_READ_ONLY);
	ACTMEM_INIT(&info);
	if (actmem_open(&am, NULL) || actmem_region_create(am, &region, &job->region) ||
	    actmem_region_map(job->region, &memory) ||
	    actmem_queue_create(am, &queue, &job->queue) ||
	    actmem_queue_attach(job->queue, job->region, 0) ||
	    actmem_file_open(job->queue, &file, &job->file) ||
	    actmem_file_get_info(job->file, &info))
		die("set up");
	memset(memory, 0x5a, region.length);
	job->file_bytes = info.length;
	fprintf(stderr, "# %s; %s; blocks of %llu, %u at a time\n", actmem_describe(am),
		actmem_queue_describe(job->queue), (unsigned long long)info.block_bytes,
		info.depth);
}

static void begin(struct job *job, uint64_t slot)
{
	uint64_t number = atomic_fetch_add(&job->begun, 1), at;
	struct actmem_request request;

	if (number >= job->all)
		return;
	at = number % (job->file_bytes / job->block_bytes) * job->block_bytes;
	ACTMEM_INIT(&request);
	request.cookie = slot;
	if (job->spills ? actmem_queue_spill(job->queue, job->file, at, job->region,
					     slot * job->block_bytes, job->block_bytes, &request) :
			  actmem_queue_fill(job->queue, job->file, at, job->region,
					    slot * job->block_bytes, job->block_bytes, &request))
		die("begin");
}

/* In the queue's thread. */
static void go_on(void *data)
{
	struct actmem_completion completions[TAKEN_AT_ONCE];
	struct job *job = data;
	int count, i;

	do {
		count = actmem_queue_wait(job->queue, completions, TAKEN_AT_ONCE, 0);
		for (i = 0; i < count; i++) {
			if (completions[i].result)
				die("transfer");
			begin(job, completions[i].cookie);
			if (++job->ended < job->all)
				continue;
			job->end = seconds(CLOCK_MONOTONIC);
			job->is_over = true;
		}
	} while (count == TAKEN_AT_ONCE);
}

/* Returns what it took of the processor. */
static double transfer(struct job *job)
{
	double others = processor_seconds_of_others();
	double own = seconds(CLOCK_THREAD_CPUTIME_ID);
	uint64_t slot;

	for (slot = 0; slot < job->depth; slot++)
		begin(job, slot);
	own = seconds(CLOCK_THREAD_CPUTIME_ID) - own;
	while (!job->is_over)
		usleep(LOOK_US);
	return processor_seconds_of_others() - others + own;
}

int main(int argc, char **argv)
{
	struct job job = { 0 };
	double begun, used;

	if (argc < 6 || argc > 7 || (strcmp(argv[1], "fill") && strcmp(argv[1], "spill"))) {
		fprintf(stderr,
			"transfer fill|spill FILE BLOCK_BYTES DEPTH TOTAL_BYTES [BEGIN_AT]\n");
		return 2;
	}
	job.spills = !strcmp(argv[1], "spill");
	job.block_bytes = strtoull(argv[3], NULL, 0);
	job.depth = (unsigned int)strtoul(argv[4], NULL, 0);
	job.total_bytes = strtoull(argv[5], NULL, 0);
	set_up(&job, argv[2]);
	job.all = job.total_bytes / job.block_bytes;
	job.is_over = !job.all;
	if (queue_notify_by(job.queue, go_on, &job))
		die("notify");
	if (argc == 7)
		sleep_until(strtoull(argv[6], NULL, 0));
	begun = seconds(CLOCK_MONOTONIC);
	used = transfer(&job);
	printf("{\"seconds\": %.6f, \"processor_seconds\": %.6f, \"bytes\": %llu}\n",
	       job.all ? job.end - begun : 0, used,
	       (unsigned long long)(job.all * job.block_bytes));
	return 0;
}
