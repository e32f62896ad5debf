/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libactmem_xla: the functions that the Python module calls. They manage the memory of arrays, and
 * the memory of values that programs store. The library's other functions are handlers: XLA calls
 * them when a program executes a custom call.
 *
 * actmem_put copies its first operand into a block of a store and returns a token, uint32[4].
 * actmem_take gets such a token, and copies the token's block into its result. If its attribute
 * `ends` is true, actmem_take uses the token for the last time, and frees the block. If `ends` is
 * false in all calls for a token, actmem_drop frees the token's block. There are handlers for CPUs
 * and for CUDA. On CUDA, actmem_tie announces later calls of actmem_take, so that the host waits
 * only once for the tokens of all these calls (call.h).
 *
 * XLA does not report that an execution failed or was discarded. Therefore the library counts
 * generations (defined below) to find the values of abandoned forward passes. A site is a call of a
 * checkpointed function in a program. A generation is the set of all values that one site stores in
 * one XLA run on one device. A generation is unfinished until all of its values are taken. When a
 * site begins a generation and already has the maximum number of unfinished generations, the
 * library reclaims the site's oldest generation.
 */
#ifndef ACTMEM_XLA_H
#define ACTMEM_XLA_H

#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"

#define ACTMEM_XLA_API __attribute__((visibility("default")))
#define ACTMEM_XLA_DEVICES_MAX	256
#define ACTMEM_XLA_GENERATIONS	2

/*
 * Fields *_total are totals of the process. live_blocks, live_bytes, generations and own_bytes fall
 * when blocks are freed. Fields with `bytes` in their name add up the lengths of values.
 */
struct actmem_xla_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t live_blocks;
	uint64_t live_bytes;
	uint64_t live_bytes_peak;
	uint64_t puts_total;
	uint64_t put_bytes_total;
	uint64_t takes_total;
	uint64_t take_bytes_total;
	uint64_t last_run_put_bytes;	/* bytes stored by the latest XLA run that stored any */
	uint64_t last_run_take_bytes;	/* bytes taken by the latest XLA run that took any */
	uint64_t reclaimed_blocks_total;	/* blocks reclaimed by the limit on generations */
	uint64_t reclaimed_bytes_total;
	uint64_t reset_blocks_total;	/* blocks freed by actmem_xla_reset() */
	uint64_t checksums_total;	/* blocks whose checksum was verified */
	uint64_t generations;		/* unfinished generations */
	uint64_t generations_max;	/* most generations per site and device; 0: no limit */
	uint64_t checksum;		/* 1: blocks are checksummed */
	uint64_t lost_blocks_total;	/* blocks that could not be copied or read */
	uint64_t dropped_blocks_total;	/* blocks freed by actmem_drop, not actmem_take */
	uint64_t own_bytes;		/* memory that CUDA allocated, because it refused regions */
	uint64_t own_bytes_total;	/* own_bytes and own_bytes_total include arrays */
};

struct actmem_xla_device_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t live_bytes;
	uint64_t live_bytes_peak;
	uint64_t put_bytes_total;
	uint64_t take_bytes_total;
};

/* Copies between one GPU and the memory of the store. */
struct actmem_xla_transfer_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t ring_bytes;		/* device memory of the GPU's staging ring */
	uint64_t to_host_bytes_total;
	uint64_t to_device_bytes_total;
	uint64_t ahead_bytes_total;	/* part of to_device_bytes_total that was prefetched */
	uint64_t ahead_total;		/* how often a taken block was on the device already */
	uint64_t late_total;		/* how often the device waited for a taken block */
	uint64_t wasted_bytes_total;	/* bytes that were prefetched and never taken */
	uint64_t token_wait_ns_total;	/* time that the host waited to read tokens */
	uint64_t block_wait_ns_total;	/* time that the host waited until blocks were in memory */
	uint64_t unfinished;		/* copies under way */
	uint64_t staged_bytes;		/* bytes on the device, not yet taken */
	uint64_t token_waits_total;	/* waits for tokens; announced takes share a wait */
	uint64_t host_waits_total;	/* waits of handlers for the device, for any reason */
};

/*
 * Options of the store. If a field is 0, the environment variable ACTMEM_* in its comment applies.
 */
