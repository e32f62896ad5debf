/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Room in spill files: sets of files without a name, striped over directories, that
 * are allocated on the disks before they are written to. More are opened as more
 * room is needed.
 */
#ifndef LIB_SPILLFILE_H
#define LIB_SPILLFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_queue.h"
#include "blocks.h"

#define SPILL_SETS_MAX	256
#define SPILL_ROOMS_AVOIDED	16

struct spillfile {
	struct actmem_queue *queue;
	struct actmem_file_options options;
	struct actmem_file_info info;	/* as the first was opened */
	uint64_t limit;			/* of bytes; 0: none */
	uint64_t bytes;			/* of all sets */
	struct blocks blocks;		/* of addresses that stand for a set and an offset */
	struct actmem_file *sets[SPILL_SETS_MAX];
	unsigned int set_count;
	bool is_full;			/* there was no room for the last set, however short */
	/* In which a disk failed: not used before so many others, or all that there are. */
	struct block *avoided[SPILL_ROOMS_AVOIDED];
	unsigned int avoided_next;
};

/* No block: none. */
struct spill_room {
	struct block *block;
	struct actmem_file *file;
	uint64_t offset;
};

/*
 * Those that can fail return 0 or a negative errno with words, but for
 * spillfile_take(). The caller keeps calls apart; but spillfile_open(), which takes
 * long, only from itself and spillfile_add().
 *
 * @options: size, paths, path_count, flags, which stay the caller's; their length
 * is allocated.
 */
int spillfile_init(struct spillfile *spillfile, struct actmem_queue *queue,
		   const struct actmem_file_options *options, uint64_t limit);

/* Nothing is under way in it. */
void spillfile_destroy(struct spillfile *spillfile);

/* Room for @length bytes. -ENOSPC: no set has it; -ENOMEM. Without words. */
int spillfile_take(struct spillfile *spillfile, uint64_t length, struct spill_room *room);
void spillfile_give(struct spillfile *spillfile, struct spill_room *room);

/* Gives room back that is to be used last. */
void spillfile_avoid(struct spillfile *spillfile, struct spill_room *room);

/* Has room that was avoided used again; whether there was any. */
bool spillfile_use_avoided(struct spillfile *spillfile);

/*
 * Opens a further set, with room for @length bytes at least. Once the disks were full,
 * with no more than that, until it is there.
 */
int spillfile_open(struct spillfile *spillfile, uint64_t length, struct actmem_file **file,
		   uint64_t *got);
int spillfile_add(struct spillfile *spillfile, struct actmem_file *file, uint64_t length);

#endif /* LIB_SPILLFILE_H */
