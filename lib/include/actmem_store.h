/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The store of libactmem: keyed blocks, as many in memory as a budget holds, the
 * rest in spill files, and back in memory before they are wanted.
 *
 * A block is put (reserved, filled by the caller, committed), and taken later
 * (held, read, released), once. Blocks over the budget are written to files, those
 * that are wanted last first, and read again ahead of the time that they are wanted.
 *
 * When that is, is learned: a key recurs in every step of a training, and its block
 * is expected to be wanted as many takes after its put as the last one was; of a key
 * that was never taken, as the last one of its name. Until a name has been taken
 * once, its blocks are expected in reverse order of their puts, as a backward pass
 * wants them. A wrong guess costs time, and is corrected by the step in which it was
 * made: when several takes in it have missed, blocks are read ahead that were put next to
 * those that are taken, as far as such runs went before, and others one at a time, until
 * takes are as expected again or another step begins.
 *
 * Where memory within the budget cannot be had, by a limit that others share or for want of
 * pages, a store that spills makes do with what it has, as if that were its budget, until
 * there is more. A reserve fails only when nothing more can be dropped or spilled.
 *
 * Spill files grow as they are needed. The disk gets back what several steps in a row did
 * not need, and all but spill_bytes when every block has been dropped.
 *
 * Every call may be made by any thread at any time, but for destroy. A store has
 * threads of its own, in which no signal is delivered.
 */
#ifndef ACTMEM_STORE_H
#define ACTMEM_STORE_H

#include "actmem_queue.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct actmem_store;
struct actmem_runtime;

/*
 * Two blocks in a store at the same time differ in one of the two. @name recurs:
 * such as 64 * layer + tensor. @instance tells those of one name apart, such as
 * micro-batches; else 0.
 */
struct actmem_key {
	uint64_t name;
	uint64_t instance;
};

/*
 * In an instance: it does not recur in another step, such as a number that is counted
 * up. Of such a key nothing is kept once its block has been taken, but what is learned
 * of its name.
 */
#define ACTMEM_INSTANCE_ONCE	(UINT64_C(1) << 63)

/*
 * Blocks are compared, when they are held, with what was committed. Nothing else tells
 * of a disk that changes them, or of Linux 7's ext4: while that is full, it now and
 * then has zeros in place of what it said it had written. The store leaves enough of it
 * free that it is not, but others that write to that disk may fill it.
 *
 * Each block is read once more for it in commit and in hold, by the thread that calls:
 * a step that spills takes about a tenth longer where there are few cores.
 */
#define ACTMEM_STORE_CHECKSUM		(1u << 0)
/*
 * A block that cannot be spilled, as the disk is full or fails, stays in memory,
 * beyond the budget if it must. Without it the put that wants its room fails.
 */
#define ACTMEM_STORE_ALLOW_MEMORY	(1u << 1)
/* See ACTMEM_FILE_ALLOW_BUFFERED. */
#define ACTMEM_STORE_ALLOW_BUFFERED	(1u << 2)
/*
 * Blocks are committed and released by other threads than those that reserve and hold
 * them, which are never kept from it: a wait for memory then waits for these, and
 * -EDEADLK is no answer.
 */
#define ACTMEM_STORE_HANDED_ON		(1u << 3)
/*
 * A spill path in memory itself (tmpfs, ramfs) is an error, unless ALLOW_MEMORY is set. Without
 * this flag the store takes the path, and says so.
 */
#define ACTMEM_STORE_STRICT		(1u << 4)

struct actmem_store_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t budget_bytes;		/* of memory, in whole pages; 0: none, nothing is spilled */
	const char *const *spill_paths;	/* directories, on a disk each; the files are striped */
	uint32_t spill_path_count;	/* 0: what is over the budget is refused */
	uint32_t flags;			/* ACTMEM_STORE_* */
	uint64_t spill_bytes;		/* to allocate on the disks at once; 0: as needed */
	uint64_t spill_limit_bytes;	/* of the files; 0: none */
	uint64_t window_bytes;		/* to read ahead, of half the budget at most; 0: as measured */
	uint64_t grow_bytes;		/* see struct actmem_heap_options */
	const struct actmem_region_options *region;	/* see struct actmem_heap_options */
	const struct actmem_queue_options *queue;	/* how to transfer; NULL: defaults */
	struct actmem_runtime *runtime;	/* that regions are registered with; NULL: none */
	uint32_t register_flags;	/* ACTMEM_REGISTER_* */
	uint32_t reserved;		/* 0 */
	/*
	 * Writes a name for the block of @key to @name, which error messages and `actmem waits`
	 * show. It may be called under the store's lock: it must be short and make no call of
	 * the store. NULL: they show the numbers of the key.
	 */
	void (*name_block)(struct actmem_key key, char *name, size_t size);
};

