/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store of libactmem keeps blocks of data, and identifies each by a key. The store keeps as many
 * blocks in memory as its budget allows. The other blocks are in spill files; the store reads these
 * blocks before the caller needs them.
 *
 * A caller puts a block (reserves, fills and commits it) and later takes it once (holds, reads and
 * releases it). The store spills the blocks that it expects to be taken last: it writes these
 * blocks to spill files.
 *
 * The store learns when a block will be needed. A key recurs in every training step. The store
 * counts how many other blocks are taken after the block of a key is put and before it is taken,
 * and expects the same number in the next step. A key contains a name (struct actmem_key). If no
 * block of a key has been taken yet, the store uses the count of the last taken block whose key has
 * the same name. Until a block of a name has been taken, the store expects the block that was put
 * last to be taken first, as in a backward pass. A wrong expectation only costs time:
 * actmem_store_take() still returns the right data.
 *
 * If the store did not expect several of the blocks that are taken in a step (misses_total counts
 * them), it concludes that the order has changed, and expects runs. In a run, the program takes
 * neighbouring blocks one after the other, either in the order in which they were put or in the
 * reverse order. The store expects a run to be as long as the previous run, and reads the blocks of
 * this run ahead. The store reads all other blocks one at a time. The store relies on the learned
 * order again when blocks are taken in that order, or at the next step.
 *
 * The store can get less memory than its budget if other processes use up a limit, or if few pages
 * are free. A store that can spill then works with the memory that it has, until it can get more.
 * In that case, actmem_store_reserve() fails only if the store cannot free the memory of any other
 * block.
 *
 * If a memory limit falls below the usage, a store that can spill returns memory in the background.
 * The store spills blocks and closes regions until it has returned the excess. If the limit also
 * applies to memory outside of the store, the store returns only its share of the excess. The store
 * grows again when the limit rises. The limits are those of the driver, the limit that `actmem
 * limit --pid` sets for the handle, and the cgroup's memory.high if the store has memfd regions of
 * 4K or thp pages. The store tries to exceed the limit only if a call would otherwise fail. Regions
 * that have names stay open, even above the limit.
 *
 * Spill files grow on demand. The store frees space in these files if several steps in a row did
 * not need it. When the store has no block any more, it frees all space in the files except
 * spill_bytes.
 *
 * All calls are thread-safe, except actmem_store_destroy(). The store starts threads, which block
 * all signals.
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
 * Identifies a block: no two blocks in a store have the same name and instance. A program uses the
 * same values of @name in each step, such as 64 * layer + tensor. @instance distinguishes blocks of
 * one name, such as those of micro-batches. If each name has one block, @instance is 0.
 */
struct actmem_key {
	uint64_t name;
	uint64_t instance;
};

/*
 * Set this bit in instances that are never reused, such as serial numbers. The store forgets the
 * key of such a block after the take, but still uses the time of the take to predict when other
 * blocks of the same name are taken.
 */
#define ACTMEM_INSTANCE_ONCE	(UINT64_C(1) << 63)

/*
 * Compute a checksum at each commit and verify it at each hold. Nothing else detects that a disk or
 * a file system returns other data than the store wrote. A file system can report a write as
 * successful, and later return zeros without an error. On a failing disk, ext4 loses writes in this
 * way in Linux 6.18 and in Linux 7. In Linux 7, ext4 also does so while the file system is full.
 * The store leaves enough space free, but other writers can fill the file system.
 *
 * To compute the checksum, each commit and each hold reads the block once more, in the calling
 * thread. With few cores, a step that spills takes about a tenth longer.
 */
#define ACTMEM_STORE_CHECKSUM		(1u << 0)
/*
 * If the disk is full or fails, keep the block in memory, beyond the budget if necessary. Without
 * this flag, calls that need the memory of that block fail.
 */
#define ACTMEM_STORE_ALLOW_MEMORY	(1u << 1)
/* See ACTMEM_FILE_ALLOW_BUFFERED. */
#define ACTMEM_STORE_ALLOW_BUFFERED	(1u << 2)
/*
 * Use this flag if some threads reserve and hold blocks, and other threads commit and release these
 * blocks. The threads that commit and release must never block. With this flag, a call that needs
 * memory waits until these threads free memory, and never returns -EDEADLK.
 */
