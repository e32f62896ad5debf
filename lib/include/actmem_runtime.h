/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Runtimes of libactmem: an accelerator's own way to register host memory, so that
 * its copies reach it at full speed, and on which node that memory should be.
 *
 * A runtime's libraries are loaded when it is opened; nothing is linked. Once
 * loaded they stay loaded.
 *
 * Calls are thread-safe, but for those that end a thing: the caller sees to it that
 * nobody uses a runtime while it is closed, or a region while it is unregistered.
 * Neither changes which CUDA context is current to a thread.
 */
#ifndef ACTMEM_RUNTIME_H
#define ACTMEM_RUNTIME_H

#include "actmem.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct actmem_runtime;		/* an accelerator's way to register memory */
struct actmem_device_wait;	/* what a thread waits for */

enum actmem_runtime_kind {
	ACTMEM_RUNTIME_AUTO,	/* CUDA if it is there, else NULL */
	ACTMEM_RUNTIME_CUDA,	/* the driver API of libcuda.so.1 */
	ACTMEM_RUNTIME_NULL,	/* no accelerator: registers nothing, and counts */
};

#define ACTMEM_DEVICE_TEXT_MAX	320

struct actmem_runtime_options {
	size_t size;			/* set by ACTMEM_INIT */
	enum actmem_runtime_kind kind;
	int32_t device;			/* CUDA: its ordinal, as CUDA_VISIBLE_DEVICES leaves it */
	uint64_t chunk_bytes;		/* that are registered at once; 0: 64 GiB */
	/*
	 * Not NULL: memory of the runtime's own may take the place of a heap's region that
	 * it does not register. Called as it is given, with @why, and as it goes, with NULL;
	 * by threads that have locks of the heap, so that it may not use that.
	 */
	void (*own_memory)(uint64_t bytes, const char *why);
};

/*
 * Opens a runtime. @options NULL: defaults. chunk_bytes: a multiple of 2 MiB, not
 * over 64 GiB, from where on drivers refuse. No block of a heap that is registered with
 * it lies in two chunks, so it bounds the length of blocks.
 *
 * own_memory: with CUDA, what cuMemHostAlloc() gives. It has no descriptor and no name,
 * is on the node that the driver chooses, cannot be attached to a queue, and is lost if
 * the device's primary context is reset. Heaps that have a name get none.
 *
 * AUTO takes NULL where there is no libcuda.so.1, or one without a device, and
 * actmem_runtime_describe() tells why. A driver that is there and does not work is
 * an error.
 *
 * -ENOENT  no libcuda.so.1, or it is the toolkit's stub; a static program
 * -ENODEV  CUDA has no device, or not this one
 * -EOWNERDEAD  the process was forked from one that had used CUDA: CUDA is of no
 *	use in it
 * -EOPNOTSUPP  a libcuda.so.1 that is too old
 * -EINVAL  options;  -EIO  anything else that the runtime reports
 */
int actmem_runtime_open(struct actmem *am, const struct actmem_runtime_options *options,
			struct actmem_runtime **runtime);

/* -EBUSY while regions or heaps are registered with it; nothing is closed then. */
int actmem_runtime_close(struct actmem_runtime *runtime);

/*
 * Which runtime and device it is, where that is, and why, in words: "null:
 * libcuda.so.1 cannot be loaded (...)". Valid until it is closed.
 */
const char *actmem_runtime_describe(const struct actmem_runtime *runtime);

struct actmem_runtime_info {
	size_t size;			/* set by ACTMEM_INIT */
	enum actmem_runtime_kind kind;	/* the one in use */
	int32_t device;			/* CUDA: its ordinal */
	int32_t node;			/* NUMA node that the device is at; -1: not known */
	uint32_t reserved;
	uint64_t chunk_bytes;
	uint64_t regions;		/* that are registered now */
	uint64_t chunks;		/* that these are in */
	uint64_t bytes;
	uint64_t far_bytes;		/* of these, on other sockets than the device's */
	uint64_t regions_total;
	uint64_t far_total;		/* regions that had far_bytes */
	uint64_t failures_total;	/* actmem_region_register() that the runtime refused */
	uint64_t lost_total;		/* regions that it had forgotten when they were unregistered */
	char text[ACTMEM_DEVICE_TEXT_MAX];	/* name and bus address of the device */
	uint64_t own_bytes;		/* of bytes, the runtime's own memory */
};

/* Which device it is, what is registered with it now, and what was. */
int actmem_runtime_get_info(struct actmem_runtime *runtime, struct actmem_runtime_info *info);

/*
 * Stores in @nodes the nodes of the socket that the device is at, as far as the task may use
 * them, for actmem_options.nodes or those of a region. With sub-NUMA clustering a socket has
 * several nodes; the device's own is in the info. Heaps that are registered with the runtime
 * take the nearest of them first. @nodes is empty, which is the default of these options, if
 * sysfs does not say where the device is, as in many virtual machines.
 */
