/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Host memory: what is registered, and what is allocated. What is to be registered
 * is faulted in as pinning does, for writing unless it is to be read only, so that
 * memory which is not there, or cannot be written to, is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "standin.h"

#define PAGE_BYTES	4096UL
#define FLAGS_REGISTER	(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |	\
			 CU_MEMHOSTREGISTER_READ_ONLY)
#define FLAGS_ALLOCATE	(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |	\
			 CU_MEMHOSTALLOC_WRITECOMBINED)

/* By how much devices' addresses are higher, where they are others. */
#define APART_BYTES	(1ULL << 46)

static struct range *ranges;
static uint64_t wrong_frees;

void memory_count(struct standin_counts *counts)
{
	const struct range *range;

	counts->wrong_frees = wrong_frees;
	for (range = ranges; range; range = range->next) {
		counts->allocated += range->allocated;
		counts->allocated_bytes += range->allocated ? range->bytes : 0;
		counts->registered += !range->allocated;
		counts->registered_bytes += range->allocated ? 0 : range->bytes;
	}
}

struct range **range_find(struct range **list, const char *address)
{
	struct range **link = list;

	while (*link && (address < (*link)->base || address >= (*link)->base + (*link)->bytes))
		link = &(*link)->next;
	return link;
}

static struct range **find(const char *address)
{
	return range_find(&ranges, address);
}

bool memory_is_pinned(const char *address, size_t bytes)
{
	const struct range *range = *find(address);

	return range && bytes <= (size_t)(range->base + range->bytes - address);
}

static bool overlaps(const char *base, size_t bytes)
{
	const struct range *range = ranges;

	while (range && (base + bytes <= range->base || range->base + range->bytes <= base))
		range = range->next;
	return range;
}

bool memory_is_partly_pinned(const char *address, size_t bytes)
{
	return overlaps(address, bytes) && !memory_is_pinned(address, bytes);
}

void range_drop(struct range **link)
{
	struct range *range = *link;

	*link = range->next;
	if (range->allocated)
		munmap(range->base, range->bytes);
	free(range);
}

void ranges_end_context(struct range **list, CUcontext context)
{
	struct range **link = list;

	while (*link) {
		if ((*link)->context == context)
			range_drop(link);
		else
			link = &(*link)->next;
	}
}

void memory_end_context(CUcontext context)
{
	ranges_end_context(&ranges, context);
}

CUresult range_add(struct range **list, const struct range *wanted)
{
	struct range *range = malloc(sizeof(*range));

	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*range = *wanted;
	range->next = *list;
	*list = range;
	return CUDA_SUCCESS;
}

static CUresult add(char *base, size_t bytes, unsigned int flags, CUcontext context,
		    bool allocated)
{
	return range_add(&ranges, &(struct range){ NULL, base, bytes, flags, context, allocated });
}

static CUresult fault_in(const char *base, size_t bytes, bool read_only)
{
	uintptr_t first = (uintptr_t)base & ~(PAGE_BYTES - 1);
	uintptr_t end = ((uintptr_t)base + bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);

	while (madvise((void *)first, end - first,
		       read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE)) {
		if (errno == ENOMEM || errno == EFAULT || errno == EINVAL)
			return CUDA_ERROR_INVALID_VALUE;
		if (errno != EINTR && errno != EAGAIN)
			return CUDA_ERROR_OPERATING_SYSTEM;
	}
	return CUDA_SUCCESS;
}

static CUresult check_register(const char *base, size_t bytes, unsigned int flags)
{
	const char *most = getenv("STANDIN_CUDA_REGISTER_MOST");

	if (!base || !bytes || (uintptr_t)base + bytes < (uintptr_t)base)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_MEMHOSTREGISTER_IOMEMORY)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (flags & ~FLAGS_REGISTER)
		return CUDA_ERROR_INVALID_VALUE;
	if (flags & CU_MEMHOSTREGISTER_READ_ONLY && setting_is("STANDIN_CUDA_READ_ONLY", "0"))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (most && bytes > strtoull(most, NULL, 10))
		return *most == '0' ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_OUT_OF_MEMORY;
	if (overlaps(base, bytes))
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	return CUDA_SUCCESS;
}

/* Under the lock, as the real one does. What the pages of this machine take is no matter then. */
static CUresult pin(const char *base, size_t bytes, bool read_only)
{
	const char *text = getenv("STANDIN_CUDA_PIN_RATE");
	unsigned long rate = text ? strtoul(text, NULL, 10) : 0;

	if (!rate)
		return fault_in(base, bytes, read_only);
	sleep_for((unsigned int)(bytes / rate));
	return CUDA_SUCCESS;
}

