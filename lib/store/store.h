/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of stores, which keep blocks by key within a budget of memory. Nothing of the
 * library lies above it, so this is what its files share, too.
 *
 * A block is in memory, in a file, or both; a copy in a file is kept until the block
 * ends. A thread of the queue takes the completions of transfers and acts on them; after
 * any other change the thread that made it does. Regions are attached and files
 * allocated by a thread of the store, and by that one alone.
 *
 * Read schedule.h (when blocks are wanted), order.h (which first) and follow.h (what if
 * not), which take no lock and do no I/O, and spillfile.h (room in files); then store.c,
 * which makes and ends a store, calls.c, what callers do with blocks, move.c, which
 * spills and fills them, room.c, which finds memory for them, budget.c, how much there
 * may be, background.c, the slow work in the background, blocks.c, which keeps them, and
 * guess.c, which sees whether takes are as foreseen.
 *
 * Locks: all of a store is under its lock, except that nothing long is done with it: a
 * thread that makes regions, attaches them or allocates files gives it back meanwhile.
 * The store's lock, then all others of the library; but a heap's grow_lock is never
 * taken with the store's lock held.
 */
#ifndef LIB_STORE_H
#define LIB_STORE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "actmem_store.h"
#include "base/base.h"
#include "heap/heap.h"
#include "region/region.h"
#include "store/follow.h"
#include "store/schedule.h"
#include "store/spillfile.h"

#define STORE_WORDS	1024
#define STORE_MORE	3

/* The user of a block. */
enum store_user {
	USER_NONE,
	USER_WAITS,			/* reserves it, and has no memory yet */
	USER_FILLS,
	USER_COMMITS,			/* actmem_store_put() copies to it, or it is checksummed */
	USER_CLAIMS,			/* is about to hold it */
	USER_HOLDS,
};

enum store_transfer {
	TRANSFER_NONE,
	TRANSFER_SPILL,
	TRANSFER_FILL,
};

/* In which of the sums a block counts. */
enum store_sum {
	SUM_LIVE,
	SUM_MEMORY,			/* it has some, filled or not */
	SUM_RESIDENT,			/* in memory */
	SUM_FILED,			/* in a file alone */
	SUM_AWAY,			/* in a file, or on the way to it */
	SUM_AHEAD,			/* read ahead, or being so, and not taken since */
	SUM_SPILLING,
	SUM_FILLING,
	SUMS,
};

struct sum {
	uint64_t blocks;
	uint64_t bytes;			/* as asked for */
	uint64_t length;		/* padded */
};

/* A thread that waits: for memory, in turn, and for its block. */
struct waiter {
	struct link link;
	uint64_t thread;		/* its thread_number() */
	pthread_cond_t wake;
	bool is_stalled;
	uint64_t since;			/* ns, if it is */
	uint64_t until;			/* ns; 0: for ever */
	bool is_refused;		/* memory that it wanted; store->refusal says why */
	int spill_error;		/* of a spill that failed while it was the first; 0: none */
	int fill_error;
	char words[STORE_WORDS];
};

struct store_block {
	struct order_place place;
	struct order *order;		/* in which it is; NULL: none */
	struct store_block *chain;	/* in the table */
	struct link ended;		/* those that are not in it any more */
	struct link puts;		/* those that can be taken, as they were put */
	struct want foreseen;		/* place.want, while it is not guessed or urgent */
	struct link guessed;		/* those that are, the ones guessed last at the end */
	struct actmem_key key;
	uint64_t bytes, length;
	void *memory;			/* NULL: none */
	struct actmem_region *region;	/* in which that is */
	uint64_t offset;
	struct spill_room room;
	bool is_filed;			/* the file has all of it */
	bool is_ended;			/* it goes when its transfer has come back */
	bool is_ahead;
	bool is_unreadable;		/* it is not read ahead again */
	bool is_followed;		/* its take is, even if it fails and is tried again */
	enum store_user user;
	uint64_t thread;		/* the user's thread_number() */
	enum store_transfer transfer;
	bool is_submitted;		/* the transfer; else it is prepared */
	struct link to_do;		/* of the background work, if that takes long */
	uint64_t request;
	struct waiter *waiter;		/* of the thread that claims it */
	uint64_t put_clock;
	unsigned int turn;		/* takes of it that there were */
	uint64_t checksum;
	unsigned int counted;		/* bits: the sums */
};

