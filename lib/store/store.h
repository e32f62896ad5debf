/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Internal interface of stores. A store keeps blocks, each under a key, within a memory budget.
 * Other folders of the library do not use this header, so it also declares everything that the
 * files of this folder share.
 *
 * A spill writes a block to a file, and a fill reads the block into memory again. A block is in
 * memory, in a file, or both. The store keeps a copy in a file until the block ends. A thread of
 * the store's I/O queue handles completed transfers (spills and fills), and then begins the
 * transfers that are useful now. After any other change, the thread that made the change begins the
 * useful transfers. Once a store has been created, only its background thread attaches regions to
 * the queue and allocates space in files.
 *
 * Read the files in this order, callers first. store.c creates and destroys stores; calls.c and
 * hold.c contain the public functions that work on blocks. limits.c returns memory when a limit
 * falls. event.c has the eventfds. These five files call five others, which move blocks between
 * memory and files. budget.c decides how much memory the store may use, and background.c does slow
 * work. move.c spills and fills, room.c gets memory for waiters, and guess.c handles blocks that
 * are not taken in the expected order. The second group of five files calls blocks.c, the table of
 * blocks. blocks.c calls files that take no lock and do no I/O: schedule.c (predicts when blocks
 * will be taken), order.c (sorts blocks by that time), follow.c (runs of neighbours), and
 * spillfile.c (space in files).
 *
 * Locks: the store's lock protects everything in a store. A thread releases this lock during long
 * work, such as creating regions, attaching them or allocating files. While a thread acquires the
 * store's lock, it may hold a heap's grow_lock, but no other lock of the library.
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

/* How threads use a block. */
enum store_user {
	USER_NONE,
	USER_WAITS,			/* actmem_store_reserve() waits for memory */
	USER_FILLS,			/* reserved: the caller writes the block until its commit */
	USER_COMMITS,			/* a call fills the block or computes its checksum */
	USER_CLAIMS,			/* the first hold waits for memory, or for the read */
	USER_HOLDS,
};

enum store_transfer {
	TRANSFER_NONE,
	TRANSFER_SPILL,
	TRANSFER_FILL,
};

/* Each sum adds up the blocks that are in one state. */
enum store_sum {
	SUM_LIVE,
	SUM_MEMORY,			/* the block has memory, filled or not */
	SUM_RESIDENT,			/* the block has memory, and is not being filled */
	SUM_FILED,			/* in a file, and not resident */
	SUM_AWAY,			/* in a file, or being spilled */
	SUM_AHEAD,			/* read ahead, or being read ahead, and not taken since */
	SUM_SPILLING,
	SUM_FILLING,
	SUMS,
};

struct sum {
	uint64_t blocks;
	uint64_t bytes;			/* as requested */
	uint64_t length;		/* rounded up to the store's unit */
};

/*
 * A thread that waits for its turn to get memory, or for a block that another thread claims
 * (USER_CLAIMS).
 */
struct waiter {
	struct link link;		/* in store->waiters or store->claim_waiters */
	struct store_block *claimed;	/* if in claim_waiters: the block to wait for */
	uint64_t thread;		/* its thread_number() */
	pthread_cond_t wake;
	bool is_stalled;
	uint64_t since;			/* ns; valid if is_stalled */
	uint64_t until;			/* ns; 0: no timeout */
	bool is_refused;		/* the heap could not grow; see store->refusal */
	int spill_error;		/* 0, or why a spill failed while this waiter was first */
	int fill_error;
	char words[STORE_WORDS];	/* error message of spill_error or fill_error */
};

/* A thread that holds a block, or waits for it. Each hold of the thread has its own struct. */
struct holder {
	struct holder *next;
	uint64_t thread;		/* its thread_number() */
	bool is_ready;			/* the hold has succeeded */
};

