/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * mmap and what belongs to it, in front of the program's own: maps.h and mapped.h have
 * some, if the environment has asked for that, and everything else goes on.
 *
 * The C library's own mappings, as of large blocks of malloc, do not come here.
 */
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>

#include "preload/cuda/mapped.h"
#include "preload/cuda/mapping.h"
#include "preload/cuda/maps.h"
#include "preload/symbols.h"

#define EXPORT	__attribute__((visibility("default")))

/* NULL until it is found, and where there is none: then it is the kernel's. */
static void *(*next_mmap)(void *address, size_t bytes, int protection, int flags, int fd,
			  off_t offset);
static int (*next_munmap)(void *address, size_t bytes);
static void *(*next_mremap)(void *address, size_t bytes, size_t wanted, int flags, ...);
static int (*next_madvise)(void *address, size_t bytes, int advice);
static int (*next_mprotect)(void *address, size_t bytes, int protection);

void mapping_begin(void)
{
	*(void **)&next_mmap = next_dlsym(RTLD_NEXT, "mmap");
	*(void **)&next_munmap = next_dlsym(RTLD_NEXT, "munmap");
	*(void **)&next_mremap = next_dlsym(RTLD_NEXT, "mremap");
	*(void **)&next_madvise = next_dlsym(RTLD_NEXT, "madvise");
	*(void **)&next_mprotect = next_dlsym(RTLD_NEXT, "mprotect");
}

static void *map(const struct maps_request *request, int fd, off_t offset)
{
	void *mapped = cuda_maps_take(request);

	if (mapped)
		return mapped;
	mapped = next_mmap ? next_mmap(request->address, request->bytes, request->protection,
				       request->flags, fd, offset) :
		 kernel_mmap(request->address, request->bytes, request->protection,
			     request->flags, fd, offset);
	if (request->flags & MAP_FIXED && mapped != MAP_FAILED &&
	    mapped_may_have(mapped, request->bytes))
		mapped_forget(mapped, request->bytes);
	return mapped;
}

EXPORT void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	const struct maps_request request = { address, bytes, protection, flags,
					     __builtin_return_address(0) };

	return map(&request, fd, offset);
}

EXPORT void *mmap64(void *address, size_t bytes, int protection, int flags, int fd,
		    off64_t offset)
{
	const struct maps_request request = { address, bytes, protection, flags,
					     __builtin_return_address(0) };

	return map(&request, fd, offset);
}

EXPORT int munmap(void *address, size_t bytes)
{
	if (mapped_may_have(address, bytes))
		return mapped_unmap(address, bytes);
	return next_munmap ? next_munmap(address, bytes) : kernel_munmap(address, bytes);
}

EXPORT int madvise(void *address, size_t bytes, int advice)
{
	if (mapped_may_have(address, bytes))
		return mapped_advise(address, bytes, advice);
	return next_madvise ? next_madvise(address, bytes, advice) :
	       kernel_madvise(address, bytes, advice);
}

EXPORT int mprotect(void *address, size_t bytes, int protection)
{
	if (mapped_may_have(address, bytes))
		return mapped_protect(address, bytes, protection);
	return next_mprotect ? next_mprotect(address, bytes, protection) :
	       kernel_mprotect(address, bytes, protection);
}

EXPORT void *mremap(void *address, size_t bytes, size_t wanted, int flags, ...)
{
	void *fixed = NULL, *moved;
	va_list rest;

	va_start(rest, flags);
	if (flags & (MREMAP_FIXED | MREMAP_DONTUNMAP))
		fixed = va_arg(rest, void *);
	va_end(rest);
	if (mapped_kind(address, bytes) != MAPPED_NOT)
		return cuda_maps_move(address, bytes, wanted, flags);
	moved = next_mremap ? next_mremap(address, bytes, wanted, flags, fixed) :
		(void *)syscall(SYS_mremap, address, bytes, wanted, flags, fixed);
	if (flags & MREMAP_FIXED && moved != MAP_FAILED && mapped_may_have(moved, wanted))
		mapped_forget(moved, wanted);
	return moved;
}