struct actmem_xla_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t grow_bytes;		/* see struct actmem_heap_options; ACTMEM_HEAP_GROW */
	uint64_t limit_bytes;		/* memory limit if there is no budget; ACTMEM_HEAP_LIMIT */
	uint64_t budget_bytes;		/* see struct actmem_store_options; ACTMEM_BUDGET */
	uint64_t spill_limit_bytes;	/* see struct actmem_store_options; ACTMEM_SPILL_LIMIT */
	const char *const *spill_paths;	/* directories; ACTMEM_SPILL separates them by ':' */
	uint32_t spill_path_count;
	uint32_t named;			/* 1: the attached handle has a heap_name */
	uint64_t ring_bytes;		/* staging ring of a GPU; ACTMEM_DEVICE_RING, or 512 MiB */
	uint32_t placed;		/* 1: the user chose nodes or a policy */
	uint32_t spill_allow;		/* ACTMEM_STORE_ALLOW_* or flag below; ACTMEM_SPILL_ALLOW */
};

/* A value of spill_allow: set no flag, and ignore ACTMEM_SPILL_ALLOW. */
#define ACTMEM_XLA_SPILL_ALLOW_NOTHING	(UINT32_C(1) << 31)

/*
 * Attaches @am: stores and arrays then allocate their memory from @am. The caller still owns @am,
 * and closes it with actmem_xla_close(). If the program does not make this call, the first use of
 * memory opens the backend that the environment variables select.
 *
 * -EBUSY  a handle is attached already;  -EOWNERDEAD  in a forked child
 * -EINVAL  more than 64 directories, an empty path, or an unknown flag;  -ENOMEM
 */
ACTMEM_XLA_API int actmem_xla_attach(struct actmem *am,
				     const struct actmem_xla_options *options);

/*
 * Calls actmem_close() and detaches @am. Handlers cannot use @am during the call. If actmem_close()
 * fails, then @am stays attached.
 */
ACTMEM_XLA_API int actmem_xla_close(struct actmem *am);

/* Returns the handle from which memory is allocated; NULL before the first use. */
ACTMEM_XLA_API struct actmem *actmem_xla_attached(void);

/*
 * Frees the memory of arrays that were dropped. Destroys each store that has no blocks, and so
 * frees the memory and files of these stores. Regions with names stay open: closing them would free
 * no memory, and would only let other processes use the names. Returns -EOWNERDEAD without an error
 * message in a forked child.
 */
ACTMEM_XLA_API int actmem_xla_trim(void);

/*
 * Set the maximum number of unfinished generations (see the top of this file), and whether blocks
 * are checksummed. The error -EOWNERDEAD, here and below, means that the caller is a forked child.
 * A child cannot use the library: it does not share its parent's memory, and other threads of the
 * parent may have held locks of the library at fork().
 */
ACTMEM_XLA_API int actmem_xla_set_generations(uint64_t most);
ACTMEM_XLA_API int actmem_xla_set_checksum(int on);

/*
 * Copy statistics to *@stats. Return -EINVAL if @stats->size was not set, -ERANGE if @device is too
 * large, or -EOWNERDEAD.
 */
ACTMEM_XLA_API int actmem_xla_stats(struct actmem_xla_stats *stats);
ACTMEM_XLA_API int actmem_xla_device_stats(uint32_t device,
					   struct actmem_xla_device_stats *stats);

/* Returns the errors of actmem_xla_device_stats(). */
ACTMEM_XLA_API int actmem_xla_transfer_stats(uint32_t device,
					     struct actmem_xla_transfer_stats *stats);

/*
 * Frees the staging ring of each GPU that has no block in its ring, and the GPU's streams, events
 * and threads. Waits for copies under way.
 */
ACTMEM_XLA_API void actmem_xla_trim_devices(void);

/*
 * Returns the statistics of actmem_store_get_stats(), summed over all stores. Totals and peaks are
 * those of the process.
 */
ACTMEM_XLA_API int actmem_xla_store_stats(struct actmem_store_stats *stats);

/*
 * Frees every live block, except the blocks whose ids are in @kept. @kept is an array of
 * @kept_count ids, and a block's id is the first uint64 of its tokens. Ignores ids without a block.
 * Returns the number of blocks freed; 0 in a forked child.
 */
ACTMEM_XLA_API uint64_t actmem_xla_reset(const uint64_t *kept, size_t kept_count);

/*
 * Arrays: memory that a program fills and XLA then reads in place. An array exists until neither
 * the program nor XLA uses it. Arrays have a heap of their own. The heap limit applies to this heap
 * and to the store separately; the budget applies only to the store.
 *
 * After an error, @words (@words_size bytes) has the error message, which names the setting to
 * change.
 */
