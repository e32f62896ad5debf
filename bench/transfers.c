// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Runs requests of given lengths on a file. Enough requests run at the same time to keep the file's
 * devices busy.
 *
 * Each page of 4 KiB in the file begins with a stamp, a number that is computed from the page's
 * offset.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "transfers.h"

#define STAMP_EACH	4096

struct transfers {
	struct actmem_queue *queue;
	struct actmem_region *region;
	struct actmem_file *file;
	char *memory;
	struct actmem_file_info info;
	uint64_t sizes[TRANSFERS_SIZES];
	uint32_t size_count;
	uint64_t cycle_bytes;		/* sum of the sizes */
	uint64_t request_count;		/* requests that cover the file */
	uint64_t slot_bytes;
	uint32_t slot_count;
	const char *path;		/* first directory, for error messages */
	void (*begins)(void *data, uint64_t bytes);
	void *data;
};

struct transfer {
	uint64_t offset;
	uint64_t bytes;
};

static int copy_error(char words[TRANSFERS_WORDS], int error)
{
	snprintf(words, TRANSFERS_WORDS, "%s", actmem_error_in(ACTMEM_NAMES_RUN));
	return error;
}

static struct transfer transfer_at(const struct transfers *transfers, uint64_t number)
{
	uint32_t in_cycle = (uint32_t)(number % transfers->size_count), i;
	struct transfer transfer = {
		.offset = number / transfers->size_count * transfers->cycle_bytes,
		.bytes = transfers->sizes[in_cycle],
	};

	for (i = 0; i < in_cycle; i++)
		transfer.offset += transfers->sizes[i];
	return transfer;
}

static uint64_t parts_of(uint64_t bytes, uint64_t part)
{
	return (bytes + part - 1) / part;
}

/*
 * Computes the requests, and how many of them must run at the same time to keep the devices busy.
 */
static void lay_out_file(struct transfers *transfers, const struct transfers_options *options)
{
	uint64_t largest = 0, parts = 0;
	uint32_t i;

	transfers->size_count = options->size_count;
	for (i = 0; i < options->size_count; i++) {
		transfers->sizes[i] = round_up(options->sizes[i],
					       round_up(STAMP_EACH, transfers->info.alignment));
		transfers->cycle_bytes += transfers->sizes[i];
		parts += parts_of(transfers->sizes[i], transfers->info.block_bytes);
		if (transfers->sizes[i] > largest)
			largest = transfers->sizes[i];
	}
	transfers->request_count = parts_of(options->file_bytes, transfers->cycle_bytes) *
				   transfers->size_count;
	transfers->slot_count = (uint32_t)parts_of(transfers->info.depth, parts) *
				transfers->size_count + 1;
	transfers->slot_bytes = round_up(largest, round_up(STAMP_EACH,
							   transfers->info.memory_alignment));
}

static int open_file(struct transfers *transfers, const struct transfers_options *options,
		     uint64_t length)
{
	struct actmem_file_options file;

	ACTMEM_INIT(&file);
	file.paths = options->paths;
	file.path_count = options->path_count;
	file.flags = ACTMEM_FILE_TEMPORARY | options->flags;
	file.length = length;
	return actmem_file_open(transfers->queue, &file, &transfers->file);
}

/*
 * Opens the file twice. The length depends on the file's alignment, which is known only after the
 * file is open.
 */
static int open_transfers(struct transfers *transfers, struct actmem *am,
			  const struct transfers_options *options)
{
	struct actmem_region_options region;
	int error;

	error = actmem_queue_create(am, options->queue.size ? &options->queue : NULL,
				    &transfers->queue);
	if (!error)
		error = open_file(transfers, options, 0);
	ACTMEM_INIT(&transfers->info);
	if (!error)
		error = actmem_file_get_info(transfers->file, &transfers->info);
	if (error)
		return error;
	lay_out_file(transfers, options);
	actmem_file_close(transfers->file);
	transfers->file = NULL;
	error = open_file(transfers, options, transfers->request_count / transfers->size_count *
					      transfers->cycle_bytes);
	ACTMEM_INIT(&region);
	region.length = round_up(transfers->slot_bytes * transfers->slot_count,
				 options->page_bytes);
	region.name = "transfers";
	if (!error)
		error = actmem_region_create(am, &region, &transfers->region);
	if (!error)
		error = actmem_region_map(transfers->region, (void **)&transfers->memory);
	return error ? error : actmem_queue_attach(transfers->queue, transfers->region, 0);
}

struct transfers *transfers_open(struct actmem *am, const struct transfers_options *options,
				 char words[TRANSFERS_WORDS])
{
	struct transfers *transfers = calloc(1, sizeof(*transfers));
	double unused;
	int error;

	if (!transfers) {
		snprintf(words, TRANSFERS_WORDS, "%s", strerror(ENOMEM));
		return NULL;
	}
	transfers->path = options->paths[0];
	transfers->begins = options->begins;
	transfers->data = options->data;
	error = open_transfers(transfers, am, options);
	if (error)
		copy_error(words, error);
	else
		error = transfers_run(transfers, true, transfers->request_count /
				      transfers->size_count * transfers->cycle_bytes, 0, &unused,
				      words);
	if (!error)
		return transfers;
	transfers_close(transfers);
	return NULL;
}