struct actmem_store {
	struct actmem *am;
	struct actmem_heap *heap;
	struct actmem_queue *queue;	/* NULL: nothing is spilled */
	const char *queue_description;	/* as it was when it was made */
	_Atomic uint64_t asked;			/* budget_bytes, in whole pages; 0: no limit */
	uint64_t page_bytes;		/* of these pages */
	uint64_t budget;		/* the same, or what can be had of it */
	char refusal[STORE_WORDS];	/* why that is less, or was */
	uint64_t refused_at;		/* what there was at the first; 0: there was none */
	bool is_refusal_told;
	bool is_to_regain;		/* more is to be tried */
	uint64_t unit;			/* lengths of blocks are multiples of it */
	uint64_t memory_align;
	uint64_t busy_bytes;		/* of transfers that keep the disks busy, at most */
	uint64_t fixed_window;		/* 0: as measured */
	uint32_t flags;
	void (*name_block)(struct actmem_key key, char *name, size_t size);	/* or NULL */
	char **paths;
	uint32_t path_count;
	struct spillfile files;
	pthread_t background_thread;
	pthread_mutex_t lock;
	pthread_cond_t all_ended;	/* transfers, while the store ends */
	pthread_cond_t background;	/* there is work for its thread, or the end */
	struct link fills_to_do, spills_to_do;	/* in the background */
	bool is_ending;
	struct schedule schedule;
	struct follow follow;
	struct link guessed;
	uint64_t guess_lasts;		/* for so many more takes of the run */
	struct link puts;
	struct bandwidth write, read;
	struct pace pace;
	struct store_block **buckets;
	size_t bucket_count;
	struct link ended;
	struct order dirty, clean, filed;
	struct sum sums[SUMS];
	bool is_beyond;			/* the heap may have more than the budget */
	bool is_lowered;		/* ...as the budget was lowered: blocks have to keep to it */
	bool is_scattered;		/* ...and they do, but they lie in too many regions */
	bool is_to_shorten;		/* in the background */
	uint64_t limit_raises;		/* so many times it was given more */
	struct link waiters;
	unsigned int waiting;		/* threads in calls */
	unsigned int under_way;		/* transfers that were submitted */
	unsigned int prepared;		/* those that are about to be */
	bool spills_fail;		/* the last one did: no more until room is needed */
	struct actmem_store_stats stats;	/* what only rises, and peaks */
	void (*observe)(const struct actmem_store_event *event, void *data);
	void *observe_data;
	_Atomic(const char *) description;
	char words[STORE_WORDS];
	char note[STORE_WORDS];		/* what the caller of create should know, or "" */
	bool is_plain;			/* memory is not registered, which the words say */
	/* The same, that files are kept, and a refusal; each stays, as callers have its address. */
	char more_words[STORE_MORE][4 * STORE_WORDS];
	unsigned int more;
};

/* "block 17" or "block 17.2", or "block 'NAME'" if the store's user names blocks. */
#define KEY_WORDS	160
#define KEY_TEXT(store, key)	store_key_text((store), (char[KEY_WORDS]){0}, (key))
const char *store_key_text(const struct actmem_store *store, char text[KEY_WORDS],
			   struct actmem_key key);

int store_check(const struct actmem_store *store, const char *call);

/* Rounds a budget to whole pages; -EINVAL: they are too few. */
int store_check_budget(const struct actmem_store *store, bool spills, uint64_t *bytes);
void store_tell(struct actmem_store *store, enum actmem_store_event_kind kind,
		const struct store_block *block, int result);

/* The functions below are called with the store's lock held. */

/* Adds to the words of the store, STORE_MORE times at most. */
void store_describe_more(struct actmem_store *store, const char *what, const char *why);

/* blocks.c: what there is. */

struct store_block *store_find(struct actmem_store *store, struct actmem_key key);

/* NULL with words: no memory. */
struct store_block *store_add(struct actmem_store *store, struct actmem_key key, uint64_t bytes);

/* Puts the block where it belongs after a change, and counts it so. */
void store_update_counts(struct actmem_store *store, struct store_block *block);

/* Ends a block that nobody uses; now, or when its transfer has come back. */
void store_end(struct actmem_store *store, struct store_block *block);

