/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Space in spill files. The functions of base/extents.h, which allocate ranges of memory, also
 * allocate this space. These functions need addresses, so each set of files (spillfile.h) gets a
 * range of addresses. No code accesses these addresses.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "config/config.h"
#include "queue/queue.h"
#include "store/spillfile.h"

#define STEP_LEAST	(64ULL << 20)
#define STEP_MOST	(1ULL << 30)
/*
 * If 1/STEP_PART of the allocated space is more than STEP_MOST, allocate that much at a time.
 * Smaller steps would open too many files: most steps open new files, and a queue can have only a
 * limited number of files.
 */
#define STEP_PART	4
/* Length of a piece: the space that one call returns to the disks, or allocates again. */
#define PIECE_MOST	STEP_LEAST
#define PIECE_LEAST	(64ULL << 10)
/*
 * Keep 1/SPARE_PART more space than the last rounds (spillfile_end_round()) needed. Return an
 * excess only if it is at least SHRINK_LEAST.
 */
#define SPARE_PART	8
#define SHRINK_LEAST	(16ULL << 20)
/* A set is shorter than 1 << ADDRESS_BITS bytes. */
#define ADDRESS_BITS	48

/* Returns the unit of offsets and lengths in the files. */
static uint64_t unit_of(const struct spillfile *spillfile)
{
	uint64_t alignment = spillfile->info.alignment;

	return alignment > EXTENT_UNIT ? alignment : EXTENT_UNIT;
}

static char *address_of(unsigned int set, uint64_t offset)
{
	return (char *)(((uint64_t)set + 1) << ADDRESS_BITS | offset);
}

static int fail_elsewhere(int error)
{
	if (error)
		fail_more("; name another directory with %s", KNOB(SPILL));
	return error;
}

static int open_set(const struct spillfile *spillfile, uint64_t length, struct actmem_file **file)
{
	struct actmem_file_options options = spillfile->options;

	options.length = length;
	return fail_elsewhere(actmem_file_open(spillfile->queue, &options, file));
}

/* Returns the set that contains a block. Stores the block's offset in the set in *@offset. */
static struct actmem_file *locate(const struct spillfile *spillfile, const struct extent *block,
				  uint64_t *offset)
{
	uint64_t address = (uint64_t)(uintptr_t)block->address;

	*offset = address & ((1ULL << ADDRESS_BITS) - 1);
	return spillfile->sets[(address >> ADDRESS_BITS) - 1];
}

/* Returns how many bytes are used by blocks, or avoided (see struct spillfile). */
static uint64_t used_bytes(const struct spillfile *spillfile)
{
	return spillfile->extents.taken_bytes - spillfile->withheld_bytes;
}

static void shrink_to_limit(struct spillfile *spillfile)
{
	uint64_t limit = atomic_load(&spillfile->limit);

	if (limit && spillfile->bytes > limit && spillfile->shrink_to > limit)
		spillfile->shrink_to = limit;
}

static void count_added(struct spillfile *spillfile, uint64_t length)
{
	spillfile->bytes += length;
	if (spillfile->bytes > spillfile->bytes_peak)
		spillfile->bytes_peak = spillfile->bytes;
	spillfile->shrink_to = UINT64_MAX;
	shrink_to_limit(spillfile);
}

/*
 * Called after a failure with @error. Frees the space that was allocated on the disks, and keeps
 * the error message.
 */
static int undo(const struct actmem_file *file, uint64_t offset, uint64_t length, int error)
{
	char words[ERROR_TEXT_MAX];

	snprintf(words, sizeof(words), "%s", fail_words());
	file_punch(file, offset, length);
	return fail_as_before(error, words);
}

static int add_range(struct spillfile *spillfile, unsigned int set, uint64_t offset,
		     uint64_t length)
{
	if (!extents_add_range(&spillfile->extents, address_of(set, offset), length, EXTENT_UNIT))
		return fail(ENOMEM, "no memory for the bookkeeping of spill files");
	spillfile->end = offset + length;
	count_added(spillfile, length);
	return 0;
}

static int add_set(struct spillfile *spillfile, struct actmem_file *file, uint64_t length)
{
	int error;

	if (spillfile->set_count == SPILL_SETS_MAX)
		return fail(EMFILE, "there are already %u sets of spill files, which is the maximum",
			    SPILL_SETS_MAX);
	error = add_range(spillfile, spillfile->set_count, 0, length);
	if (!error)
		spillfile->sets[spillfile->set_count++] = file;
	return error;
}

static int add_to_last_set(struct spillfile *spillfile, const struct spill_growth *growth)
{
	unsigned int last = spillfile->set_count - 1;
	int error = add_range(spillfile, last, growth->offset, growth->length);

	return error ? undo(spillfile->sets[last], growth->offset, growth->length, error) : 0;
}