/*
 * Makes a store. @options NULL: defaults, which spill nothing. They can be freed
 * afterwards, and what they point to as well.
 *
 * If it returns 0, actmem_error() may say that a spill path is in memory, or that the disks had
 * no space for spill_bytes. With ALLOW_MEMORY, such a store starts without files. Otherwise
 * actmem_error() is empty.
 *
 * -EINVAL  a budget under two pages of the size that regions are to have (4 KiB, 2 MiB or
 *	1 GiB), or under one if there are no spill paths, spill paths without a budget, unknown
 *	flags, a directory without direct I/O (see ALLOW_BUFFERED) or in memory (see STRICT),
 *	more spill_bytes than spill_limit_bytes
 * else as actmem_heap_create(), actmem_heap_register(), actmem_queue_create(),
 *	actmem_file_open()
 */
int actmem_store_create(struct actmem *am, const struct actmem_store_options *options,
			struct actmem_store **store);

/*
 * Checks spill paths as actmem_store_create() does before it opens files there: of @flags it
 * reads STRICT and ALLOW_MEMORY. Returns 0, and actmem_error() says if a path is in memory; or
 * -EINVAL. A path that does not exist is no error yet.
 */
int actmem_store_check_paths(const char *const *paths, uint32_t count, uint32_t flags);

/*
 * Drops all blocks and removes the files. -EBUSY while a block is reserved or
 * held, or a thread waits in a call or grows it; nothing is ended then.
 */
int actmem_store_destroy(struct actmem_store *store);

/*
 * In words: engine, files, direct or buffered, and why; if the disk takes nothing back; and
 * why there was less memory than the budget, the first time that it was so.
 * Valid until destroy; later it may be another text.
 */
const char *actmem_store_describe(const struct actmem_store *store);

/*
 * Changes the budget of a store, which may be in use. A waiting call has a raised budget at
 * once. If the store has more memory than a lowered budget, the call closes the regions that
 * are free. The store drops and spills blocks in the background until the rest keeps to the
 * budget, and closes each further region as soon as no block is in it. No call fails because
 * of that. A store without spill paths keeps its blocks, and refuses new ones until enough of
 * the others have ended. memory_bytes of the statistics has the store's memory. A caller that
 * gives the difference to another store waits until memory_bytes shows it.
 *
 * May sleep while a thread makes a region. -EINVAL: too few pages, as for a new store.
 */
int actmem_store_set_budget(struct actmem_store *store, uint64_t bytes);

/*
 * Changes spill_limit_bytes of a store; 0: no limit. Files that are longer than a lowered
 * limit grow no more, and the disks get their free space back in the background.
 * -EINVAL: the store has no spill paths.
 */
int actmem_store_set_spill_limit(struct actmem_store *store, uint64_t bytes);

/*
 * Memory for a block of @length bytes, for the caller alone to fill, aligned to 4096.
 * Where the budget is used up, waits until other blocks have been spilled, for
 * @timeout_ns at most: to make a region, which the caller does itself, is not cut short.
 *
 * -EEXIST  the key is in the store
 * -EINVAL  length is 0, absurd, or more than is registered at once (64 GiB, or chunk_bytes
 *	of the runtime)
 * -ETIMEDOUT  no memory came free in time; spills that were begun for it go on
 * -ENOMEM  more than the budget holds, or, without spill paths, than is left of it;
 *	or as actmem_heap_alloc(), and other blocks cannot make room. Or the store's regions
 *	have names, and so stay, and are all shorter
 * -EDEADLK  all of it is reserved or held by this thread, and by others that wait
 *	for memory without a timeout. A block is its reserver's or holder's until it is committed,
 *	released or put back, whoever does that: while another thread is to do it, the
 *	one that reserved or held it must not wait in a further reserve or hold
 * -ENOSPC, -EIO and others  room is needed, and a block could not be spilled:
 *	actmem_error() names that block, and the file and its offset, or the directory that
 *	has no room. The block stays as it is
 */
int actmem_store_reserve(struct actmem_store *store, struct actmem_key key, uint64_t length,
			 void **memory, uint64_t timeout_ns);

/* The block is filled, and the store's from now on. -ENOENT: not reserved. */
int actmem_store_commit(struct actmem_store *store, struct actmem_key key);

/*
 * The memory of a committed block, for the caller to read until the release, and how many
 * bytes it has in @length, unless that is NULL. Waits, if it is not there, until it has been
 * read from its file, for @timeout_ns at most, and for memory as a reserve. -EBUSY: held.
 *
 * -ENOENT  no such key, or not committed
 * -EIO and others  it cannot be read: actmem_error() names file, offset and block.
 *	The block stays, and can be tried again, or dropped
 * -ENOSPC, -EDEADLK and others  as for a reserve, as it needs memory, too: where
 *	budget and disk are both full, a block that is in a file cannot be had until
 *	another one has been released or dropped
 * -EBADMSG  it came back changed (CHECKSUM)
 * -ETIMEDOUT  it was not read in time, which goes on, or there was no memory
 */