struct store_block {
	struct order_place place;
	struct order *order;		/* the order that contains place; NULL: none */
	struct store_block *chain;	/* next block in the hash bucket */
	struct link ended;		/* in store->ended: blocks that left the table */
	struct link puts;		/* in store->puts: blocks not taken yet, oldest put first */
	struct want foreseen;		/* expected take; place.want may be urgent or a guess */
	struct link guessed;		/* in store->guessed; the latest guess is the last */
	struct actmem_key key;
	uint64_t bytes, length;
	void *memory;			/* NULL: none */
	struct actmem_region *region;	/* region that contains memory */
	uint64_t offset;
	struct spill_room room;
	bool is_filed;			/* the file has the whole block */
	bool is_ended;			/* free the block when its transfer completes */
	bool is_ahead;
	bool is_unreadable;		/* do not read the block ahead again */
	int fill_error;			/* error of the last read, if no thread waited for it */
	bool is_followed;		/* guess.c has recorded a try to take the block */
	enum store_user user;
	uint64_t thread;		/* thread_number() of the thread that reserved the block */
	struct holder *holders;		/* all holds of the block, the latest first */
	bool is_released;		/* a holder released the block: the last holder ends it */
	enum store_transfer transfer;
	bool is_submitted;		/* the queue has the transfer; else it is being prepared */
	struct link to_do;		/* in fills_to_do or spills_to_do */
	uint64_t request;
	struct waiter *waiter;		/* waiter of the thread that claims the block, or NULL */
	uint64_t put_clock;
	unsigned int turn;		/* how often the block was taken so far */
	bool has_checksum;
	uint64_t checksum;
	unsigned int counted;		/* bit N: sum N of enum store_sum counts the block */
};

struct store_event {
	int descriptor;			/* -1: none */
	struct held held;		/* a forked child closes descriptor */
};

struct actmem_store {
	struct actmem *am;
	struct actmem_heap *heap;
	struct actmem_queue *queue;	/* NULL: the store spills nothing */
	const char *queue_description;	/* the queue's part of the description */
	_Atomic uint64_t asked;			/* budget_bytes, in whole pages; 0: no limit */
	uint64_t page_bytes;		/* page size of the budget */
	uint64_t ceiling;		/* limit that limits.c sets; UINT64_MAX: none */
	uint64_t budget;		/* asked, or less while the store cannot get that much */
	char refusal[STORE_WORDS];	/* why budget is or was less than asked */
	uint64_t refused_at;		/* budget at the first refusal; 0: no refusal yet */
	bool is_refusal_told;
	bool is_to_regain;		/* the background thread will try to get more memory */
	uint64_t unit;			/* lengths of blocks are multiples of this */
	uint64_t memory_align;
	uint64_t busy_bytes;		/* bytes in flight that keep all disks busy */
	uint64_t fixed_window;		/* window_bytes of the options; 0: the store chooses */
	uint32_t flags;
	void (*name_block)(struct actmem_key key, char *name, size_t size);	/* or NULL */
	char **paths;
	uint32_t path_count;
	struct spillfile files;
	pthread_t background_thread;
	pthread_t limits_thread;
	struct store_event limits_wake;	/* wakes limits_thread */
	struct store_event event;	/* of actmem_store_eventfd() */
	pthread_mutex_t lock;
	pthread_cond_t all_ended;	/* signalled: all transfers of an ending store are done */
	pthread_cond_t background;	/* the background thread has work, or must end */
	struct link fills_to_do, spills_to_do;	/* transfers for the background thread */
	bool is_ending;
	struct schedule schedule;
	struct follow follow;
	struct link guessed;
	uint64_t guess_lasts;		/* how many blocks the run takes until the next guess */
	struct link puts;
	struct bandwidth write, read;
	struct pace pace;
	struct store_block **buckets;
	size_t bucket_count;
	struct link ended;
	struct order dirty, clean, filed;	/* only in memory; in both places; only in a file */
	struct sum sums[SUMS];
	bool is_beyond;			/* the heap may be larger than the budget */
	bool is_lowered;		/* the budget was lowered: blocks must fit in it */
	bool is_scattered;		/* blocks fit in the budget, but use too many regions */
	bool is_to_shorten;		/* the background thread must close free regions */
	uint64_t limit_raises;		/* how often ALLOW_MEMORY raised the heap's limit */
	struct link waiters;		/* threads that wait for memory */
	struct link claim_waiters;	/* threads that wait for other threads' claims */
	unsigned int waiting;		/* threads in calls that can wait */
	unsigned int under_way;		/* submitted transfers */
	unsigned int prepared;		/* transfers that are being prepared */
	bool spills_fail;		/* the last spill failed: do not spill ahead */
	struct actmem_store_stats stats;	/* totals and peaks */
	void (*observe)(const struct actmem_store_event *event, void *data);
	void *observe_data;
	_Atomic(const char *) description;
	char words[STORE_WORDS];	/* the first description */
	char note[STORE_WORDS];		/* message of actmem_store_create(), or "" */
	bool is_plain;			/* the description says that buffers are not registered */
	/*
	 * Later descriptions. Each adds a fact: that buffers are not registered, that files never
	 * get shorter, or why the budget was refused. Callers may still use an earlier description,
	 * so no description is overwritten.
	 */
	char more_words[STORE_MORE][4 * STORE_WORDS];
	unsigned int more;
};

