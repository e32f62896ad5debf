/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Runtimes of libactmem. A runtime registers host memory with an accelerator, so that the
 * accelerator's copies run at full speed. A runtime also reports the NUMA node of the accelerator.
 *
 * actmem_runtime_open() loads the accelerator's library, which then stays loaded. libactmem is not
 * linked with this library.
 *
 * All calls are thread-safe, except those that close a runtime or unregister a region. During such
 * a call, no other thread may use the runtime that is being closed or the region that is being
 * unregistered. No call changes which CUDA context is current.
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
	uint64_t chunk_bytes;		/* maximum length of a chunk; 0: 64 GiB */
	/*
	 * May be NULL. If this function is set and the runtime refuses to register a heap's region,
	 * the heap uses memory that the runtime allocates (the runtime's own memory). When the heap
	 * allocates such memory, the library calls this function with the reason in @why. When the
	 * heap frees such memory, the library calls the function with NULL as @why. The calling
	 * thread holds locks of the heap, so the function must not use the heap.
	 */
	void (*own_memory)(uint64_t bytes, const char *why);
};

/*
 * Opens a runtime. If @options is NULL, the defaults apply. The runtime registers a region in
 * chunks of at most chunk_bytes. chunk_bytes must be a multiple of 2 MiB, and at most 64 GiB,
 * because accelerators' drivers refuse longer chunks. A block of a heap lies within one chunk, so
 * chunk_bytes also limits the length of blocks.
 *
 * The runtime's own memory (see own_memory) comes from CUDA's cuMemHostAlloc(). Such memory has no
 * descriptor and no name, and is on the node that CUDA's driver chooses. Such memory cannot be
 * attached to a queue. If the program resets the device's primary context, such memory is lost.
 * Heaps with a name never use such memory.
 *
 * If libcuda.so.1 does not exist or CUDA finds no device, AUTO opens the NULL runtime, but only if
 * the option device is 0; actmem_runtime_describe() says why. If CUDA's driver is installed but
 * does not work, the call fails.
 *
 * -ENOENT  there is no libcuda.so.1, or the libcuda.so.1 is the toolkit's stub, or the program is
 *	statically linked
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
	enum actmem_runtime_kind kind;	/* kind of the opened runtime */
	int32_t device;			/* CUDA: ordinal of the device */
	int32_t node;			/* NUMA node of the device; -1: not known */
	uint32_t reserved;
	uint64_t chunk_bytes;
	uint64_t regions;		/* regions that are registered now */
	uint64_t chunks;		/* chunks in which the runtime registered the regions */
	uint64_t bytes;			/* registered bytes, including own_bytes */
	uint64_t far_bytes;		/* registered bytes on sockets other than the device's */
	uint64_t regions_total;
	uint64_t far_total;		/* registered regions with pages on other sockets */
	uint64_t failures_total;	/* registrations that the runtime refused */
	uint64_t lost_total;		/* regions whose registration the runtime dropped */
	char text[ACTMEM_DEVICE_TEXT_MAX];	/* name and bus address of the device */
	uint64_t own_bytes;		/* registered bytes that the runtime allocated itself */
};

/* Returns the device, and counters of current and past registrations. */
int actmem_runtime_get_info(struct actmem_runtime *runtime, struct actmem_runtime_info *info);

/*
 * Finds the nodes of the device's socket that have memory and that the task's cpuset allows. The
 * call stores these nodes in *@nodes, which the caller may pass to actmem_open() or
 * actmem_region_create(). With sub-NUMA clustering a socket has several nodes.
 * actmem_runtime_get_info() returns the device's own node. A heap that is registered with the
 * runtime uses the nearest node first, if the heap's nodes include the device's own node.
 *
 * If the task may use no node of the socket, *@nodes is the device's own node. A call that creates
 * a region there returns -EPERM or -ENODEV, and actmem_error() names the node and the nodes that
 * the task may use. *@nodes is empty if sysfs does not report the node of the device, as in many
 * virtual machines.
 */
int actmem_runtime_nodes(struct actmem_runtime *runtime, struct actmem_nodes *nodes);

/* CUDA: map the region into the device's address space (CU_MEMHOSTREGISTER_DEVICEMAP). */
#define ACTMEM_REGISTER_DEVICEMAP	(1u << 0)
/*
 * Devices only read the region. A region that was opened with ACTMEM_OPEN_READ needs this flag. If
 * a device does not support the flag, actmem_region_register() returns -EOPNOTSUPP.
 */
