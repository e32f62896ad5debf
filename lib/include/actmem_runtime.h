/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Runtimes of libactmem. A runtime registers host memory with an accelerator, so that the
 * accelerator's copies run at full speed. It also reports the NUMA node of the accelerator.
 *
 * actmem_runtime_open() loads the accelerator's library, which then stays loaded. libactmem is not
 * linked with this library.
 *
 * All calls are thread-safe, except those that close a runtime or unregister a region. During such
 * a call, no other thread may use that object. No call changes which CUDA context is current.
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

struct actmem_runtime;		/* registers memory with an accelerator */
struct actmem_device_wait;	/* a wait that `actmem waits` shows */

enum actmem_runtime_kind {
	ACTMEM_RUNTIME_AUTO,	/* CUDA if it is available, otherwise the NULL runtime */
	ACTMEM_RUNTIME_CUDA,	/* the driver API of libcuda.so.1 */
	ACTMEM_RUNTIME_NULL,	/* no accelerator: counts regions, but registers none */
};

#define ACTMEM_DEVICE_TEXT_MAX	320

struct actmem_runtime_options {
	size_t size;			/* set by ACTMEM_INIT */
	enum actmem_runtime_kind kind;
	int32_t device;			/* CUDA: ordinal among CUDA_VISIBLE_DEVICES */
	uint64_t chunk_bytes;		/* maximum bytes that one call registers; 0: 64 GiB */
	/*
	 * If this function is set, a heap may use memory that the runtime allocates (the runtime's
	 * own memory) when the runtime refuses to register one of the heap's regions. The library
	 * calls this function with @why when the heap allocates such memory, and with @why NULL
	 * when the heap frees it. The calling thread holds locks of the heap, so the function must
	 * not use the heap.
	 */
	void (*own_memory)(uint64_t bytes, const char *why);
};

/*
 * Opens a runtime. @options NULL: defaults. chunk_bytes must be a multiple of 2 MiB, and at most
 * 64 GiB, because drivers refuse more. No block of a heap crosses a multiple of chunk_bytes, so
 * chunk_bytes limits the length of blocks.
 *
 * The runtime's own memory (see own_memory) comes from CUDA's cuMemHostAlloc(). It has no
 * descriptor and no name, and is on the node that CUDA's driver chooses. It cannot be attached to a
 * queue. It is lost if the program resets the device's primary context. Heaps with a name never use
 * such memory.
 *
 * AUTO opens the NULL runtime if the option device is 0 and there is no libcuda.so.1 or no device;
 * actmem_runtime_describe() says why. If CUDA's driver is installed but does not work, the call
 * fails.
 *
 * -ENOENT  there is no libcuda.so.1, or it is the toolkit's stub; or the program is static
 * -ENODEV  CUDA finds no device, or not the requested one
 * -EOWNERDEAD  the parent process used CUDA before fork(): CUDA does not work in the child
 * -EOPNOTSUPP  libcuda.so.1 is too old
 * -EINVAL  a wrong option
 * -EIO  any other error of the runtime
 */
int actmem_runtime_open(struct actmem *am, const struct actmem_runtime_options *options,
			struct actmem_runtime **runtime);

/*
 * Closes a runtime. No other thread may use @runtime during the call or later.
 *
 * -EBUSY  regions or heaps are registered with the runtime; nothing is closed
 */
int actmem_runtime_close(struct actmem_runtime *runtime);

/*
 * Returns a string that describes the runtime, its device, the device's node, and why this runtime
 * was chosen. An example is "null: libcuda.so.1 cannot be loaded (...)". The string is valid until
 * the runtime is closed.
 */
const char *actmem_runtime_describe(const struct actmem_runtime *runtime);

struct actmem_runtime_info {
	size_t size;			/* set by ACTMEM_INIT */
	enum actmem_runtime_kind kind;	/* in use */
	int32_t device;			/* CUDA: ordinal of the device */
	int32_t node;			/* NUMA node of the device; -1: not known */
	uint32_t reserved;
	uint64_t chunk_bytes;
	uint64_t regions;		/* regions that are registered now */
	uint64_t chunks;		/* pieces in which the runtime registered the regions */
	uint64_t bytes;
	uint64_t far_bytes;		/* part of @bytes: on sockets other than the device's */
	uint64_t regions_total;
	uint64_t far_total;		/* regions that had far_bytes */
	uint64_t failures_total;	/* registrations that the runtime refused */
	uint64_t lost_total;		/* regions whose registration the runtime dropped */
	char text[ACTMEM_DEVICE_TEXT_MAX];	/* name and bus address of the device */
	uint64_t own_bytes;		/* part of @bytes: the runtime's own memory */
};

/* Returns the device, and counters of current and past registrations. */
int actmem_runtime_get_info(struct actmem_runtime *runtime, struct actmem_runtime_info *info);

/*
 * Finds the device's node, and those other nodes of its socket that the task may use. The caller
 * may pass these nodes to actmem_open() or actmem_region_create(). With sub-NUMA clustering a
 * socket has several nodes. actmem_runtime_get_info() returns the device's own node, and heaps that
 * are registered with the runtime use the nearest node first. @nodes is empty if sysfs does not
 * report the node of the device, as in many virtual machines.
 */
