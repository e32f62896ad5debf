// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Measures the disks between the steps of actmem replay, with requests of a step's sizes. Each
 * measurement is done with and without a thread that fills or verifies data. For each byte that the
 * disks move, this thread fills or verifies the same number of bytes as a step. The disks never
 * wait for the thread, but the thread uses part of the memory bandwidth.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/base.h"
#include "replay.h"
#include "../tools/tool.h"

#define MIB		(1ULL << 20)
#define PROBE_MOST	(512 * MIB)
#define PROBE_NS	(20 * NS_PER_MS)
/*
 * Maximum length of the memory that the thread fills or verifies. Caches of processors are smaller.
 */
#define WORK_MOST	(128 * MIB)

/* Called before each request of @bytes. Gives work to the thread if the thread has been started. */
static void owe_work(void *data, uint64_t bytes)
{
	const struct replay *replay = data;

	if (replay->work)
		work_owe(replay->work, bytes);
}

/* Creates a second file beside the store's file, for the measurement of the disks. */
int replay_probe_open(struct replay *replay)
{
	const struct replay_options *options = &replay->options;
	struct transfers_options transfers = {
		.paths = options->spill_paths,
		.path_count = options->spill_path_count,
		.flags = options->flags & ACTMEM_STORE_ALLOW_BUFFERED ? ACTMEM_FILE_ALLOW_BUFFERED
								      : 0,
		.page_bytes = replay->page_bytes,
		.size_count = replay->plan.layers ? 1 : MODEL_TENSORS,
		.begins = owe_work,
		.data = replay,
	};
	char words[TRANSFERS_WORDS];
	unsigned int i;

	if (!options->spill_path_count)
		return STATUS_OK;
	for (i = 0; i < transfers.size_count; i++)
		transfers.sizes[i] = replay->bytes[i];
	if (options->budget_bytes < replay->step_bytes)
		replay->probe_bytes = replay->step_bytes - options->budget_bytes;
	if (replay->probe_bytes > PROBE_MOST)
		replay->probe_bytes = PROBE_MOST;
	if (!replay->probe_bytes)
		replay->probe_bytes = 1;
	transfers.file_bytes = replay->probe_bytes;
	replay->transfers = transfers_open(replay->am, &transfers, words);
	if (!replay->transfers && options->flags & ACTMEM_STORE_ALLOW_MEMORY) {
		warnx("the disks are not measured, so bounds have no I/O: %s", words);
		return STATUS_OK;
	}
	if (!replay->transfers) {
		warnx("%s", words);
		return STATUS_FAILED;
	}
	replay->work = work_open(options->budget_bytes < WORK_MOST ? options->budget_bytes :
				 WORK_MOST);
	if (replay->work)
		return STATUS_OK;
	warnx("cannot start the thread that fills or verifies memory: %s", strerror(errno));
	return STATUS_FAILED;
}

void replay_probe_close(struct replay *replay)
{
	transfers_close(replay->transfers);
	work_close(replay->work);
}

/*
 * Returns how many bytes a step fills for each byte that it spills. A step verifies the same number
 * for each byte that it reads back.
 */
static double work_per_byte(const struct replay *replay)
{
	uint64_t budget = replay->options.budget_bytes, bytes = replay->step_bytes;

	return bytes > budget ? (double)bytes / (double)(bytes - budget) : 0;
}

static int measure_disks(struct replay *replay, bool spills, double part, double *bandwidth)
{
	char words[TRANSFERS_WORDS];
	int error;

	work_begin(replay->work, spills, part);
	error = transfers_run(replay->transfers, spills, replay->probe_bytes, PROBE_NS, bandwidth,
			      words);
	replay->worked_bytes += work_end(replay->work);
	if (error)
		warnx("%s", words);
	return error;
}

int replay_probe(struct replay *replay, struct disk_speeds *speeds)
{
	double part = work_per_byte(replay);
	int error;

	if (!replay->transfers)
		return 0;
	error = measure_disks(replay, true, part, &speeds->beside.spill);
	if (!error)
		error = measure_disks(replay, true, 0, &speeds->alone.spill);
	if (!error)
		error = measure_disks(replay, false, part, &speeds->beside.fill);
	if (!error)
		error = measure_disks(replay, false, 0, &speeds->alone.fill);
	return error;
}

static double mean_speed(double before, double after)
{
	return before > 0 && after > 0 ? 2 / (1 / before + 1 / after) : 0;
}

struct disk_speeds replay_probe_mean(const struct disk_speeds *before,
				     const struct disk_speeds *after)
{
	return (struct disk_speeds){
		.beside.spill = mean_speed(before->beside.spill, after->beside.spill),
		.beside.fill = mean_speed(before->beside.fill, after->beside.fill),
		.alone.spill = mean_speed(before->alone.spill, after->alone.spill),
		.alone.fill = mean_speed(before->alone.fill, after->alone.fill),
	};
}