#define ACTMEM_REGISTER_READ_ONLY	(1u << 1)

/*
 * Maps a region and registers it with a runtime. The runtime pins the whole region for its devices.
 * The call first allocates missing pages, and can return the errors of actmem_region_populate().
 * Until actmem_region_unregister(), the region stays mapped, and closing it or discarding its pages
 * returns -EBUSY. While the region is registered, other processes must not discard its pages.
 * @flags: ACTMEM_REGISTER_*.
 *
 * A region is registered with one runtime at a time. All devices and contexts of CUDA can use the
 * registration (CU_MEMHOSTREGISTER_PORTABLE). The registration belongs to the caller's current
 * context if that is a context of the runtime's device. Otherwise the registration belongs to the
 * device's primary context, which the library retains until the region is unregistered.
 *
 * If pages are on sockets other than the device's, the call returns 0 and counts their bytes in
 * far_bytes, and actmem_error() says how many bytes are not on that socket. If all pages are on the
 * device's socket, actmem_error() is "".
 *
 * -EEXIST  the region is already registered, or other code in this process registered a part of the
 *	region
 * -EPERM  the region is read-only, and ACTMEM_REGISTER_READ_ONLY is not set
 * -EOPNOTSUPP  the runtime does not support a flag
 * -ENOMEM, -EINVAL, -ESTALE (the context was destroyed), -EIO  errors of the runtime;
 *	actmem_error() contains the runtime's name for the error
 *
 * After an error, no part of the region is registered, unless actmem_error() says that a part could
 * not be unregistered.
 */
int actmem_region_register(struct actmem_region *region, struct actmem_runtime *runtime,
			   uint32_t flags);

/*
 * Unregisters a region. No device may use the region during the call. If the CUDA context was
 * destroyed or reset, or if the process is exiting, the runtime may already have dropped the
 * registration. The call then returns 0 and counts the region in lost_total, and actmem_error()
 * reports the loss.
 *
 * -ENOENT  the region is not registered
 * -EBUSY  another thread is registering or unregistering it
 * -EIO and others  errors of the runtime; the region stays registered
 */
int actmem_region_unregister(struct actmem_region *region);

/*
 * Registers each region that a heap creates from now on. The heap registers a region before it
 * allocates blocks there, and unregisters the region before it closes the region. After this call,
 * actmem_heap_alloc() can also return the errors of actmem_region_register(). If the runtime
 * refuses to register a region and own_memory is set, the heap uses the runtime's own memory
 * instead of the region. If the runtime fails to unregister a region, the region stays open.
 * actmem_runtime_close() first tries again to unregister and close such regions, and returns -EBUSY
 * only if regions or heaps are still registered after that.
 *
 * The library registers long regions in chunks of 64 to 256 MiB, so that CUDA registers each chunk
 * in about 5 ms. Between two chunks, other threads can get the lock of CUDA's driver. No block lies
 * in two chunks: if a block is longer than such a chunk, the library registers one chunk that is as
 * long as the block. If a region is longer than half of the memory that the heap's limit still
 * permits, a long block may fit only into this region. The chunks of this region are then as long
 * as the runtime accepts (at most chunk_bytes), so usually the region is one chunk.
 *
 * -EEXIST  the heap is already registered
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
	uint32_t runtime_flags;		/* CUDA: CU_MEMHOSTREGISTER_* of the first chunk */
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
 * is not NULL, the call stores in *@length how many bytes, beginning with @address, have contiguous
 * device addresses.
 *
 * -ENOENT  no region that is registered with @runtime contains the address
 * -EOPNOTSUPP  the runtime is ACTMEM_RUNTIME_NULL
 * -ESTALE  the runtime has dropped the registration
 */
int actmem_runtime_pointer(struct actmem_runtime *runtime, const void *address, uint64_t *pointer,
			   uint64_t *length);

/*
 * Report that this thread begins or ends a wait for an accelerator. Use these calls for waits
 * outside of the library, such as for an event of a stream. `actmem waits` shows the wait as
 * `device`, with the number of bytes @length (0: not known) and the first 79 bytes of the text
 * @words. @words may be NULL. A thread may begin several waits. The result of
 * actmem_device_wait_begin(), even NULL, must be passed to actmem_device_wait_end() before
 * actmem_close(). Any thread may call actmem_device_wait_end(). These two calls take no lock and
 * cannot fail. In a forked child, the calls do nothing.
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