/*
 * Writes "block 17" or "block 17.2" (name, instance), or "block 'NAME'" if the program names
 * blocks.
 */
#define KEY_WORDS	160
#define KEY_TEXT(store, key)	store_key_text((store), (char[KEY_WORDS]){0}, (key))
const char *store_key_text(const struct actmem_store *store, char text[KEY_WORDS],
			   struct actmem_key key);

int store_check(const struct actmem_store *store, const char *call);

/* Rounds a budget down to whole pages. Returns -EINVAL if these are too few pages. */
int store_check_budget(const struct actmem_store *store, bool spills, uint64_t *bytes);
void store_tell(struct actmem_store *store, enum actmem_store_event_kind kind,
		const struct store_block *block, int result);

/* Locks the store, and defers cancellation of the thread until store_leave(). */
static inline void store_enter(struct actmem_store *store)
{
	thread_hold_cancellation();
	pthread_mutex_lock(&store->lock);
}

static inline void store_leave(struct actmem_store *store)
{
	pthread_mutex_unlock(&store->lock);
	thread_let_cancellation();
}

/*
 * event.c: Creates an eventfd, which forked children close. Returns 0, or a negative errno with an
 * error message.
 */
int store_make_event(struct actmem_store *store, struct store_event *event, int flags);
void store_end_event(struct store_event *event);

/*
 * limits.c: limits that other processes set. Callers of these two functions do not hold the lock.
 */
int store_watch_limits(struct actmem_store *store);
void store_unwatch_limits(struct actmem_store *store);

/* Callers of the functions below hold the store's lock, unless a comment says otherwise. */

/* Appends @what and @why to the store's description. Does nothing after STORE_MORE calls. */
void store_describe_more(struct actmem_store *store, const char *what, const char *why);

/* blocks.c: the table of blocks. */

struct store_block *store_find(struct actmem_store *store, struct actmem_key key);

/* Adds a block. Returns NULL with an error message if there is no memory for bookkeeping. */
struct store_block *store_add(struct actmem_store *store, struct actmem_key key, uint64_t bytes);

int store_fail_no_block(const struct actmem_store *store, struct actmem_key key, const char *why);

/* Records that the block was put into the store, or put back. From now on, threads can hold it. */
void store_add_put(struct actmem_store *store, struct store_block *block);

/* After a change of the block, moves it to the order and the sums of its new state. */
void store_update_counts(struct actmem_store *store, struct store_block *block);

/* Removes a block that no other thread uses. Frees it now, or when its transfer completes. */
void store_end(struct actmem_store *store, struct store_block *block);

/* Frees the block's memory. */
void store_forget_memory(struct actmem_store *store, struct store_block *block);
void store_take_memory(struct actmem_store *store, struct store_block *block, void *memory);

/* Changes the time at which the block is expected to be taken, and ends a guess about the block. */
void store_want(struct actmem_store *store, struct store_block *block, struct want want);

/*
 * Adds @amount to @total, which is a field of store->stats, and to the total of the same name that
 * the process publishes.
 */
void store_count(struct actmem_store *store, uint64_t *total, uint64_t amount);

/* In a debug build, aborts the program if a sum is wrong. Otherwise does nothing. */
void store_check_sums(struct actmem_store *store);

/* guess.c: which blocks come next if blocks are not taken in the expected order. */

/* Records that a thread tries to take the block. Only the first try counts. */
void store_follow(struct actmem_store *store, struct store_block *block);

/*
 * Called after a block was added. Begins a round if the total length of all blocks was falling
 * before (@was_falling) and now rises. In a round, this total rises and falls once. When a round
 * begins, the store ends all guesses.
 */
void store_begin_round(struct actmem_store *store, bool was_falling);

/* move.c: spills and fills. */

/* Returns true if the budget was lowered, and @length more bytes would exceed it. */
bool store_is_over(const struct actmem_store *store, uint64_t length);

/*
 * Begins to spill a block of store->dirty. If the spill fails, the first waiter for memory gets the
 * error.
 */
void store_spill(struct actmem_store *store, struct store_block *block);

/*
 * Begins to fill a block that is only in a file. If the fill fails, the thread that waits for the
 * block gets the error.
 */