int actmem_store_hold(struct actmem_store *store, struct actmem_key key, const void **memory,
		      uint64_t *length, uint64_t timeout_ns);

/* Ends a hold, and the block. -ENOENT: not held. */
int actmem_store_release(struct actmem_store *store, struct actmem_key key);

/* Ends a hold, and keeps the block, for another take. -ENOENT: not held. */
int actmem_store_put_back(struct actmem_store *store, struct actmem_key key);

/*
 * Ends a block that is not held: one that is reserved (by its filler), or one that
 * nobody wants any more. It is not counted as taken. -ENOENT; -EBUSY: held, or just
 * being put (actmem_store_put()) or committed.
 */
int actmem_store_drop(struct actmem_store *store, struct actmem_key key);

/*
 * Reserve, memcpy, commit; and hold, memcpy, release; both wait as long as it takes.
 * -EINVAL: another @length than the block's.
 */
int actmem_store_put(struct actmem_store *store, struct actmem_key key, const void *data,
		     uint64_t length);
int actmem_store_take(struct actmem_store *store, struct actmem_key key, void *data,
		      uint64_t length);

/*
 * The block is wanted soon: it is read ahead of all others, as soon as there is
 * room. Returns at once. -ENOENT: no such key.
 */
int actmem_store_prefetch(struct actmem_store *store, struct actmem_key key);

/*
 * Has regions made, and registered, before blocks want them, until @free_bytes are free
 * for blocks of @length each, or the budget is used up: what a thread of the caller's does
 * while others go on with what there is. A reserve that has to wait for it meanwhile
 * waits for one region at most. Errors as of actmem_heap_alloc(): what is there stays, and a
 * reserve that wants more tries itself. No error is what a store that spills makes do
 * without.
 */
int actmem_store_grow(struct actmem_store *store, uint64_t length, uint64_t free_bytes);

struct actmem_store_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t budget_bytes;
	uint64_t blocks;		/* reserved, committed or held */
	uint64_t block_bytes;
	uint64_t block_bytes_peak;
	uint64_t memory_bytes;		/* of regions */
	uint64_t memory_bytes_peak;
	uint64_t resident_bytes;	/* of blocks that are in memory */
	uint64_t spilled_bytes;		/* of blocks that are in files alone */
	uint64_t spilled_bytes_peak;
	uint64_t file_bytes;		/* of the spill files, on the disks */
	uint64_t window_bytes;		/* how far is read ahead now */
	uint64_t write_bandwidth;	/* measured, bytes a second; 0: not yet */
	uint64_t read_bandwidth;
	uint64_t puts_total;
	uint64_t takes_total;
	uint64_t hits_total;		/* takes that found their block in memory */
	uint64_t handed_over_total;	/* of them, while it was being spilled */
	uint64_t late_total;		/* takes that had to wait while it was being read, or next */
	uint64_t misses_total;		/* takes that nobody had foreseen */
	uint64_t put_stall_ns_total;	/* that puts waited for room */
	uint64_t take_stall_ns_total;	/* that takes waited for their block */
	uint64_t spilled_bytes_total;	/* written */
	uint64_t filled_bytes_total;	/* read */
	uint64_t wasted_bytes_total;	/* read ahead, and given up before they were wanted */
	uint64_t failed_spills_total;
	uint64_t failed_fills_total;
	uint64_t beyond_budget_bytes;	/* in memory by ALLOW_MEMORY */
	uint64_t checksums_total;
	uint64_t file_bytes_peak;
	uint64_t given_back_bytes_total;	/* of the spill files, to the disks */
	uint64_t refused_bytes;		/* of the budget: cannot be had now */
};

int actmem_store_get_stats(struct actmem_store *store, struct actmem_store_stats *stats);

enum actmem_store_event_kind {
	ACTMEM_STORE_SPILL_BEGIN,
	ACTMEM_STORE_SPILL_END,
	ACTMEM_STORE_FILL_BEGIN,
	ACTMEM_STORE_FILL_END,
	ACTMEM_STORE_STALL_BEGIN,	/* a put or a take begins to wait */
	ACTMEM_STORE_STALL_END,
};

struct actmem_store_event {
	enum actmem_store_event_kind kind;
	int32_t result;			/* of a transfer's end: 0 or a negative errno */
	struct actmem_key key;
	uint64_t length;		/* of the block, as asked for */
	uint64_t time_ns;		/* of CLOCK_MONOTONIC */
	uint64_t resident_bytes;	/* as in the statistics, then */
	uint64_t spilled_bytes;
};

/*
 * Has @observe called at each event, under the store's lock: it must be short and
 * make no call of the store. NULL: no more. When this returns, the one before is
 * not called any more.
 */
void actmem_store_observe(struct actmem_store *store,
			  void (*observe)(const struct actmem_store_event *event, void *data),
			  void *data);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* ACTMEM_STORE_H */
