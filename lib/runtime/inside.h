/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Internals of runtimes. Each kind of runtime has a table of functions. Only the file that defines
 * a kind calls the API of its accelerator.
 */
#ifndef LIB_RUNTIME_INSIDE_H
#define LIB_RUNTIME_INSIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "actmem_runtime.h"
#include "base/base.h"
#include "region/region.h"
#include "runtime/runtime.h"

#define RUNTIME_TEXT_MAX	(ACTMEM_DEVICE_TEXT_MAX + 512)

#define PIECE_LEAST	(64ULL << 20)
/* To pin 512 MiB or more, NVIDIA's driver compacts memory while it holds a machine-wide lock. */
#define PIECE_MOST	(256ULL << 20)

/*
 * A function of struct runtime_kind returns RUNTIME_LOST, not 0, if the memory was not registered
 * any more.
 */
#define RUNTIME_LOST	1

/* A region that is registered or is being registered. */
struct registration {
	struct link link;		/* in the runtime's list */
	struct actmem_runtime *runtime;
	struct actmem_region *region;
	bool busy;			/* a thread registers or unregisters the region */
	bool abandoned;			/* unregistering failed; the runtime tries again */
	bool own;			/* add() allocates the memory, and drop() frees it */
	char *address;
	uint64_t length;
	uint64_t chunk_bytes;		/* bytes that one call registers */
	uint64_t chunk_least;		/* minimum of @chunk_bytes */
	uint64_t registered;		/* registered bytes, from the start of the region */
	uint64_t far_bytes;		/* bytes that are not on the device's socket */
	uint32_t flags;			/* ACTMEM_REGISTER_* */
	void *context;			/* CUDA: the context of the registration */
	bool has_primary;		/* CUDA: retains the device's primary context */
};

struct runtime_kind;

struct actmem_runtime {
	struct actmem *am;
	const struct runtime_kind *kind;
	struct actmem_runtime_options options;
	pthread_mutex_t lock;
	struct link registrations;	/* protected by the lock, like the counters of info */
	struct actmem_runtime_info info;
	unsigned int heaps;		/* heaps that register regions; under the lock */
	uint64_t piece_bytes;		/* chunk length for heaps' next regions; under the lock */
	uint64_t accepted_bytes;	/* maximum that one call can register; under the lock */
	char refusal[ERROR_TEXT_MAX];	/* why no memory can be registered, or ""; under the lock */
	struct actmem_nodes nodes;	/* nodes of the device's socket; empty: not known */
	int device;			/* CUDA: handle of the device */
	char description[RUNTIME_TEXT_MAX];
};

/*
 * Functions that can fail return 0, or a negative errno with an error message. The functions are
 * never called in a forked child. The caller of look() holds the region's lock, and the caller of
 * pointer() holds the runtime's lock. Callers of the other functions hold neither lock.
 */
struct runtime_kind {
	enum actmem_runtime_kind kind;
	const char *name;

	/* Sets text, node and device of @runtime's info. */
	int (*open)(struct actmem_runtime *runtime);

	/*
	 * Acquire and release what all chunks of a region need, such as CUDA's primary context.
	 * end() is called when no chunk is registered any more.
	 */
	int (*begin)(struct registration *registration);
	void (*end)(struct registration *registration);

	int (*add)(struct registration *registration, void *address, uint64_t length);

	/* May return RUNTIME_LOST, with an error message. */
	int (*drop)(struct registration *registration, void *address, uint64_t length);

	/* Asks the runtime for the flags of a registered address. May return RUNTIME_LOST. */
	int (*look)(struct registration *registration, void *address, uint32_t *flags);

	/* True if add() can allocate the runtime's own memory, and drop() can free it. */
	bool has_own;

	/*
	 * Translates a host address to the address that devices use. NULL: devices use host
	 * addresses.
	 */
	int (*pointer)(struct registration *registration, void *address, uint64_t *pointer);
};

/*
 * Registers all chunks, or none. If the runtime refuses the first chunk, tries shorter chunks of at
 * least @chunk_least bytes, and sets @chunk_bytes. After a failure, unregisters the registered
 * chunks. @registered is then the length of the chunks that could not be unregistered.
 */
int chunks_add(struct registration *registration);

/*
 * Unregisters all chunks, the last one first. Stops with an error at a chunk that cannot be
 * unregistered. Returns RUNTIME_LOST if some chunks were not registered any more.
 */
int chunks_drop(struct registration *registration);

/* Sleeps after a call that took @took_ns, unless the call was short. */
void pace_pause(uint64_t took_ns);

/* Adapts the length of later chunks: registering @bytes took @took_ns. */
void pace_learn(struct actmem_runtime *runtime, uint64_t bytes, uint64_t took_ns);

/* Limits the length of later chunks to @bytes, because the runtime refused a longer chunk. */
void pace_limit(struct actmem_runtime *runtime, uint64_t bytes);

/*
 * own_is() returns true if a runtime allocates the region's memory. own_place() sets the address of
 * this memory.
 */
bool own_is(const struct actmem_region *region);
void own_place(struct actmem_region *region, void *address);

/* Tries again to unregister and close each abandoned region. */
void registration_end_abandoned(struct actmem_runtime *runtime);

extern const struct runtime_kind runtime_cuda;
extern const struct runtime_kind runtime_null;

#endif /* LIB_RUNTIME_INSIDE_H */