/* Gives its memory back. */
void store_forget_memory(struct actmem_store *store, struct store_block *block);
void store_take_memory(struct actmem_store *store, struct store_block *block, void *memory);

/* Has it wanted at another time, and not as a guess. */
void store_want(struct actmem_store *store, struct store_block *block, struct want want);

/* Adds to a total of store->stats, and to that which the process publishes. */
void store_count(struct actmem_store *store, uint64_t *total, uint64_t amount);

/* Nothing, or in a debug build the end of the program if a sum is wrong. */
void store_check_sums(struct actmem_store *store);

/* guess.c: what is wanted next, if it is not what was foreseen. */

/* The block is about to be taken, or tried to be; the first try counts. */
void store_follow(struct actmem_store *store, struct store_block *block);

/* Blocks guessed until now are wanted at the time foreseen for them. */
void store_end_guesses(struct actmem_store *store);

/* move.c: what goes where, and how it came back. */

/* Whether @length more would be beyond a budget that was lowered. */
bool store_is_over(const struct actmem_store *store, uint64_t length);

/* Begins to spill a block of store->dirty. If it fails, the first waiter is told. */
void store_spill(struct actmem_store *store, struct store_block *block);

/*
 * Begins to fill a block of which nothing is in memory. If it fails, whoever claims it
 * is told.
 */
void store_fill(struct actmem_store *store, struct store_block *block, void *memory);

/* A transfer has been prepared, and is submitted; with @error (and words) it is over. */
void store_submit(struct actmem_store *store, struct store_block *block, int error);

/* A spill ends that was not prepared, as another one has failed with @error: nobody is told. */
void store_give_up_spill(struct actmem_store *store, struct store_block *block, int error);

/* Drops the memory of the last wanted block that is in a file too, if it is later. */
bool store_drop_clean(struct actmem_store *store, const struct store_block *later_than);

/* Spills ahead and reads ahead as far as is good now, and has the first waiter look. */
void store_advance(struct actmem_store *store);

uint64_t store_window(const struct actmem_store *store);

/* Takes completions: what the queue notifies by. Takes the store's lock. */
void store_take_ended(void *store);

/* background.c: what takes long. */

/* A block's transfer needs its region attached, or room in a file. */
void store_add_background_work(struct actmem_store *store, struct store_block *block);

/* The thread that does it. */
void *store_background_thread(void *store);

/* Detaches a region that the heap is about to close. Without the lock. */
void store_region_closes(void *store, struct actmem_region *region);

/* room.c: memory for one that waits for it. */

void waiter_init(struct waiter *waiter, uint64_t timeout_ns);
void waiter_destroy(struct waiter *waiter);
bool waiter_is_late(const struct waiter *waiter);

/*
 * Takes memory of the regions that are there. Returns -ENOSPC without an error message if there is
 * none within the budget.
 */
int store_take_room(struct actmem_store *store, uint64_t length, void **memory);

/* Memory for the block, when it is the waiter's turn. 0 or -errno with words. */
int store_room(struct actmem_store *store, struct waiter *waiter, struct store_block *block,
	       void **memory);

/* Sleeps until somebody wakes the waiter; what it was in all. */
void store_sleep(struct actmem_store *store, struct waiter *waiter, struct store_block *block,
		 enum wait_kind kind);
void store_end_stall(struct actmem_store *store, struct waiter *waiter,
		     struct store_block *block, bool is_put);

/* Something has changed for the first that waits for memory. */
void store_kick(struct actmem_store *store);

/* budget.c: how much memory there may be. */

/*
 * The heap could not grow, for this @error with words. Whether the store makes do with what
 * it has, from now on; else the call that wanted more fails.
 */
bool store_make_do(struct actmem_store *store, int error);

/* Has the heap grow up to budget_bytes again; whether it was kept from it. */
bool store_lift_budget(struct actmem_store *store);

/* Closes free regions beyond the budget. The lock is given back meanwhile. */
void store_keep_to_budget(struct actmem_store *store);

/* A round of blocks has ended: more memory is tried for the next, if it has use for it. */
void store_want_budget(struct actmem_store *store);

/* In the background: tells of a refusal, or tries. Whether there was one to do. */
bool store_see_to_budget(struct actmem_store *store);

#endif /* LIB_STORE_H */