#define ACTMEM_STORE_HANDED_ON		(1u << 3)
/*
 * Refuse a spill path that is itself in memory (tmpfs, ramfs), unless ACTMEM_STORE_ALLOW_MEMORY is
 * set. Without this flag the store uses the path, and actmem_error() has a warning.
 */
#define ACTMEM_STORE_STRICT		(1u << 4)

struct actmem_store_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t budget_bytes;		/* limit on memory, rounded down to pages; 0: no limit */
	const char *const *spill_paths;	/* directories, one per disk; a block is striped over all */
	uint32_t spill_path_count;	/* 0: blocks beyond the budget are refused */
	uint32_t flags;			/* ACTMEM_STORE_* */
	uint64_t spill_bytes;		/* disk space to allocate at creation; 0: on demand */
	uint64_t spill_limit_bytes;	/* maximum total length of spill files; 0: no limit */
	/* Maximum read-ahead, up to half the budget. 0: computed from measured speeds. */
	uint64_t window_bytes;
	uint64_t grow_bytes;		/* see struct actmem_heap_options */
	const struct actmem_region_options *region;	/* see struct actmem_heap_options */
	const struct actmem_queue_options *queue;	/* for transfers; NULL: defaults */
	struct actmem_runtime *runtime;	/* registers the regions; NULL: none */
	uint32_t register_flags;	/* ACTMEM_REGISTER_* */
	uint32_t reserved;		/* 0 */
	/*
	 * Writes a name for the block of @key to the buffer @name, which is @size bytes long. Error
	 * messages and the command `actmem waits` show this name. The store may call this function
	 * under its lock: the function must be short and must not call the store. If @name_block is
	 * NULL, messages show the numbers in the key.
	 */
	void (*name_block)(struct actmem_key key, char *name, size_t size);
};

/*
 * Creates a store. If @options is NULL, the defaults apply: no budget and no spilling.
 *
 * If the call returns 0 and a spill path is in memory, actmem_error() says so. With
 * ACTMEM_STORE_ALLOW_MEMORY, the call also returns 0 if the disks have no space for spill_bytes.
 * The store then starts without disk space, and actmem_error() says so. If the call returns 0 in
 * any other case, actmem_error() is empty.
 *
 * -EINVAL  has one of these causes. (1) The budget is less than two pages of the regions or,
 *	without spill paths, less than one page. A page has 4 KiB, 2 MiB or 1 GiB. (2) There are
 *	spill paths, but no budget. (3) A flag is unknown. (4) A directory has no direct I/O (see
 *	ACTMEM_STORE_ALLOW_BUFFERED), or is in memory (see ACTMEM_STORE_STRICT). (5) spill_bytes is
 *	above spill_limit_bytes
 * others  the errors of actmem_heap_create(), actmem_heap_register(), actmem_queue_create() and
 *	actmem_file_open()
 */
int actmem_store_create(struct actmem *am, const struct actmem_store_options *options,
			struct actmem_store **store);

/*
 * Checks spill paths in the same way as actmem_store_create() before it opens files in these
 * directories. The call ignores all @flags except ACTMEM_STORE_STRICT and
 * ACTMEM_STORE_ALLOW_MEMORY. If the call returns 0, actmem_error() says whether a path is in
 * memory. If a path does not exist, this call does not fail, but actmem_store_create() does.
 *
 * -EINVAL  a path is in memory, and ACTMEM_STORE_STRICT is set without ACTMEM_STORE_ALLOW_MEMORY
 */
int actmem_store_check_paths(const char *const *paths, uint32_t count, uint32_t flags);

/*
 * Destroys a store: drops all blocks, and removes the files. No other thread may use @store during
 * or after the call.
 *
 * -EBUSY  a block is reserved or held, or a thread waits in a call or is in actmem_store_grow();
 *	nothing changes
 */