int spillfile_add(struct spillfile *spillfile, const struct spill_growth *growth)
{
	int error = 0;

	if (growth->withheld) {
		spillfile->withheld = growth->withheld->next;
		spillfile->withheld_bytes -= growth->length;
		extents_give(&spillfile->extents, growth->withheld);
		count_added(spillfile, growth->length);
	} else if (growth->file) {
		error = add_set(spillfile, growth->file, growth->length);
		if (error)
			actmem_file_close(growth->file);
	} else {
		error = add_to_last_set(spillfile, growth);
	}
	return error;
}

int spillfile_init(struct spillfile *spillfile, struct actmem_queue *queue,
		   const struct actmem_file_options *options, uint64_t limit)
{
	struct actmem_file *file;
	uint64_t length = 0;
	int error;

	*spillfile = (struct spillfile){
		.queue = queue, .options = *options, .limit = limit, .shrink_to = UINT64_MAX,
	};
	if (limit && options->length > limit)
		return fail(EINVAL, "spill_bytes is %llu, and %s %llu",
			    (unsigned long long)options->length, KNOB(SPILL_LIMIT),
			    (unsigned long long)limit);
	if (extents_init(&spillfile->extents))
		return fail(ENOMEM, "no memory for the bookkeeping of spill files");
	ACTMEM_INIT(&spillfile->info);
	error = open_set(spillfile, options->length, &file);
	if (error)
		goto destroy_extents;
	error = actmem_file_get_info(file, &spillfile->info);
	if (!error)
		length = options->length / unit_of(spillfile) * unit_of(spillfile);
	if (length)
		error = add_set(spillfile, file, length);
	if (error || !length)
		actmem_file_close(file);
	if (!error)
		return 0;
destroy_extents:
	extents_destroy(&spillfile->extents);
	return error;
}

void spillfile_destroy(struct spillfile *spillfile)
{
	unsigned int i;

	for (i = 0; i < spillfile->set_count; i++)
		actmem_file_close(spillfile->sets[i]);
	extents_destroy(&spillfile->extents);
}

int spillfile_take(struct spillfile *spillfile, uint64_t length, struct spill_room *room)
{
	int error = extents_take(&spillfile->extents, length, unit_of(spillfile),
				 &room->block);

	if (error) {
		room->block = NULL;
		return error;
	}
	room->file = locate(spillfile, room->block, &room->offset);
	if (used_bytes(spillfile) > spillfile->peak)
		spillfile->peak = used_bytes(spillfile);
	return 0;
}

void spillfile_give(struct spillfile *spillfile, struct spill_room *room)
{
	if (room->block)
		extents_give(&spillfile->extents, room->block);
	room->block = NULL;
}

/*
 * If @avoided is full, makes the oldest avoided space usable again. Otherwise the files of a
 * failing disk would always grow.
 */
void spillfile_avoid(struct spillfile *spillfile, struct spill_room *room)
{
	struct extent **oldest = &spillfile->avoided[spillfile->avoided_next];

	spillfile->avoided_next = (spillfile->avoided_next + 1) % SPILL_ROOMS_AVOIDED;
	if (*oldest)
		extents_give(&spillfile->extents, *oldest);
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
		extents_give(&spillfile->extents, spillfile->avoided[i]);
		spillfile->avoided[i] = NULL;
		any = true;
	}
	return any;
}

/* Returns how many bytes to allocate: as many as the sets have now, within bounds. */
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

