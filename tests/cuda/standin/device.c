/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory of devices: the host's, behind addresses that the host cannot reach, so that
 * who takes one for a pointer is killed.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "standin.h"

#define DEVICE_ADDRESSES	(1ULL << 47)	/* above all of the host's */
#define ALIGN_BYTES		512UL
#define MEMORY_BYTES		(1ULL << 30)

/* Those that are not allocated are mapped by cuMemMap(): virtual.c has the memory. */
static struct range *allocations;

void device_count_memory(struct standin_counts *counts)
{
	const struct range *allocation;

	for (allocation = allocations; allocation; allocation = allocation->next) {
		counts->device_allocations++;
		counts->device_bytes += allocation->bytes;
	}
}

static struct range **find(CUdeviceptr address)
{
	return range_find(&allocations, device_shadow(address));
}

char *device_memory(CUdeviceptr address, size_t bytes)
{
	const struct range *allocation = *find(address);
	char *shadow = (char *)(uintptr_t)(address - DEVICE_ADDRESSES);

	if (!allocation || bytes > (size_t)(allocation->base + allocation->bytes - shadow))
		return NULL;
	return shadow;
}

bool device_has_shadow(const char *shadow)
{
	return *range_find(&allocations, shadow);
}

CUcontext device_memory_context(CUdeviceptr address)
{
	const struct range *allocation = *find(address);

	return allocation ? allocation->context : NULL;
}

CUresult device_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
	CUcontext context = device_memory_context(address);

	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)data = context;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned int *)data = CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(CUdeviceptr *)data = address;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = context->device;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

void device_end_context(CUcontext context)
{
	ranges_end_context(&allocations, context);
}

CUdeviceptr device_of_shadow(const char *shadow)
{
	return (CUdeviceptr)(uintptr_t)shadow + DEVICE_ADDRESSES;
}

char *device_shadow(CUdeviceptr address)
{
	return address < DEVICE_ADDRESSES ? NULL : (char *)(uintptr_t)(address - DEVICE_ADDRESSES);
}

CUresult device_map(char *shadow, size_t bytes, CUcontext context)
{
	return range_add(&allocations, &(struct range){ .base = shadow, .bytes = bytes,
							.context = context });
}

void device_unmap(const char *shadow)
{
	struct range **link = range_find(&allocations, shadow);

	/* It has gone if its context has ended, and may go while this waits. */
	if (*link)
		streams_wait_idle((*link)->context, false);
	link = range_find(&allocations, shadow);
	if (*link)
		range_drop(link);
}

static size_t total_bytes(void)
{
	const char *text = getenv("STANDIN_CUDA_MEMORY");

	return text ? strtoull(text, NULL, 10) : MEMORY_BYTES;
}

size_t device_free_bytes(CUdevice device)
{
	const struct range *allocation;
	size_t bytes = total_bytes();

	for (allocation = allocations; allocation; allocation = allocation->next)
		if (allocation->context->device == device)
			bytes -= allocation->bytes;
	return bytes;
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, CUcontext context)
{
	size_t length = (bytes + ALIGN_BYTES - 1) & ~(ALIGN_BYTES - 1);
	struct range wanted = { .bytes = length, .context = context, .allocated = true };
	CUresult result;

	if (length < bytes || length > device_free_bytes(context->device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	wanted.base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (wanted.base == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	result = range_add(&allocations, &wanted);
	if (result)
		munmap(wanted.base, length);
	else
		*pointer = device_of_shadow(wanted.base);
	return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	CUcontext context = NULL;

	ENTER();
	TRY(dptr && bytesize ? usable_context(&context) : CUDA_ERROR_INVALID_VALUE);
	return allocate(dptr, bytesize, context);
}

/* It waits for what the device has to do. */
CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	CUresult result;
	struct range **link;

	ENTER();
	result = usable_context(NULL);
	if (result || !dptr)
		return result;
	link = find(dptr);
	if (!*link || device_memory(dptr, 0) != (*link)->base || !(*link)->allocated)
		return CUDA_ERROR_INVALID_VALUE;
	streams_wait_idle((*link)->context, false);
	/* Another thread may have freed it meanwhile. */
	link = find(dptr);
	if (*link)
		range_drop(link);
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	CUcontext context = NULL;

	ENTER();
	TRY(free && total ? usable_context(&context) : CUDA_ERROR_INVALID_VALUE);
	*free = device_free_bytes(context->device);
	*total = total_bytes();
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	ENTER();
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = total_bytes();
	return CUDA_SUCCESS;
}