int actmem_store_destroy(struct actmem_store *store);

/*
 * Returns a string that describes the I/O engine and the files. The string says why the engine was
 * chosen, whether I/O is direct or buffered, and whether a file system cannot free a part of a
 * file. If the store got less memory than its budget, the string says why its first attempt to get
 * more failed. The string is valid until actmem_store_destroy(). A later call can return a
 * different string.
 */
const char *actmem_store_describe(const struct actmem_store *store);

/*
 * Changes the budget of a store, which may be in use. If the budget is raised, calls that wait for
 * memory can use the increase at once. If the store has more memory than a lowered budget, the call
 * closes regions that have no block. In the background, the store then spills blocks, and frees the
 * memory of blocks that are also in a file, until the blocks in memory fit into the budget. A
 * region that still contains blocks is closed when the last of these blocks is gone. If the store
 * has spill paths, calls still succeed after the budget is lowered. The only exception is a call of
 * actmem_store_reserve() for more bytes than the new budget. A store without spill paths keeps its
 * blocks, and refuses new blocks until enough have been taken or dropped. Another store can use the
 * released memory as soon as memory_bytes in the statistics is at most the new budget.
 *
 * May sleep until another thread has created a region.
 *
 * -EINVAL  the budget is below the minimum of actmem_store_create()
 */
int actmem_store_set_budget(struct actmem_store *store, uint64_t bytes);

/*
 * Changes spill_limit_bytes of a store. If @bytes is 0, the files have no limit. If the files are
 * longer than a lowered limit, they stop growing. In the background, the store then frees the
 * unused space of the files.
 *
 * -EINVAL  the store has no spill paths
 */
int actmem_store_set_spill_limit(struct actmem_store *store, uint64_t bytes);

/*
 * Sets (@on is 1) or clears (@on is 0) ACTMEM_STORE_CHECKSUM. Each block keeps the setting that
 * applied at its commit.
 */
int actmem_store_set_checksum(struct actmem_store *store, int on);

/*
 * Allocates memory of @length bytes for a new block. The call stores the address, a multiple of
 * 4096, in *@memory. Until the commit, only the caller may access the memory. If the budget is used
 * up, the call waits at most @timeout_ns until other blocks are spilled. The calling thread may
 * have to create a region; the timeout does not interrupt the creation.
 *
 * -EEXIST  the key is in the store
 * -EINVAL  length is 0, larger than the address space, or above the maximum length of a
 *	registration (64 GiB, or chunk_bytes of the runtime)
 * -ETIMEDOUT  no memory became free in time. The store continues the spills that the call started
 * -ENOMEM  has one of these causes. (1) length is above the budget. (2) The store has no spill
 *	paths, and length is above the unused part of the budget. (3) actmem_heap_alloc() failed,
 *	and the store has no block to spill. (4) All regions have names and are shorter than length.
 *	The store cannot replace these regions, because regions with names stay open
 * -EDEADLK  blocks use up the whole budget, and the owner of each block is this thread, or a thread
 *	that waits without a timeout for memory or for a block. A thread that reserves or holds a
 *	block owns it until any thread commits, releases or puts back the block. Unless the store
 *	has the flag ACTMEM_STORE_HANDED_ON, a thread must not wait in actmem_store_reserve() or
 *	actmem_store_hold() while it owns a block that another thread will commit or release
 * -ENOSPC, -EIO and others  the store had to spill a block and could not. actmem_error() names the
 *	block, and also the file and the offset of the failed write, or the directory that has no
 *	space. The block stays in memory
 */
int actmem_store_reserve(struct actmem_store *store, struct actmem_key key, uint64_t length,
			 void **memory, uint64_t timeout_ns);

/*
 * Hands a filled block to the store. Afterwards the caller must not access the block's memory.
 *
 * -ENOENT  the block is not reserved
 */
int actmem_store_commit(struct actmem_store *store, struct actmem_key key);

