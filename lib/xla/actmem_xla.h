/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libactmem_xla: the calls of the Python module beside XLA's handlers, for the memory of
 * values that are put, and of arrays.
 *
 * actmem_put copies its first operand into a block of a store and returns a
 * token, uint32[2]; actmem_take copies the block that a token names into its
 * result, and ends the block if it is the last. Where it is not, actmem_drop does.
 * There are handlers for CPUs and for CUDA, where actmem_tie tells of takes to come
 * (call.h).
 *
 * XLA tells nobody that an execution failed or was thrown away, so values that such
 * a forward pass put are found by counting: the puts of one site (a call of a
 * checkpointed function in a program) in one XLA run on one device are a
 * generation, unfinished until all of it is taken. A site that begins a
 * generation while it has as many unfinished ones as it may have loses its
 * oldest.
 */
#ifndef ACTMEM_XLA_H
#define ACTMEM_XLA_H

#include <stddef.h>
#include <stdint.h>

#include "actmem_store.h"

#define ACTMEM_XLA_API __attribute__((visibility("default")))
#define ACTMEM_XLA_DEVICES_MAX	256
#define ACTMEM_XLA_GENERATIONS	2

/* *_total only rise, the others return to 0. All bytes are as put. */
struct actmem_xla_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t live_blocks;
	uint64_t live_bytes;
	uint64_t live_bytes_peak;
	uint64_t puts_total;
	uint64_t put_bytes_total;
	uint64_t takes_total;
	uint64_t take_bytes_total;
	uint64_t last_run_put_bytes;	/* of the latest XLA run that put */
	uint64_t last_run_take_bytes;	/* of the latest XLA run that took */
	uint64_t reclaimed_blocks_total;	/* by the limit on generations */
	uint64_t reclaimed_bytes_total;
	uint64_t reset_blocks_total;	/* by actmem_xla_reset() */
	uint64_t checksums_total;	/* blocks whose checksum was compared */
	uint64_t generations;		/* unfinished ones */
	uint64_t generations_max;	/* per site and device; 0: no limit */
	uint64_t checksum;		/* 1: blocks are checksummed */
	uint64_t lost_blocks_total;	/* that could not be read back from their files */
	uint64_t dropped_blocks_total;	/* after takes that did not end them, or none */
	uint64_t own_bytes;		/* of memory, arrays' too, that CUDA's driver allocated */
	uint64_t own_bytes_total;	/* ...where it did not register a region */
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
	uint64_t ring_bytes;		/* of its memory, while there is a ring */
	uint64_t to_host_bytes_total;
	uint64_t to_device_bytes_total;
	uint64_t ahead_bytes_total;	/* of these, before their take */
	uint64_t ahead_total;		/* takes that found their block on the device */
	uint64_t late_total;		/* takes that did not: the device waited for the copy */
	uint64_t wasted_bytes_total;	/* ahead, and never taken */
	uint64_t token_wait_ns_total;	/* that takes waited until the device had come to them */
	uint64_t block_wait_ns_total;	/* then, for a block to be in memory */
	uint64_t unfinished;		/* copies that are under way */
	uint64_t staged_bytes;		/* on the device, not yet taken */
	uint64_t token_waits_total;	/* how often: once for takes that are announced together */
	uint64_t host_waits_total;	/* of handlers for the device, whatever for */
};

/* Options of the store. A field of 0: as the environment says, by @ACTMEM_*. */
struct actmem_xla_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t grow_bytes;		/* see struct actmem_heap_options; ACTMEM_HEAP_GROW */
	uint64_t limit_bytes;		/* of memory, instead of a budget; ACTMEM_HEAP_LIMIT */
	uint64_t budget_bytes;		/* see struct actmem_store_options; ACTMEM_BUDGET */
	uint64_t spill_limit_bytes;	/* likewise; ACTMEM_SPILL_LIMIT */
	const char *const *spill_paths;	/* likewise; ACTMEM_SPILL, with a ':' between two */
	uint32_t spill_path_count;
	uint32_t named;			/* 1: @am has a heap_name */
	uint64_t ring_bytes;		/* of each GPU, to stage in; ACTMEM_DEVICE_RING, 512 MiB */
	uint32_t placed;		/* 1: it was said on which nodes memory is to be, or how */
	uint32_t spill_allow;		/* ACTMEM_STORE_ALLOW_*, or this; ACTMEM_SPILL_ALLOW */
};

/* Nothing, whatever the environment says. */
#define ACTMEM_XLA_SPILL_ALLOW_NOTHING	(UINT32_C(1) << 31)

/*
 * Has the store made of @am, which stays the caller's and open. Without this call
 * the first put opens a backend as the environment says.
 *
 * -EBUSY  memory is attached already;  -EOWNERDEAD  in a forked child
 * -EINVAL  over 64 directories, an empty one, another flag than those;  -ENOMEM
 */
ACTMEM_XLA_API int actmem_xla_attach(struct actmem *am,
				     const struct actmem_xla_options *options);

/*
 * Before @am is closed: it is not used any more, unless blocks come from it
 * already. Then it stays, and the store keeps actmem_close() from succeeding.
 */
ACTMEM_XLA_API void actmem_xla_detach(struct actmem *am);

/* The handle that memory comes from, NULL before the first use. */
ACTMEM_XLA_API struct actmem *actmem_xla_attached(void);

/*
 * Gives memory and files back to the machine if no block is live. Regions with names
 * stay open: closing them would give nothing back but the names, for others to take.
 * -EOWNERDEAD without words: a forked child.
 */
ACTMEM_XLA_API int actmem_xla_trim(void);

