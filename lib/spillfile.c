/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Room in spill files. Which parts of them are taken is kept as for memory: each
 * set has a range of addresses that nobody touches.
 */
#include <errno.h>
#include <string.h>

#include "error.h"
#include "spillfile.h"

#define STEP_LEAST	(64ULL << 20)
#define STEP_MOST	(1ULL << 30)
/* A large spill grows by this part of it: a queue has so many files and no more. */
#define STEP_PART	4
/* Longer than a set can be. */
#define ADDRESS_BITS	48

static uint64_t round_to(uint64_t bytes, uint64_t unit)
{
	return (bytes + unit - 1) / unit * unit;
}

/* Of offsets and lengths. */
static uint64_t unit_of(const struct spillfile *spillfile)
{
	uint64_t alignment = spillfile->info.alignment;

	return alignment > BLOCK_UNIT ? alignment : BLOCK_UNIT;
}

static char *address_of(unsigned int set, uint64_t offset)
{
	return (char *)(((uint64_t)set + 1) << ADDRESS_BITS | offset);
}

static int open_set(const struct spillfile *spillfile, uint64_t length, struct actmem_file **file)
{
	struct actmem_file_options options = spillfile->options;

	options.length = length;
	return actmem_file_open(spillfile->queue, &options, file);
}

int spillfile_add(struct spillfile *spillfile, struct actmem_file *file, uint64_t length)
{
	char *address = address_of(spillfile->set_count, 0);

	if (spillfile->set_count == SPILL_SETS_MAX)
		return fail(EMFILE, "there are %u sets of spill files, and no more can be",
			    SPILL_SETS_MAX);
	if (!blocks_add_range(&spillfile->blocks, address, length, BLOCK_UNIT))
		return fail(ENOMEM, "no memory for the bookkeeping of spill files");
	spillfile->sets[spillfile->set_count++] = file;
	spillfile->bytes += length;
	return 0;
}

int spillfile_init(struct spillfile *spillfile, struct actmem_queue *queue,
		   const struct actmem_file_options *options, uint64_t limit)
{
	struct actmem_file *file;
	uint64_t length = 0;
	int error;

	*spillfile = (struct spillfile){ .queue = queue, .options = *options, .limit = limit };
	if (limit && options->length > limit)
		return fail(EINVAL, "spill_bytes is %llu, and spill_limit_bytes %llu",
			    (unsigned long long)options->length, (unsigned long long)limit);
	if (blocks_init(&spillfile->blocks))
		return fail(ENOMEM, "no memory for the bookkeeping of spill files");
	ACTMEM_INIT(&spillfile->info);
	error = open_set(spillfile, options->length, &file);
	if (error)
		goto destroy_blocks;
	error = actmem_file_info(file, &spillfile->info);
	if (!error)
		length = options->length / unit_of(spillfile) * unit_of(spillfile);
	if (length)
		error = spillfile_add(spillfile, file, length);
	if (error || !length)
		actmem_file_close(file);
	if (!error)
		return 0;
destroy_blocks:
	blocks_destroy(&spillfile->blocks);
	return error;
}

void spillfile_destroy(struct spillfile *spillfile)
{
	unsigned int i;

	for (i = 0; i < spillfile->set_count; i++)
		actmem_file_close(spillfile->sets[i]);
	blocks_destroy(&spillfile->blocks);
}

int spillfile_take(struct spillfile *spillfile, uint64_t length, struct spill_room *room)
{
	int error = blocks_take(&spillfile->blocks, length, unit_of(spillfile), FIT_ANY,
				&room->block);
	uint64_t address;

	if (error) {
		room->block = NULL;
		return error;
	}
	address = (uint64_t)(uintptr_t)room->block->address;
	room->file = spillfile->sets[(address >> ADDRESS_BITS) - 1];
	room->offset = address & ((1ULL << ADDRESS_BITS) - 1);
	return 0;
}

void spillfile_give(struct spillfile *spillfile, struct spill_room *room)
{
	if (room->block)
		blocks_give(&spillfile->blocks, room->block);
	room->block = NULL;
}

/* Were it kept for good, the files of a disk that always fails would only grow. */
void spillfile_avoid(struct spillfile *spillfile, struct spill_room *room)
{
	struct block **oldest = &spillfile->avoided[spillfile->avoided_next];

	spillfile->avoided_next = (spillfile->avoided_next + 1) % SPILL_ROOMS_AVOIDED;
	if (*oldest)
		blocks_give(&spillfile->blocks, *oldest);
	*oldest = room->block;
	room->block = NULL;
}

bool spillfile_use_avoided(struct spillfile *spillfile)
{
	bool any = false;
	unsigned int i;

	for (i = 0; i < SPILL_ROOMS_AVOIDED; i++) {
		if (!spillfile->avoided[i])
			continue;
		blocks_give(&spillfile->blocks, spillfile->avoided[i]);
		spillfile->avoided[i] = NULL;
		any = true;
	}
	return any;
}

/* As much again as there is, within bounds. */
static uint64_t step(const struct spillfile *spillfile, uint64_t least)
{
	uint64_t length = spillfile->bytes, most = spillfile->bytes / STEP_PART;

	if (most < STEP_MOST)
		most = STEP_MOST;
	if (length > most)
		length = most;
	if (length < STEP_LEAST)
		length = STEP_LEAST;
	return length > least ? length : least;
}

/* Or what this user may have of it. */
static bool is_full_disk(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

int spillfile_open(struct spillfile *spillfile, uint64_t length, struct actmem_file **file,
		   uint64_t *got)
{
	uint64_t unit = unit_of(spillfile), least = round_to(length, unit);
	uint64_t want = round_to(step(spillfile, least), unit);
	uint64_t left = spillfile->limit ? spillfile->limit - spillfile->bytes : UINT64_MAX;
	int error;

	if (least > left)
		return fail(ENOSPC, "the spill files have %s, and %s more are wanted, over spill_limit_bytes of %s; raise that or free blocks",
			    BYTES_TEXT(spillfile->bytes), BYTES_TEXT(least),
			    BYTES_TEXT(spillfile->limit));
	if (spillfile->is_full)
		want = least;
	if (want > left)
		want = left / unit * unit;
	for (;;) {
		error = open_set(spillfile, want, file);
		if ((!is_full_disk(error) && error != -EFBIG) || want == least)
			break;
		want = round_to(want / 2, unit);
		if (want < least)
			want = least;
	}
	spillfile->is_full = is_full_disk(error);
	*got = want;
	return error;
}