void store_fill(struct actmem_store *store, struct store_block *block, void *memory);

/*
 * Submits a transfer after its preparation, whose result is @error. If @error is not 0, the
 * transfer ends with this error and the thread's error message.
 */
void store_submit(struct actmem_store *store, struct store_block *block, int error);

/*
 * Ends a spill that has not been prepared yet, because another spill failed with @error, and this
 * spill would fail in the same way. No waiter gets the error.
 */
void store_give_up_spill(struct actmem_store *store, struct store_block *block, int error);

/*
 * Frees the memory of one block that no thread uses and that is both in memory and in a file. Of
 * several such blocks, selects the block that will be taken last. If @later_than is not NULL, frees
 * the memory only if the selected block will be taken later than @later_than. Returns true if
 * memory was freed.
 */
bool store_drop_clean(struct actmem_store *store, const struct store_block *later_than);

/* Begins all spills and fills that are useful now, and wakes the first waiter. */
void store_advance(struct actmem_store *store);

/* Returns the maximum number of bytes for blocks that are read ahead. */
uint64_t store_window(const struct actmem_store *store);

/* Handles completions. The queue calls this function, which acquires the store's lock. */
void store_take_ended(void *store);

/* background.c: slow work. */

/*
 * Passes a transfer to the background thread. This thread attaches the region or allocates space in
 * a file, and then submits the transfer.
 */
void store_add_background_work(struct actmem_store *store, struct store_block *block);

/* The function of the background thread. It acquires the lock. */
void *store_background_thread(void *store);

/* Detaches a region that the heap is about to close. The caller does not hold the lock. */
void store_region_closes(void *store, struct actmem_region *region);

/* room.c: memory for waiters. */

void waiter_init(struct waiter *waiter, uint64_t timeout_ns);
void waiter_destroy(struct waiter *waiter);
bool waiter_is_late(const struct waiter *waiter);

/*
 * Takes memory from the existing regions. Returns -ENOSPC without an error message if the regions
 * have too little free memory, or if the block would exceed a lowered budget.
 */
int store_take_room(struct actmem_store *store, uint64_t length, void **memory);

/*
 * Waits until it is the waiter's turn, and gets memory for the block. May sleep. Returns 0, or a
 * negative errno with an error message.
 */
int store_room(struct actmem_store *store, struct waiter *waiter, struct store_block *block,
	       void **memory);

/*
 * Sleeps until another thread wakes the waiter, or the waiter's timeout passes. store_end_stall()
 * adds the time since the waiter's first sleep to the statistics.
 */
void store_sleep(struct actmem_store *store, struct waiter *waiter, struct store_block *block,
		 enum wait_kind kind);
void store_end_stall(struct actmem_store *store, struct waiter *waiter,
		     struct store_block *block, bool is_put);

/* Wakes the first waiter for memory, after a change. */
void store_kick(struct actmem_store *store);

/* budget.c: how much memory the store may use. */

/*
 * Called when the heap could not grow because of @error, which has an error message. If the store
 * can continue with its present memory, makes this amount the budget and returns true. Returns
 * false if the call that needs more memory must fail.
 */
bool store_make_do(struct actmem_store *store, int error);

/*
 * Raises the budget again, to the lower of store->asked and the ceiling, so that the heap can grow.
 * Returns true if the budget rose.
 */
bool store_lift_budget(struct actmem_store *store);

/*
 * Sets the ceiling: until the next call, the store uses at most @bytes, as if the budget were
 * lower. UINT64_MAX means no ceiling. @why is the reason, for error messages and the store's
 * description. If the store cannot continue with so little memory, it exceeds the ceiling.
 */
void store_set_ceiling(struct actmem_store *store, uint64_t bytes, const char *why);

/* Removes the ceiling. Returns true if the budget rose. */
bool store_exceed_ceiling(struct actmem_store *store);

/* Closes free regions while the heap is larger than the budget. Releases the lock meanwhile. */
void store_keep_to_budget(struct actmem_store *store);

/*
 * Called when a round begins. If this round can use more memory, the background thread will try to
 * get this memory.
 */
void store_want_budget(struct actmem_store *store);

/*
 * Called by the background thread. Adds a refusal of memory to the store's description, tries to
 * get more memory, or closes regions. Does only one of these in a call. Returns false if there was
 * nothing to do.
 */
bool store_see_to_budget(struct actmem_store *store);

#endif /* LIB_STORE_H */
