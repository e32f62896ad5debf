/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Room in spill files: sets of files without a name, striped over directories, that
 * are allocated on the disks before they are written to. More are opened as more
 * room is needed, and once the disks are full the last ones get longer. The disks get
 * room back, piece by piece, that is free and not needed any more.
 */
#ifndef LIB_STORE_SPILLFILE_H
#define LIB_STORE_SPILLFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_queue.h"
#include "base/base.h"

#define SPILL_SETS_MAX	256
#define SPILL_ROOMS_AVOIDED	16
#define SPILL_ROUNDS		4

struct spillfile {
	struct actmem_queue *queue;
	struct actmem_file_options options;
	struct actmem_file_info info;	/* as the first was opened */
	_Atomic uint64_t limit;		/* of bytes; 0: none */
	uint64_t bytes;			/* of all sets, that are allocated */
	uint64_t bytes_peak;
	uint64_t given_back_total;
	struct extents extents;		/* of addresses that stand for a set and an offset */
	struct actmem_file *sets[SPILL_SETS_MAX];
	unsigned int set_count;
	uint64_t end;			/* of the last set */
	bool is_full;			/* the disks were, when more was wanted last */
	/* In which a disk failed: not used before so many others, or all that there are. */
	struct extent *avoided[SPILL_ROOMS_AVOIDED];
	unsigned int avoided_next;
	struct extent *withheld;	/* pieces that the disks have back; a list, the last first */
	uint64_t withheld_bytes;	/* of them, and of the one that they get */
	uint64_t shrink_to;		/* what is free beyond it is to go; UINT64_MAX: nothing */
	bool never_shrinks;		/* a file system takes nothing back */
	uint64_t peak;			/* bytes in use in this round, at most */
	uint64_t peaks[SPILL_ROUNDS];	/* of the last rounds */
	unsigned int rounds;		/* that peaks are known of */
};

/* Room to be added: one of the two, or else at @offset of the last set. */
struct spill_growth {
	struct actmem_file *file;
	struct extent *withheld;
	uint64_t offset, length;
};

/* No block: none. */
struct spill_room {
	struct extent *block;
	struct actmem_file *file;
	uint64_t offset;
};

/*
 * Those that can fail return 0 or a negative errno with words, but for
 * spillfile_take(). The caller keeps calls apart; but spillfile_grow() and
 * spillfile_punch(), which take long, only from themselves and from what ends them.
 *
 * @options: size, paths, path_count, flags, which stay the caller's; their length
 * is allocated.
 */
int spillfile_init(struct spillfile *spillfile, struct actmem_queue *queue,
		   const struct actmem_file_options *options, uint64_t limit);

/* Tells whether a disk, a quota or RLIMIT_FSIZE kept a file from being as long as that. */
bool spillfile_has_no_space(int error);

/* Nothing is under way in it. */
void spillfile_destroy(struct spillfile *spillfile);

/*
 * Sets the limit of all sets. Free room beyond a lower limit goes back to the disks, and no
 * more is allocated until the sets have less than the limit.
 */
void spillfile_set_limit(struct spillfile *spillfile, uint64_t limit);

/* Room for @length bytes. -ENOSPC: no set has it; -ENOMEM. Without words. */
int spillfile_take(struct spillfile *spillfile, uint64_t length, struct spill_room *room);
void spillfile_give(struct spillfile *spillfile, struct spill_room *room);

/* Gives room back that is to be used last. */
void spillfile_avoid(struct spillfile *spillfile, struct spill_room *room);

/* Has room that was avoided used again; whether there was any. */
bool spillfile_use_avoided(struct spillfile *spillfile);

/*
 * Allocates more on the disks: a piece that they had back, or a further set with room for
 * @length bytes at least. Once the disks were full, no more than that, until it is there,
 * and behind the last set: a queue has so many files and no more. It is room when it is
 * added.
 */
int spillfile_grow(struct spillfile *spillfile, uint64_t length, struct spill_growth *growth);
int spillfile_add(struct spillfile *spillfile, const struct spill_growth *growth);

/*
 * Another round of the blocks begins. Room that was not in use in the last SPILL_ROUNDS
 * is to go, but for some slack, if that is worth it.
 */
void spillfile_end_round(struct spillfile *spillfile);

/* Free room is to go, but for the initial allocation; until more is needed. */
void spillfile_empty(struct spillfile *spillfile);

/* A piece of what is to go, which is not room from now on. NULL: there is none now. */
struct extent *spillfile_withhold(struct spillfile *spillfile);
bool spillfile_is_to_shrink(const struct spillfile *spillfile);

/* Gives a piece that is withheld to the disks, and then what came of it. */
int spillfile_punch(const struct spillfile *spillfile, const struct extent *piece);
void spillfile_punched(struct spillfile *spillfile, struct extent *piece, int error);

#endif /* LIB_STORE_SPILLFILE_H */