/*
 * Returns the memory of a committed block. The caller may read the memory until it ends the hold.
 * The call also stores the block's length in *@length, unless @length is NULL. If the block is only
 * in a file, the call first waits for memory, as actmem_store_reserve() does, and then for the
 * read. The call waits at most @timeout_ns in total.
 *
 * Several threads may hold a block at the same time, and a thread may hold a block several times.
 * One actmem_store_release() or actmem_store_put_back(), by any thread, ends one hold. While the
 * first hold waits for memory or for the read, other holds of the block wait for the first hold.
 * Each hold waits at most its own @timeout_ns. If the block has a checksum (ACTMEM_STORE_CHECKSUM),
 * each hold verifies it.
 *
 * -ENOENT  the store lacks the key, or the block is not committed, or a holder has released it
 * -EIO and others  the read failed. actmem_error() names file, offset and block. The block stays:
 *	the caller may try again, or drop it
 * -ENOSPC, -EDEADLK and others  as for actmem_store_reserve(), because a spilled block needs
 *	memory. If budget and disk are both full, the caller must first release or drop another
 *	block
 * -EBADMSG  the checksum differs from that of the commit (ACTMEM_STORE_CHECKSUM)
 * -ETIMEDOUT  no memory became free in time, or the read did not end in time; the read continues
 * -ENOMEM  as for actmem_store_reserve(), or there is no memory for the bookkeeping
 */
int actmem_store_hold(struct actmem_store *store, struct actmem_key key, const void **memory,
		      uint64_t *length, uint64_t timeout_ns);

/*
 * Ends a hold of the calling thread. If this thread does not hold the block, ends a hold of another
 * thread. The block is removed when its last hold ends. While other holds remain, the key stays in
 * use, but no thread can hold the block again.
 *
 * -ENOENT  the block is not held
 */
int actmem_store_release(struct actmem_store *store, struct actmem_key key);

/*
 * Ends a hold as actmem_store_release() does, but keeps the block, so that it can be held again.
 * But if another holder releases the block, the block is removed when its last hold ends.
 *
 * -ENOENT  the block is not held
 */
int actmem_store_put_back(struct actmem_store *store, struct actmem_key key);

/*
 * Removes a block that the caller reserved, or one that is committed and not held. The statistics
 * do not count this block as taken.
 *
 * -ENOENT  the store lacks the key, or actmem_store_reserve() has not returned the block yet
 * -EBUSY  the block is held, or another thread is putting or committing it
 */
int actmem_store_drop(struct actmem_store *store, struct actmem_key key);

/*
 * Copy a block into a store, or out of it. actmem_store_put() reserves the block, copies the data
 * with memcpy(3), and commits the block. actmem_store_take() holds the block, copies the data, and
 * releases the block. Both calls wait without a timeout. If several threads take a block at the
 * same time, each thread gets a copy of the block.
 *
 * -EINVAL  @length is not the length of the block
 * others  the errors of actmem_store_reserve() and actmem_store_hold()
 */
int actmem_store_put(struct actmem_store *store, struct actmem_key key, const void *data,
		     uint64_t length);
int actmem_store_take(struct actmem_store *store, struct actmem_key key, void *data,
		      uint64_t length);

/*
 * Asks the store to read a block before all others, as soon as there is memory for the block. The
 * call does not wait. The descriptor of actmem_store_eventfd() becomes readable when a read ends.
 *
 * -ENOENT  the store lacks the key
 */
int actmem_store_prefetch(struct actmem_store *store, struct actmem_key key);

/*
 * Returns an eventfd(2) that becomes readable when a read of a block from a spill file ends, even
 * if the store began the read by itself. With this descriptor, a program can wait for blocks and
 * for other events at the same time:
 *
 *	actmem_store_prefetch(store, key);
 *	while ((error = actmem_store_hold(store, key, &memory, NULL, 0)) == -ETIMEDOUT)
 *		// poll(2) for the eventfd and other descriptors, then read(2) the eventfd
 *
 * Read the eventfd before the next actmem_store_hold(), not after it. If the read of a block fails
 * while no call waits for the block, the next actmem_store_hold() of the block with a timeout of 0
 * returns the error. The following call reads the block again. The descriptor is close-on-exec and
 * nonblocking. The store owns the descriptor, and closes it when the store is destroyed.
 *
 * >= 0  the descriptor
 * -EMFILE, -ENFILE, -ENOMEM  no descriptor is available
 */
