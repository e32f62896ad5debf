/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The inside of runtimes: one table of functions per kind. Only the file of a kind
 * knows the accelerator's own calls.
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
/* NVIDIA's driver compacts memory under a lock of the machine from 512 MiB on. */
#define PIECE_MOST	(256ULL << 20)

/* A function of a kind returns it instead of 0: the runtime had forgotten the memory. */
#define RUNTIME_LOST	1

/* A region that is registered, or is being so. */
struct registration {
	struct link link;		/* of its runtime */
	struct actmem_runtime *runtime;
	struct actmem_region *region;
	bool busy;			/* a thread registers or unregisters it */
	bool abandoned;			/* by its heap: the runtime closes the region */
	bool own;			/* the runtime's own memory, from add to drop */
	char *address;
	uint64_t length;
	uint64_t chunk_bytes;		/* that one call registers */
	uint64_t registered;		/* bytes from the start, in whole chunks or to the end */
	uint64_t far_bytes;
	uint32_t flags;			/* ACTMEM_REGISTER_* */
	void *context;			/* CUDA: the one that it was registered in */
	bool has_primary;		/* CUDA: keeps the primary context of the device */
};

struct runtime_kind;

struct actmem_runtime {
	struct actmem *am;
	const struct runtime_kind *kind;
	struct actmem_runtime_options options;
	pthread_mutex_t lock;
	struct link registrations;	/* under the lock, as the counters of info */
	struct actmem_runtime_info info;
	unsigned int heaps;		/* whose regions are registered; under the lock */
	uint64_t piece_bytes;		/* the piece that a heap's next region is registered in; under the lock */
	struct actmem_nodes nodes;	/* of the device's socket; empty: not known */
	int device;			/* CUDA: its handle */
	char description[RUNTIME_TEXT_MAX];
};

/*
 * Functions that can fail return 0, or a negative errno after they have set the words.
 * They are called with no lock held, and never in a forked child.
 */
struct runtime_kind {
	enum actmem_runtime_kind kind;
	const char *name;

	/* Sets text, node and device of @runtime's info. */
	int (*open)(struct actmem_runtime *runtime);

	/* State that all chunks of a region need; ended when none is registered any more. */
	int (*begin)(struct registration *registration);
	void (*end)(struct registration *registration);

	int (*add)(struct registration *registration, void *address, uint64_t length);

	/* May return RUNTIME_LOST, with words. */
	int (*drop)(struct registration *registration, void *address, uint64_t length);

	/* The runtime's word on an address that was registered; may return RUNTIME_LOST. */
	int (*look)(struct registration *registration, void *address, uint32_t *flags);

	/* Whether add and drop know of own memory: the one allocates it, the other frees it. */
	bool has_own;

	/* NULL: devices have no addresses of their own. */
	int (*pointer)(struct registration *registration, void *address, uint64_t *pointer);
};

/* Registers all chunks, or none; after a failure, @registered is what could not be undone. */
int chunks_add(struct registration *registration);

/*
 * Unregisters the last chunk first, and stops at one that stays. Returns RUNTIME_LOST if the
 * runtime had forgotten some.
 */
int chunks_drop(struct registration *registration);

/* Waits after a call that took so long, if that was long. */
void pace_pause(uint64_t took_ns);

/* Learns from a piece how long the next ones may be. */
void pace_learn(struct actmem_runtime *runtime, uint64_t bytes, uint64_t took_ns);

/* Whether the region is memory of a runtime's own; and sets, or forgets, where it is. */
bool own_is(const struct actmem_region *region);
void own_place(struct actmem_region *region, void *address);

/* Tries again with regions that were abandoned; they stay if it fails again. */
void registration_end_abandoned(struct actmem_runtime *runtime);

extern const struct runtime_kind runtime_cuda;
extern const struct runtime_kind runtime_null;

#endif /* LIB_RUNTIME_INSIDE_H */