int actmem_runtime_nodes(struct actmem_runtime *runtime, struct actmem_nodes *nodes);

/* CUDA: map the region into the device's address space (CU_MEMHOSTREGISTER_DEVICEMAP). */
#define ACTMEM_REGISTER_DEVICEMAP	(1u << 0)
/*
 * Devices only read the region. A region that was opened with ACTMEM_OPEN_READ needs this flag,
 * which not every device supports (-EOPNOTSUPP).
 */
#define ACTMEM_REGISTER_READ_ONLY	(1u << 1)

/*
 * Maps a region and registers it with a runtime. The runtime pins the whole region for its devices.
 * The call first allocates missing pages, and can return the errors of actmem_region_populate().
 * Until actmem_region_unregister(), the region stays mapped, and closing it or discarding its pages
 * returns -EBUSY. Other processes must not discard its pages meanwhile. @flags: ACTMEM_REGISTER_*.
 *
 * A region is registered with one runtime at a time. All devices and contexts of CUDA can use the
 * registration (PORTABLE). It belongs to the caller's current context if that is a context of the
 * runtime's device. Otherwise it belongs to the device's primary context, which the library retains
 * until the region is unregistered.
 *
 * If pages are on sockets other than the device's, the call returns 0 and counts these pages, and
 * actmem_error() says how much is on which node. If all pages are on the device's socket,
 * actmem_error() is "".
 *
 * -EEXIST  the region is registered, or other code in this process registered a part of it
 * -EPERM  the region is read-only, and ACTMEM_REGISTER_READ_ONLY is not set
 * -EOPNOTSUPP  the runtime does not support a flag
 * -ENOMEM, -EINVAL, -ESTALE (the context was destroyed), -EIO  errors of the runtime;
 *	actmem_error() has the runtime's name for the error
 *
 * After an error nothing stays registered, unless actmem_error() says that something does.
 */
int actmem_region_register(struct actmem_region *region, struct actmem_runtime *runtime,
			   uint32_t flags);

/*
 * Unregisters a region. No device may use the region meanwhile. The runtime may already have
 * dropped the registration, because its context was destroyed or reset, or the process is exiting.
 * In this case the call returns 0 and counts the region as lost, and actmem_error() reports the
 * loss.
 *
 * -ENOENT  the region is not registered
 * -EBUSY  another thread is registering or unregistering it
 * -EIO and others  errors of the runtime; the region stays registered
 */
int actmem_region_unregister(struct actmem_region *region);

/*
 * Registers each region that a heap creates from now on. The heap registers a region before it
 * allocates blocks in it, and unregisters the region before closing it. After this call,
 * actmem_heap_alloc() can also return the errors of actmem_region_register(). If the runtime
 * refuses to register a region and own_memory is set, the heap uses the runtime's own memory
 * instead of the region. If the runtime fails to unregister a region, the region stays open.
 * actmem_runtime_close() tries again to unregister and close such regions before it checks for
 * other regions.
 *
 * The library registers long regions in pieces of 64 to 256 MiB, so that CUDA registers each piece
 * in about 5 ms. Between two pieces, other threads can get the lock of CUDA's driver. No block lies
 * in two pieces: a longer block is registered as one piece. If a region is longer than half of the
 * memory that the heap's limit still permits, the region is registered as one piece.
 *
 * -EEXIST  the heap is registered
 * -EBUSY  the heap has regions
 */
int actmem_heap_register(struct actmem_heap *heap, struct actmem_runtime *runtime, uint32_t flags);

/* How a region is registered, as the runtime reports it. */
struct actmem_registration {
	size_t size;			/* set by ACTMEM_INIT */
	void *address;
	uint64_t length;
	uint64_t chunks;
	uint64_t lost_chunks;		/* chunks whose registration the runtime dropped */
	uint64_t far_bytes;
	uint32_t flags;			/* ACTMEM_REGISTER_* */
	uint32_t runtime_flags;		/* CUDA: CU_MEMHOSTREGISTER_* of its first chunk */
};

/*
 * Returns how a region is registered.
 *
 * -ENOENT  the region is not registered
 * -EBUSY  another thread is registering or unregistering it
 */
int actmem_region_get_registration(struct actmem_region *region,
				   struct actmem_registration *registration);

/*
 * Translates a host address in a registered region to the address that the device uses. If @length
 * is not NULL, the call stores in *@length for how many bytes, starting at @address, the device's
 * addresses are contiguous.
 *
 * -ENOENT  no region that is registered with @runtime contains the address
 * -EOPNOTSUPP  the runtime is ACTMEM_RUNTIME_NULL
 * -ESTALE  the runtime has dropped the registration
 */
int actmem_runtime_pointer(struct actmem_runtime *runtime, const void *address, uint64_t *pointer,
			   uint64_t *length);

/*
 * Mark the time in which this thread waits for an accelerator. Use these calls for waits outside of
 * the library, such as for an event of a stream. `actmem waits` shows the wait as `device`, with
 * @length bytes (0: not known) and the first 79 bytes of @words (may be NULL). A thread may begin
 * several waits. The result of begin(), even NULL, must be passed to end() before actmem_close();
 * any thread may call end(). The calls take no lock, cannot fail, and do nothing in a forked child.
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