/*
 * -EOWNERDEAD, here and below: a forked child, which has none of its parent's memory, and
 * perhaps its locks as other threads of it held them.
 */
ACTMEM_XLA_API int actmem_xla_set_generations(uint64_t most);
ACTMEM_XLA_API int actmem_xla_set_checksum(int on);

/* -EINVAL: @stats->size was not set; -ERANGE: no such device; -EOWNERDEAD. */
ACTMEM_XLA_API int actmem_xla_stats(struct actmem_xla_stats *stats);
ACTMEM_XLA_API int actmem_xla_device_stats(uint32_t device,
					   struct actmem_xla_device_stats *stats);

/* -EINVAL: @stats->size was not set; -ERANGE: no such device; -EOWNERDEAD. */
ACTMEM_XLA_API int actmem_xla_transfer_stats(uint32_t device,
					     struct actmem_xla_transfer_stats *stats);

/*
 * Gives the rings of GPUs that hold nothing back, and what belongs to them. Waits for
 * copies that are under way.
 */
ACTMEM_XLA_API void actmem_xla_trim_devices(void);

/* As actmem_store_get_stats(); totals and peaks are those of the process. */
ACTMEM_XLA_API int actmem_xla_store_stats(struct actmem_store_stats *stats);

/* Frees every live block and says how many they were; none in a forked child. */
ACTMEM_XLA_API uint64_t actmem_xla_reset(void);

/*
 * Arrays: memory that a program fills and XLA then reads where it is, until nobody has
 * it any more. Its heap is not the store's, and neither is what limits it: the heap
 * limit holds for each, the budget for the store alone.
 *
 * After an error, @words (@words_size bytes) tell why and which knob helps.
 */
struct actmem_xla_array;

/* Its memory is registered with CUDA, for all devices, as pinned_host of a GPU is. */
#define ACTMEM_XLA_ARRAY_CUDA	(1u << 0)
/* Made to hold a copy of what was elsewhere: this is counted. */
#define ACTMEM_XLA_ARRAY_COPY	(1u << 1)

/*
 * @bytes, not 0, at *@address, of unspecified contents, aligned to 4 KiB if it is as
 * long, else to 256. The caller has a hold on *@array. With ACTMEM_XLA_ARRAY_CUDA,
 * @device is the first GPU's that it is for, as CUDA counts them, and memory is on the node
 * of that GPU. With a heap limit it is near the GPU that was the first of all. Without the
 * flag, memory may be registered all the same.
 *
 * -EBUSY  arrays that are not registered with CUDA are there, and this one was to be
 * -EOWNERDEAD  a forked child, as for all of the library
 * else as actmem_heap_alloc(), actmem_open(), actmem_runtime_open()
 */
ACTMEM_XLA_API int actmem_xla_array_new(uint64_t bytes, uint32_t flags, uint32_t device,
					struct actmem_xla_array **array, void **address,
					char *words, size_t words_size);

/* The call makes the region, which must not be there; else it opens one, to read it. */
#define ACTMEM_XLA_ARRAY_CREATE	(1u << 2)

/*
 * All of a region with a name, @path as of actmem_region_open(), of at least *@bytes
 * where it is made; *@bytes is how many there are. Where it is not made, and
 * ACTMEM_XLA_ARRAY_CUDA is given, it is registered with CUDA, to be read.
 *
 * Errors as of actmem_region_open(), actmem_region_register() and actmem_xla_array_new().
 */
ACTMEM_XLA_API int actmem_xla_array_open(const char *path, uint64_t *bytes, uint32_t flags,
					 uint32_t device, struct actmem_xla_array **array,
					 void **address, char *words, size_t words_size);

/*
 * Ends the caller's hold. The memory is free, for the next array, when the last hold
 * has ended, XLA's included. In a forked child, which has none of it, nothing happens.
 */
ACTMEM_XLA_API void actmem_xla_array_drop(struct actmem_xla_array *array);

struct actmem_xla_tensor_options {
	size_t size;			/* set by ACTMEM_INIT */
	void *address;			/* within the array */
	const int64_t *shape;		/* row by row, without gaps */
	uint32_t rank;
	int32_t device_type;		/* these as DLPack has them */
	int32_t device;
	uint8_t code;
	uint8_t bits;
};

/*
 * A part of an array as a DLManagedTensor for a capsule named "dltensor". It holds the
 * array until its deleter is called, by whoever takes it out of the capsule, or by
 * actmem_xla_tensor_drop(). -EINVAL: @options->size was not set; -ENOMEM.
 */
ACTMEM_XLA_API int actmem_xla_tensor_new(struct actmem_xla_array *array,
					 const struct actmem_xla_tensor_options *options,
					 void **tensor);
ACTMEM_XLA_API void actmem_xla_tensor_drop(void *tensor);

/* *_total and *_peak only rise, the others return to 0. */
struct actmem_xla_array_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t blocks;		/* and regions with names */
	uint64_t bytes;			/* of these, as asked for */
	uint64_t bytes_peak;
	uint64_t views;			/* that XLA has of them */
	uint64_t region_bytes;		/* of the regions that they are in */
	uint64_t blocks_total;
	uint64_t views_total;
	uint64_t copied_bytes_total;	/* of blocks that were made to hold a copy */
	uint64_t cuda;			/* 1: regions are registered with CUDA */
};

/* -EINVAL: @stats->size was not set; -EOWNERDEAD: a forked child. */
ACTMEM_XLA_API int actmem_xla_array_stats(struct actmem_xla_array_stats *stats);

#endif /* ACTMEM_XLA_H */