int actmem_runtime_nodes(struct actmem_runtime *runtime, struct actmem_nodes *nodes);

/* CUDA: mapped into the device's addresses (CU_MEMHOSTREGISTER_DEVICEMAP). */
#define ACTMEM_REGISTER_DEVICEMAP	(1u << 0)
/*
 * Devices only read it. A region by ACTMEM_OPEN_READ needs this; not every device
 * can (-EOPNOTSUPP).
 */
#define ACTMEM_REGISTER_READ_ONLY	(1u << 1)

/*
 * Maps a region, and has the runtime pin all of it for its devices. Pages that are
 * missing are allocated first, as by actmem_region_populate() and with its errors.
 * The region stays mapped, cannot be closed and gives no page back (-EBUSY) until
 * actmem_region_unregister(). Nobody may discard pages of it meanwhile.
 *
 * One runtime has a region at a time: with CUDA it is registered for all devices
 * and contexts (PORTABLE). The context is the caller's current one if that is the
 * device's, else the device's primary one, which is kept for as long as the region
 * is registered.
 *
 * If pages are on other sockets than the device's, it returns 0 and counts them, and
 * actmem_error() tells how much is where; it is "" if none are.
 *
 * -EEXIST  it is registered, or other code in this process registered a part of it
 * -EPERM  it can only be read, and ACTMEM_REGISTER_READ_ONLY was not given
 * -EOPNOTSUPP  the runtime has no such flag
 * -ENOMEM, -EINVAL, -ESTALE (the context is gone), -EIO  as the runtime reports;
 *	actmem_error() has its own name for it
 *
 * Nothing stays registered after an error, unless actmem_error() says so.
 */
int actmem_region_register(struct actmem_region *region, struct actmem_runtime *runtime,
			   uint32_t flags);

/*
 * Has the runtime let go of a region; no device may be using it. If it had done so
 * already, because its context was destroyed or reset or the process is ending, it
 * returns 0 and counts that, and actmem_error() tells.
 *
 * -ENOENT  it is not registered;  -EBUSY  a thread registers it just now
 * -EIO and others: as the runtime reports; the region stays registered
 */
int actmem_region_unregister(struct actmem_region *region);

/*
 * Has each region that a heap makes from now on registered, before a block of it is
 * handed out, and unregistered before it is given back; actmem_heap_alloc() fails as
 * actmem_region_register() does, but for own_memory. One whose registration the runtime
 * will not end is kept until actmem_runtime_close() can end it.
 *
 * Long regions are registered in pieces that CUDA needs about 5 ms for each, of 64 MiB to
 * 1 GiB, or of one block that is longer; between two of them other threads come to the
 * driver's lock. No block lies in two pieces. One that takes most of what is left of the
 * heap's limit is one piece.
 *
 * -EEXIST  the heap is registered;  -EBUSY  it has regions already
 */
int actmem_heap_register(struct actmem_heap *heap, struct actmem_runtime *runtime, uint32_t flags);

/* How a region is registered, by the runtime's own word. */
struct actmem_registration {
	size_t size;			/* set by ACTMEM_INIT */
	void *address;
	uint64_t length;
	uint64_t chunks;
	uint64_t lost_chunks;		/* that the runtime has forgotten */
	uint64_t far_bytes;
	uint32_t flags;			/* ACTMEM_REGISTER_* */
	uint32_t runtime_flags;		/* CUDA: CU_MEMHOSTREGISTER_* of its first chunk */
};

/* -ENOENT: it is not registered; -EBUSY: a thread registers or unregisters it just now. */
int actmem_region_get_registration(struct actmem_region *region,
				   struct actmem_registration *registration);

/*
 * Where devices have an address of a region that is registered with @runtime, and
 * how many bytes from there on are in one piece. @length may be NULL.
 *
 * -ENOENT  no region registered with @runtime has it;  -EOPNOTSUPP  NULL, which
 *	has no such addresses;  -ESTALE  the registration is lost
 */
int actmem_runtime_pointer(struct actmem_runtime *runtime, const void *address, uint64_t *pointer,
			   uint64_t *length);

/*
 * Around what this thread waits for an accelerator in, which the library cannot see, as
 * for an event of a stream: `actmem waits` shows it meanwhile, as `device`, with @length
 * bytes that are wanted (0: not known) and 79 bytes of @words, NULL: none. Each thread may
 * begin several. The result of begin(), NULL too, goes to end(), in any thread, before
 * actmem_close(). They take no lock, cannot fail, and do nothing in a forked child.
 */
struct actmem_device_wait *actmem_device_wait_begin(struct actmem *am, uint64_t length,
						    const char *words);
void actmem_device_wait_end(struct actmem *am, struct actmem_device_wait *wait);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* ACTMEM_RUNTIME_H */
