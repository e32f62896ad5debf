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

struct allocation {
	struct allocation *next;
	CUcontext context;
	char *shadow;
	size_t bytes;
	bool is_mapped;			/* by cuMemMap(): virtual.c has the memory */
};

static struct allocation *allocations;

void device_count_memory(struct standin_counts *counts)
{
	const struct allocation *allocation;

	for (allocation = allocations; allocation; allocation = allocation->next) {
		counts->device_allocations++;
		counts->device_bytes += allocation->bytes;
	}
}

static struct allocation **find(CUdeviceptr address)
{
	char *shadow = (char *)(uintptr_t)(address - DEVICE_ADDRESSES);
	struct allocation **link = &allocations;

	if (address < DEVICE_ADDRESSES)
		shadow = NULL;
	while (*link && (shadow < (*link)->shadow || shadow >= (*link)->shadow + (*link)->bytes))
		link = &(*link)->next;
	return link;
}

char *device_memory(CUdeviceptr address, size_t bytes)
{
	const struct allocation *allocation = *find(address);
	char *shadow = (char *)(uintptr_t)(address - DEVICE_ADDRESSES);

	if (!allocation || bytes > (size_t)(allocation->shadow + allocation->bytes - shadow))
		return NULL;
	return shadow;
}

bool device_has_shadow(const char *shadow)
{
	return *find((CUdeviceptr)(uintptr_t)shadow + DEVICE_ADDRESSES);
}

CUcontext device_memory_context(CUdeviceptr address)
{
	const struct allocation *allocation = *find(address);

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

static void drop(struct allocation **link)
{
	struct allocation *allocation = *link;

	*link = allocation->next;
	if (!allocation->is_mapped)
		munmap(allocation->shadow, allocation->bytes);
	free(allocation);
}

void device_end_context(CUcontext context)
{
	struct allocation **link = &allocations;

	while (*link) {
		if ((*link)->context == context)
			drop(link);
		else
			link = &(*link)->next;
	}
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
	struct allocation *allocation = malloc(sizeof(*allocation));

	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*allocation = (struct allocation){ allocations, context, shadow, bytes, true };
	allocations = allocation;
	return CUDA_SUCCESS;
}

void device_unmap(const char *shadow)
{
	struct allocation **link = find(device_of_shadow(shadow));

	/* It has gone if its context has ended, and may go while this waits. */
	if (*link)
		streams_wait_idle((*link)->context, false);
	link = find(device_of_shadow(shadow));
	if (*link)
		drop(link);
}

static size_t total_bytes(void)
{
	const char *text = getenv("STANDIN_CUDA_MEMORY");

	return text ? strtoull(text, NULL, 10) : MEMORY_BYTES;
}

size_t device_free_bytes(CUdevice device)
{
	const struct allocation *allocation;
	size_t bytes = total_bytes();

	for (allocation = allocations; allocation; allocation = allocation->next)
		if (allocation->context->device == device)
			bytes -= allocation->bytes;
	return bytes;
}

static CUresult allocate(CUdeviceptr *pointer, size_t bytes, CUcontext context)
{
	size_t length = (bytes + ALIGN_BYTES - 1) & ~(ALIGN_BYTES - 1);
	struct allocation *allocation;
	void *shadow;

	if (length < bytes || length > device_free_bytes(context->device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	allocation = malloc(sizeof(*allocation));
	if (!allocation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	shadow = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (shadow == MAP_FAILED) {
		free(allocation);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*allocation = (struct allocation){ allocations, context, shadow, length, false };
	allocations = allocation;
	*pointer = (CUdeviceptr)(uintptr_t)shadow + DEVICE_ADDRESSES;
	return CUDA_SUCCESS;
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
	struct allocation **link;

	ENTER();
	result = usable_context(NULL);
	if (result || !dptr)
		return result;
	link = find(dptr);
	if (!*link || device_memory(dptr, 0) != (*link)->shadow || (*link)->is_mapped)
		return CUDA_ERROR_INVALID_VALUE;
	streams_wait_idle((*link)->context, false);
	/* Another thread may have freed it meanwhile. */
	link = find(dptr);
	if (*link)
		drop(link);
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