void transfers_close(struct transfers *transfers)
{
	if (!transfers)
		return;
	if (transfers->file)
		actmem_file_close(transfers->file);
	if (transfers->region) {
		/* Returns -ENOENT if the region was not attached. */
		actmem_queue_detach(transfers->queue, transfers->region);
		actmem_region_close(transfers->region);
	}
	if (transfers->queue)
		actmem_queue_destroy(transfers->queue);
	free(transfers);
}

static uint64_t stamp_of(uint64_t offset)
{
	return (offset / STAMP_EACH + 1) * 0x9e3779b97f4a7c15ULL;
}

static void write_stamps(char *memory, struct transfer transfer)
{
	uint64_t at, number;

	for (at = 0; at < transfer.bytes; at += STAMP_EACH) {
		number = stamp_of(transfer.offset + at);
		memcpy(memory + at, &number, sizeof(number));
	}
}

/* Clears the stamps, so that a fill that does nothing is detected. */
static void wipe_stamps(char *memory, struct transfer transfer)
{
	uint64_t at;

	for (at = 0; at < transfer.bytes; at += STAMP_EACH)
		memset(memory + at, 0, sizeof(uint64_t));
}

static int check_stamps(const struct transfers *transfers, const char *memory,
			struct transfer transfer, char words[TRANSFERS_WORDS])
{
	uint64_t at, number;

	for (at = 0; at < transfer.bytes; at += STAMP_EACH) {
		memcpy(&number, memory + at, sizeof(number));
		if (number == stamp_of(transfer.offset + at))
			continue;
		snprintf(words, TRANSFERS_WORDS, "the data read at %" PRIu64
			 " of the file in '%s' is not what was written",
			 transfer.offset + at, transfers->path);
		return -EIO;
	}
	return 0;
}

static int begin_transfer(struct transfers *transfers, bool spills, uint64_t number, uint64_t slot)
{
	struct transfer transfer = transfer_at(transfers, number % transfers->request_count);
	uint64_t at = slot * transfers->slot_bytes;
	struct actmem_request request;

	if (transfers->begins)
		transfers->begins(transfers->data, transfer.bytes);
	ACTMEM_INIT(&request);
	request.cookie = number * transfers->slot_count + slot;
	if (spills) {
		write_stamps(transfers->memory + at, transfer);
		return actmem_queue_spill(transfers->queue, transfers->file, transfer.offset,
					  transfers->region, at, transfer.bytes, &request);
	}
	wipe_stamps(transfers->memory + at, transfer);
	return actmem_queue_fill(transfers->queue, transfers->file, transfer.offset,
				 transfers->region, at, transfer.bytes, &request);
}

/* Checks a transfer that has ended, and adds its bytes to *@bytes if it succeeded. */
static int end_transfer(struct transfers *transfers, bool spills,
			const struct actmem_completion *completion, uint64_t *bytes,
			char words[TRANSFERS_WORDS])
{
	uint64_t number = completion->cookie / transfers->slot_count;
	uint64_t slot = completion->cookie % transfers->slot_count;
	struct transfer transfer = transfer_at(transfers, number % transfers->request_count);

	if (completion->result)
		return copy_error(words, completion->result);
	*bytes += transfer.bytes;
	if (spills)
		return 0;
	return check_stamps(transfers, transfers->memory + slot * transfers->slot_bytes, transfer,
			    words);
}

int transfers_run(struct transfers *transfers, bool spills, uint64_t bytes, uint64_t ns,
		  double *bandwidth, char words[TRANSFERS_WORDS])
{
	struct actmem_completion done;
	uint64_t begun_ns = clock_ns(), number = 0, under_way = 0, begun = 0, ended = 0;
	int error = 0, failed, count;

	while (number < transfers->slot_count && begun < bytes + !bytes && !error) {
		begun += transfer_at(transfers, number % transfers->request_count).bytes;
		error = begin_transfer(transfers, spills, number, number);
		if (error)
			copy_error(words, error);
		else
			number++, under_way++;
	}
	while (under_way) {
		count = actmem_queue_wait(transfers->queue, &done, 1, ACTMEM_WAIT_FOREVER);
		if (count < 0)
			return copy_error(words, count);
		under_way--;
		failed = end_transfer(transfers, spills, &done, &ended, words);
		error = error ? error : failed;
		if (error || (begun >= bytes && clock_ns() - begun_ns >= ns))
			continue;
		begun += transfer_at(transfers, number % transfers->request_count).bytes;
		error = begin_transfer(transfers, spills, number++,
				       done.cookie % transfers->slot_count);
		if (error)
			copy_error(words, error);
		else
			under_way++;
	}
	*bandwidth = (double)ended * NS_PER_SECOND / (double)(clock_ns() - begun_ns);
	return error;
}

const struct actmem_file_info *transfers_file(const struct transfers *transfers)
{
	return &transfers->info;
}

const char *transfers_engine(const struct transfers *transfers)
{
	return actmem_queue_describe(transfers->queue);
}