struct actmem_xla_array;

/* Register the memory with CUDA, for all devices, like pinned_host memory of a GPU. */
#define ACTMEM_XLA_ARRAY_CUDA	(1u << 0)
/* The array will hold a copy of other memory. Its bytes are counted as copied. */
#define ACTMEM_XLA_ARRAY_COPY	(1u << 1)

/*
 * Allocates @bytes bytes, and stores their address in *@address. @bytes must not be 0. The contents
 * are unspecified. The address is aligned to 4 KiB, or to 256 bytes if the array is shorter. The
 * caller gets a reference to *@array.
 *
 * With ACTMEM_XLA_ARRAY_CUDA, @device is the CUDA number of the first GPU that uses the array. The
 * array's memory is on that GPU's node. With a heap limit, however, all arrays share one heap,
 * whose memory is on the node of the first array's GPU. Even without ACTMEM_XLA_ARRAY_CUDA, the
 * memory can be registered.
 *
 * -EBUSY  this array must be registered with CUDA, but other arrays exist that are not registered
 * -EOWNERDEAD  in a forked child
 * and the errors of actmem_heap_alloc(), actmem_open() and actmem_runtime_open()
 */
ACTMEM_XLA_API int actmem_xla_array_new(uint64_t bytes, uint32_t flags, uint32_t device,
					struct actmem_xla_array **array, void **address,
					char *words, size_t words_size);

/*
 * For actmem_xla_array_open(): create the region, which must not exist. Without this flag, open an
 * existing region for reading.
 */
#define ACTMEM_XLA_ARRAY_CREATE	(1u << 2)

/*
 * Makes an array whose memory is a whole named region. The call passes @path to
 * actmem_region_open(). With ACTMEM_XLA_ARRAY_CREATE, it creates a region of at least *@bytes;
 * otherwise it opens an existing region. In both cases, it stores the region's length in *@bytes.
 * With ACTMEM_XLA_ARRAY_CUDA, the call registers an existing region with CUDA for reading.
 *
 * Returns the errors of actmem_region_open(), actmem_region_register() and actmem_xla_array_new().
 */
ACTMEM_XLA_API int actmem_xla_array_open(const char *path, uint64_t *bytes, uint32_t flags,
					 uint32_t device, struct actmem_xla_array **array,
					 void **address, char *words, size_t words_size);

/*
 * Drops the caller's reference. When all references are dropped, including those of XLA, the
 * library may reuse the memory for later arrays. In a forked child, the memory belongs to the
 * parent and is not freed.
 */
ACTMEM_XLA_API void actmem_xla_array_drop(struct actmem_xla_array *array);

struct actmem_xla_tensor_options {
	size_t size;			/* set by ACTMEM_INIT */
	void *address;			/* within the array */
	const int64_t *shape;		/* elements are contiguous, in row-major order */
	uint32_t rank;
	int32_t device_type;		/* as in DLPack, like all fields below */
	int32_t device;
	uint8_t code;
	uint8_t bits;
};

/*
 * Makes a DLManagedTensor of a part of an array, for a capsule named "dltensor". The tensor holds
 * the array until the consumer of the capsule calls the tensor's deleter, or the caller calls
 * actmem_xla_tensor_drop(). Returns -EINVAL if @options->size was not set, or -ENOMEM.
 */
ACTMEM_XLA_API int actmem_xla_tensor_new(struct actmem_xla_array *array,
					 const struct actmem_xla_tensor_options *options,
					 void **tensor);
ACTMEM_XLA_API void actmem_xla_tensor_drop(void *tensor);

/* Fields *_total and *_peak never decrease. The other counts fall when arrays are dropped. */
struct actmem_xla_array_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t blocks;		/* arrays, including named regions */
	uint64_t bytes;			/* length of all arrays, as requested */
	uint64_t bytes_peak;
	uint64_t views;			/* tensors through which XLA uses arrays */
	uint64_t region_bytes;		/* length of the regions that contain arrays */
	uint64_t blocks_total;
	uint64_t views_total;
	uint64_t copied_bytes_total;	/* bytes of arrays with ACTMEM_XLA_ARRAY_COPY */
	uint64_t cuda;			/* 1: regions are registered with CUDA */
};

/* Returns -EINVAL if @stats->size was not set, or -EOWNERDEAD in a forked child. */
ACTMEM_XLA_API int actmem_xla_array_stats(struct actmem_xla_array_stats *stats);

#endif /* ACTMEM_XLA_H */
