/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Space in spill files. A set consists of files without names, one in each directory, over which
 * the set's bytes are striped. Space is allocated on the disks before data is written there. When
 * more space is needed, the library usually opens another set. However, if the disks were full at
 * the last allocation, it extends the last set. Free space that is not needed any more returns to
 * the disks, one piece at a time.
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
	struct actmem_file_info info;	/* properties of the first set */
	_Atomic uint64_t limit;		/* maximum of @bytes; 0: no limit */
	uint64_t bytes;			/* allocated on the disks, for all sets */
	uint64_t bytes_peak;
	uint64_t given_back_total;
	struct extents extents;		/* their addresses encode a set and an offset */
	struct actmem_file *sets[SPILL_SETS_MAX];
	unsigned int set_count;
	uint64_t end;			/* end of the last set */
	bool is_full;			/* the disks were full at the last allocation */
	/*
	 * Pieces of space where a disk failed. A piece is used again after SPILL_ROOMS_AVOIDED
	 * further failures, or when the files have no other space.
	 */
	struct extent *avoided[SPILL_ROOMS_AVOIDED];
	unsigned int avoided_next;
	struct extent *withheld;	/* list of pieces returned to the disks, the latest first */
	uint64_t withheld_bytes;	/* bytes of withheld pieces and the piece being returned */
	uint64_t shrink_to;		/* punch holes while @bytes is larger; UINT64_MAX: never */
	bool never_shrinks;		/* a file system cannot free parts of files */
	uint64_t peak;			/* most bytes in use in this round */
	uint64_t peaks[SPILL_ROUNDS];	/* peaks of the last rounds */
	unsigned int rounds;		/* number of rounds with a known peak */
};

/*
 * Space to be added to the sets. @file: a new set. @withheld: a piece that was returned to the
 * disks. If both are NULL, the last set grows at @offset.
 */
struct spill_growth {
	struct actmem_file *file;
	struct extent *withheld;
	uint64_t offset, length;
};

/* Space of one block in the files. If @block is NULL, there is no space. */
struct spill_room {
	struct extent *block;
	struct actmem_file *file;
	uint64_t offset;
};

/*
 * Functions that can fail return 0, or a negative errno with an error message, except
 * spillfile_take(). The caller serializes the calls, with two exceptions. spillfile_grow() and
 * spillfile_punch() can take seconds, so the caller is allowed to run them concurrently with most
 * other calls. They must not run concurrently with each other, spillfile_add(), spillfile_punched()
 * or spillfile_destroy().
 *
 * spillfile_init() uses only size, length, paths, path_count and flags of @options. The paths must
 * stay valid until spillfile_destroy(). The call allocates @options->length bytes on the disks.
 */
int spillfile_init(struct spillfile *spillfile, struct actmem_queue *queue,
		   const struct actmem_file_options *options, uint64_t limit);

/* Returns true if a full disk, a quota or RLIMIT_FSIZE caused this error. */
bool spillfile_has_no_space(int error);

/* Closes all sets. The caller ensures that no transfer uses the sets. */
void spillfile_destroy(struct spillfile *spillfile);

/*
 * Sets the limit of all sets. If more than @limit bytes are allocated, free space beyond the limit
 * returns to the disks. No more space is allocated until the sets are below the limit.
 */
void spillfile_set_limit(struct spillfile *spillfile, uint64_t limit);

/*
 * Takes space for @length bytes. Returns -ENOSPC if no set has enough free space, or -ENOMEM. Sets
 * no error message.
 */
int spillfile_take(struct spillfile *spillfile, uint64_t length, struct spill_room *room);
void spillfile_give(struct spillfile *spillfile, struct spill_room *room);

/*
 * Called if a disk failed when it accessed the space of a block. From then on, the space is avoided
 * (see the field avoided).
 */
void spillfile_avoid(struct spillfile *spillfile, struct spill_room *room);

/* Makes all avoided space usable again. Returns true if any space was avoided. */
bool spillfile_use_avoided(struct spillfile *spillfile);

/*
 * Allocates space on the disks. This space is either a piece that was returned to the disks
 * earlier, or a new set of at least @length bytes. If the disks were full at the last allocation,
 * the call does not open a new set. It extends the last set by @length bytes, because a queue can
 * have only a limited number of files. The space is usable after spillfile_add().
 */
int spillfile_grow(struct spillfile *spillfile, uint64_t length, struct spill_growth *growth);
int spillfile_add(struct spillfile *spillfile, const struct spill_growth *growth);

/*
 * Ends a round and begins the next one. In each round, usually one step of the program, the bytes
 * of all blocks rise and fall. The call compares the allocated space with the highest use in the
 * last SPILL_ROUNDS rounds, plus some slack. A large excess is returned to the disks.
 */
void spillfile_end_round(struct spillfile *spillfile);

/*
 * From now on, free space beyond the initial allocation returns to the disks, until a caller needs
 * more space.
 */
void spillfile_empty(struct spillfile *spillfile);

/*
 * Takes a piece of the free space that will be returned to the disks. No block can use this piece.
 * Returns NULL if no piece should be returned to the disks now.
 */
struct extent *spillfile_withhold(struct spillfile *spillfile);
bool spillfile_is_to_shrink(const struct spillfile *spillfile);

/*
 * spillfile_punch() returns a withheld piece to the disks, spillfile_punched() records the result.
 */
int spillfile_punch(const struct spillfile *spillfile, const struct extent *piece);
void spillfile_punched(struct spillfile *spillfile, struct extent *piece, int error);

#endif /* LIB_STORE_SPILLFILE_H */