/* Returns true if the disk is full, or the user's quota is used up. */
static bool is_full_disk(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

bool spillfile_has_no_space(int error)
{
	return is_full_disk(error) || error == -EFBIG;
}

/* Allocates space. If that fails, frees the part that was allocated before the disk was full. */
static int allocate(const struct actmem_file *file, uint64_t offset, uint64_t length)
{
	int error = fail_elsewhere(file_allocate(file, offset, length));

	return error ? undo(file, offset, length, error) : 0;
}

static int allocate_piece(const struct spillfile *spillfile, const struct extent *piece)
{
	uint64_t offset;
	const struct actmem_file *file = locate(spillfile, piece, &offset);

	return allocate(file, offset, piece->length);
}

/*
 * Opens a new set, or extends the last one if the disks were full, or if no more files can be open.
 * Otherwise a new set is better: transfers wait while their file gets longer.
 */
static int open_or_extend(struct spillfile *spillfile, uint64_t length,
			  struct spill_growth *growth)
{
	int error;

	if (!spillfile->is_full || !spillfile->set_count) {
		error = open_set(spillfile, length, &growth->file);
		if ((error != -EMFILE && error != -ENFILE) || !spillfile->set_count)
			return error;
	}
	growth->offset = round_up(spillfile->end, EXTENT_ALIGN_MAX);
	error = allocate(spillfile->sets[spillfile->set_count - 1], growth->offset, length);
	return error == -EFBIG && spillfile->is_full ?
	       open_set(spillfile, length, &growth->file) : error;
}

static int open_further(struct spillfile *spillfile, uint64_t least, uint64_t want,
			struct spill_growth *growth)
{
	uint64_t unit = unit_of(spillfile);
	int error;

	for (;;) {
		error = open_or_extend(spillfile, want, growth);
		if (!spillfile_has_no_space(error) || want == least)
			break;
		spillfile->is_full |= is_full_disk(error);
		want = round_up(want / 2, unit);
		if (want < least)
			want = least;
	}
	spillfile->is_full = is_full_disk(error);
	growth->length = want;
	return error;
}

int spillfile_grow(struct spillfile *spillfile, uint64_t length, struct spill_growth *growth)
{
	uint64_t unit = unit_of(spillfile), least = round_up(length, unit);
	uint64_t want = round_up(step(spillfile, least), unit);
	uint64_t limit = atomic_load(&spillfile->limit), left = UINT64_MAX;
	struct extent *piece = spillfile->withheld;
	int error;

	if (limit)
		left = limit > spillfile->bytes ? limit - spillfile->bytes : 0;
	if (least > left)
		return fail(ENOSPC, "the spill files have %s, and %s more are needed, but %s is %s; raise it or free blocks",
			    BYTES_TEXT(spillfile->bytes), BYTES_TEXT(least), KNOB(SPILL_LIMIT),
			    BYTES_TEXT(limit));
	if (spillfile->is_full)
		want = least;
	if (want > left)
		want = left / unit * unit;
	*growth = (struct spill_growth){ .file = NULL };
	if (!piece || piece->length > want)
		return open_further(spillfile, least, want, growth);
	error = allocate_piece(spillfile, piece);
	if (spillfile_has_no_space(error))
		return open_further(spillfile, least, want, growth);
	growth->withheld = piece;
	growth->length = piece->length;
	return error;
}

void spillfile_end_round(struct spillfile *spillfile)
{
	uint64_t need = 0, used = used_bytes(spillfile);
	unsigned int i;

	for (i = SPILL_ROUNDS - 1; i; i--)
		spillfile->peaks[i] = spillfile->peaks[i - 1];
	spillfile->peaks[0] = spillfile->peak;
	spillfile->peak = used;
	if (spillfile->rounds < SPILL_ROUNDS)
		spillfile->rounds++;
	if (spillfile->rounds < SPILL_ROUNDS)
		return;
	for (i = 0; i < SPILL_ROUNDS; i++)
		if (spillfile->peaks[i] > need)
			need = spillfile->peaks[i];
	need += need / SPARE_PART;
	if (need < spillfile->options.length)
		need = spillfile->options.length;
	if (spillfile->bytes >= need + SHRINK_LEAST)
		spillfile->shrink_to = need;
}

void spillfile_set_limit(struct spillfile *spillfile, uint64_t limit)
{
	atomic_store(&spillfile->limit, limit);
	shrink_to_limit(spillfile);
}

void spillfile_empty(struct spillfile *spillfile)
{
	spillfile->shrink_to = spillfile->options.length;
}

/* Returns the length of the next piece to return to the disks; 0: none. */
static uint64_t next_piece(const struct spillfile *spillfile)
{
	uint64_t length, free;

	if (spillfile->never_shrinks || spillfile->bytes <= spillfile->shrink_to)
		return 0;
	length = spillfile->bytes - spillfile->shrink_to;
	free = extents_largest_free(&spillfile->extents);
	if (length > free)
		length = free;
	if (length > PIECE_MOST)
		length = PIECE_MOST;
	length -= length % unit_of(spillfile);
	return length < PIECE_LEAST ? 0 : length;
}

bool spillfile_is_to_shrink(const struct spillfile *spillfile)
{
	return next_piece(spillfile);
}

struct extent *spillfile_withhold(struct spillfile *spillfile)
{
	uint64_t length = next_piece(spillfile);
	struct extent *piece;

	if (!length || extents_take(&spillfile->extents, length, unit_of(spillfile), &piece))
		return NULL;
	spillfile->withheld_bytes += length;
	return piece;
}

int spillfile_punch(const struct spillfile *spillfile, const struct extent *piece)
{
	uint64_t offset, length = piece->length;
	const struct actmem_file *file = locate(spillfile, piece, &offset);
	char words[ERROR_TEXT_MAX];
	int error = file_punch(file, offset, length);

	if (!error)
		return 0;
	snprintf(words, sizeof(words), "%s", fail_words());
	/*
	 * Some disks may have freed their parts of the piece before another disk failed. Allocate
	 * these parts again. If that fails, treat the whole piece as returned.
	 */
	return file_allocate(file, offset, length) ? 0 : fail_as_before(error, words);
}

void spillfile_punched(struct spillfile *spillfile, struct extent *piece, int error)
{
	if (error) {
		spillfile->never_shrinks = true;
		spillfile->withheld_bytes -= piece->length;
		extents_give(&spillfile->extents, piece);
		return;
	}
	piece->next = spillfile->withheld;
	spillfile->withheld = piece;
	spillfile->bytes -= piece->length;
	spillfile->given_back_total += piece->length;
}