/* A call that a test makes slow sleeps before it does anything. Other calls go on meanwhile. */
static void delay(const char *function)
{
	unsigned int microseconds = wanted_delay(function);

	if (!microseconds)
		return;
	leave();
	sleep_for(microseconds);
	enter_quietly();
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
	CUcontext context = NULL;

	ENTER();
	delay("cuMemHostRegister_v2");
	TRY(usable_context(&context));
	TRY(check_register(p, bytesize, Flags));
	TRY(pin(p, bytesize, Flags & CU_MEMHOSTREGISTER_READ_ONLY));
	return add(p, bytesize, Flags, context, false);
}

CUresult cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
	return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult cuMemHostUnregister(void *p)
{
	struct range **link;

	ENTER();
	delay("cuMemHostUnregister");
	TRY(p ? usable_context(NULL) : CUDA_ERROR_INVALID_VALUE);
	link = find(p);
	if (!*link || (*link)->base != p || (*link)->allocated)
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	streams_wait_executing();
	link = find(p);
	if (*link)
		range_drop(link);
	return CUDA_SUCCESS;
}

CUdeviceptr device_address(const char *address)
{
	return (CUdeviceptr)(uintptr_t)address +
	       (setting_is("STANDIN_CUDA_ADDRESSES", "apart") ? APART_BYTES : 0);
}

/* Allocated memory is for all contexts, and mapped; of registered memory flags say it. */
static bool is_mapped_for(const struct range *range, CUcontext context)
{
	return range->allocated ||
	       (range->flags & CU_MEMHOSTREGISTER_DEVICEMAP &&
		(range->context == context || range->flags & CU_MEMHOSTREGISTER_PORTABLE));
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
	CUcontext context = NULL;
	struct range *range;

	ENTER();
	TRY(pdptr && p && !Flags ? usable_context(&context) : CUDA_ERROR_INVALID_VALUE);
	range = *find(p);
	if (!range || !is_mapped_for(range, context))
		return CUDA_ERROR_INVALID_VALUE;
	*pdptr = device_address(p);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr_v1 *pdptr, void *p, unsigned int Flags)
{
	/* Addresses of 32 bits, of which host memory has none. */
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
	struct range *range;

	ENTER();
	TRY(pFlags && p ? usable_context(NULL) : CUDA_ERROR_INVALID_VALUE);
	range = *find(p);
	if (!range)
		return CUDA_ERROR_INVALID_VALUE;
	*pFlags = range->flags;
	return CUDA_SUCCESS;
}

/* No current context is asked for, but where the answer is for that one. */
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	char *address = (char *)(uintptr_t)ptr;
	struct range *range;

	ENTER();
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ? usable_context(NULL) :
		 CUDA_SUCCESS);
	if (device_memory_context(ptr))
		return device_attribute(data, attribute, ptr);
	range = *find(address);
	if (!range)
		return CUDA_ERROR_INVALID_VALUE;
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = range->context;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = CU_MEMORYTYPE_HOST;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = device_address(address);
		break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = address;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = range->context->device;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static CUresult allocate(void **pp, size_t bytes, unsigned int flags, CUcontext context)
{
	size_t length = (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
	void *memory;
	CUresult result;

	if (!pp || !bytes || length < bytes || flags & ~FLAGS_ALLOCATE)
		return CUDA_ERROR_INVALID_VALUE;
	/* NVIDIA's is a shared mapping, too: "/dev/zero (deleted)" in /proc/PID/maps. */
	memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = add(memory, length, flags, context, true);
	if (result)
		munmap(memory, length);
	else
		*pp = memory;
	return result;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	CUcontext context = NULL;

	ENTER();
	TRY(usable_context(&context));
	return allocate(pp, bytesize, Flags, context);
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	CUcontext context = NULL;

	ENTER();
	TRY(usable_context(&context));
	return allocate(pp, bytesize, 0, context);
}

CUresult cuMemAllocHost(void **pp, unsigned int bytesize)
{
	return cuMemAllocHost_v2(pp, bytesize);
}

CUresult cuMemFreeHost(void *p)
{
	struct range **link;

	ENTER();
	TRY(usable_context(NULL));
	link = find(p);
	if (!*link || (*link)->base != p || !(*link)->allocated) {
		wrong_frees++;
		return CUDA_ERROR_INVALID_VALUE;
	}
	streams_wait_executing();
	link = find(p);
	if (*link)
		range_drop(link);
	return CUDA_SUCCESS;
}