int actmem_store_eventfd(struct actmem_store *store);

/*
 * Creates and registers regions in advance. Stops when at least @free_bytes of memory are free for
 * blocks that are @length bytes long, or when the budget is used up. Make this call in a separate
 * thread: other threads can use the store meanwhile. If actmem_store_reserve() needs a region
 * meanwhile, it waits for the creation of at most one region. If the store can spill, the call
 * returns 0 even if it cannot get all this memory.
 *
 * others  the errors of actmem_heap_alloc(). The store keeps the regions that it created. Later
 *	calls of actmem_store_reserve() try to create more
 */
int actmem_store_grow(struct actmem_store *store, uint64_t length, uint64_t free_bytes);

struct actmem_store_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t budget_bytes;
	uint64_t blocks;		/* reserved, committed or held */
	uint64_t block_bytes;
	uint64_t block_bytes_peak;
	uint64_t memory_bytes;		/* length of all regions of the store */
	uint64_t memory_bytes_peak;
	uint64_t resident_bytes;	/* bytes of blocks that are in memory */
	uint64_t spilled_bytes;		/* bytes of blocks that are only in files */
	uint64_t spilled_bytes_peak;
	uint64_t file_bytes;		/* disk space of the spill files */
	uint64_t window_bytes;		/* current limit of the read-ahead */
	uint64_t write_bandwidth;	/* bytes per second; 0: not measured yet */
	uint64_t read_bandwidth;
	uint64_t puts_total;
	uint64_t takes_total;		/* holds that succeeded */
	uint64_t hits_total;		/* how often a taken block was in memory */
	uint64_t handed_over_total;	/* hits on blocks that were being spilled */
	uint64_t late_total;		/* how often a taken block was being read, or was next */
	uint64_t misses_total;		/* how often it was not in memory, being read, or next */
	uint64_t put_stall_ns_total;	/* time that threads waited for memory to put a block */
	uint64_t take_stall_ns_total;	/* time that threads waited to take a block */
	uint64_t spilled_bytes_total;	/* bytes written */
	uint64_t filled_bytes_total;	/* bytes read */
	uint64_t wasted_bytes_total;	/* bytes read ahead, but dropped before they were taken */
	uint64_t failed_spills_total;
	uint64_t failed_fills_total;
	uint64_t beyond_budget_bytes;	/* memory_bytes above budget_bytes; 0 if below */
	uint64_t checksums_total;
	uint64_t file_bytes_peak;
	uint64_t given_back_bytes_total;	/* file space returned to disks */
	uint64_t refused_bytes;		/* part of the budget that the store cannot get now */
};

/* Returns the statistics of a store. */
int actmem_store_get_stats(struct actmem_store *store, struct actmem_store_stats *stats);

enum actmem_store_event_kind {
	ACTMEM_STORE_SPILL_BEGIN,
	ACTMEM_STORE_SPILL_END,
	ACTMEM_STORE_FILL_BEGIN,
	ACTMEM_STORE_FILL_END,
	ACTMEM_STORE_STALL_BEGIN,	/* a thread that puts or takes a block starts to wait */
	ACTMEM_STORE_STALL_END,
};

struct actmem_store_event {
	enum actmem_store_event_kind kind;
	int32_t result;			/* at the end of a transfer: 0 or a negative errno */
	struct actmem_key key;
	uint64_t length;		/* length of the block, as reserved */
	uint64_t time_ns;		/* CLOCK_MONOTONIC */
	uint64_t resident_bytes;	/* as in the statistics, at @time_ns */
	uint64_t spilled_bytes;
};

/*
 * Sets the function that the store calls at each event. If @observe is NULL, the store calls no
 * function. The store calls @observe under its lock: the function must be short and must not call
 * the store. After this call returns, the store does not call the previous function any more.
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
