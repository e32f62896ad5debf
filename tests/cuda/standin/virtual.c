/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Virtual memory of devices: addresses that are reserved, memory that is created, and the
 * one mapped at the other. A reservation is a mapping of nothing, memory a memfd.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/room.h"
#include "standin.h"

#define GRANULARITY_BYTES	(2UL << 20)

/* A file that is mapped stays until it is no more, also if it is released before. */
struct created {
	struct created *next;
	size_t bytes;
	CUdevice device;
	int fd;
	unsigned int uses;		/* its handle, and each mapping */
	bool released;
};

struct reserved {
	struct reserved *next;
	char *shadow;
	size_t bytes;
};

struct mapped {
	struct mapped *next;
	char *shadow;
	size_t bytes;
	struct created *created;
	bool accessible;
};

static struct created *created_list;
static struct reserved *reserved_list;
static struct mapped *mapped_list;

void virtual_count(struct standin_counts *counts)
{
	const struct created *created;
	const struct reserved *reserved;

	for (created = created_list; created; created = created->next)
		counts->device_allocations++;
	for (reserved = reserved_list; reserved; reserved = reserved->next)
		counts->device_allocations++;
}

static bool is_whole(size_t bytes)
{
	return bytes && !(bytes % GRANULARITY_BYTES);
}

static CUresult check(const CUmemAllocationProp *prop)
{
	if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !is_device(prop->location.id))
		return CUDA_ERROR_INVALID_DEVICE;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	ENTER();
	TRY(granularity ? check(prop) : CUDA_ERROR_INVALID_VALUE);
	*granularity = GRANULARITY_BYTES;
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct created *created;

	ENTER();
	TRY(handle && is_whole(size) && !flags ? check(prop) : CUDA_ERROR_INVALID_VALUE);
	created = calloc(1, sizeof(*created));
	if (!created || size > device_free_bytes(prop->location.id)) {
		free(created);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	created->fd = memfd_create("standin", MFD_CLOEXEC);
	if (created->fd < 0 || ftruncate(created->fd, (off_t)size)) {
		if (created->fd >= 0)
			close(created->fd);
		free(created);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	created->bytes = size;
	created->device = prop->location.id;
	created->uses = 1;
	created->next = created_list;
	created_list = created;
	*handle = (CUmemGenericAllocationHandle)(uintptr_t)created;
	return CUDA_SUCCESS;
}

static struct created *find_created(CUmemGenericAllocationHandle handle)
{
	struct created *created = created_list;

	while (created && (CUmemGenericAllocationHandle)(uintptr_t)created != handle)
		created = created->next;
	return created && !created->released ? created : NULL;
}

static void let_go(struct created *created)
{
	struct created **link = &created_list;

	if (--created->uses)
		return;
	while (*link != created)
		link = &(*link)->next;
	*link = created->next;
	close(created->fd);
	free(created);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct created *created;

	ENTER();
	created = find_created(handle);
	if (!created)
		return CUDA_ERROR_INVALID_VALUE;
	created->released = true;
	let_go(created);
	return CUDA_SUCCESS;
}

/* Nothing is there until it is mapped. */
static bool clear(char *shadow, size_t bytes)
{
	return mmap(shadow, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED |
		    MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags)
{
	struct reserved *reserved;
	size_t align;
	char *room;

	ENTER();
	align = alignment > GRANULARITY_BYTES ? alignment : GRANULARITY_BYTES;
	if (!ptr || !is_whole(size) || align & (align - 1) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	reserved = malloc(sizeof(*reserved));
	room = room_map(size, align, PROT_NONE, MAP_NORESERVE);
	if (!reserved || room == MAP_FAILED) {
		if (room != MAP_FAILED)
			munmap(room, size);
		free(reserved);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*reserved = (struct reserved){ reserved_list, room, size };
	reserved_list = reserved;
	*ptr = device_of_shadow(reserved->shadow);
	return CUDA_SUCCESS;
}

static struct mapped **find_mapped(const char *shadow)
{
	struct mapped **link = &mapped_list;

	while (*link && (shadow < (*link)->shadow || shadow >= (*link)->shadow + (*link)->bytes))
		link = &(*link)->next;
	return link;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	struct reserved **link = &reserved_list, *reserved;
	const struct mapped *mapped;

	ENTER();
	while (*link && (*link)->shadow != device_shadow(ptr))
		link = &(*link)->next;
	reserved = *link;
	if (!reserved || reserved->bytes != size)
		return CUDA_ERROR_INVALID_VALUE;
	for (mapped = mapped_list; mapped; mapped = mapped->next)
		if (mapped->shadow >= reserved->shadow && mapped->shadow < reserved->shadow + size)
			return CUDA_ERROR_INVALID_VALUE;
	*link = reserved->next;
	munmap(reserved->shadow, size);
	free(reserved);
	return CUDA_SUCCESS;
}

static bool is_reserved(const char *shadow, size_t bytes)
{
	const struct reserved *reserved = reserved_list;

	while (reserved && (shadow < reserved->shadow ||
			    shadow + bytes > reserved->shadow + reserved->bytes))
		reserved = reserved->next;
	return shadow && reserved;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		  unsigned long long flags)
{
	char *shadow = device_shadow(ptr);
	struct created *created;
	struct mapped *mapped;

	ENTER();
	created = find_created(handle);
	if (!created || !is_whole(size) || offset || flags || size != created->bytes ||
	    !is_reserved(shadow, size) || *find_mapped(shadow))
		return CUDA_ERROR_INVALID_VALUE;
	mapped = malloc(sizeof(*mapped));
	if (!mapped || mmap(shadow, size, PROT_NONE, MAP_SHARED | MAP_FIXED, created->fd, 0) ==
		       MAP_FAILED) {
		free(mapped);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*mapped = (struct mapped){ mapped_list, shadow, size, created, false };
	mapped_list = mapped;
	created->uses++;
	return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	struct mapped **link, *mapped;

	ENTER();
	link = find_mapped(device_shadow(ptr));
	mapped = *link;
	if (!mapped || mapped->shadow != device_shadow(ptr) || mapped->bytes != size)
		return CUDA_ERROR_INVALID_VALUE;
	*link = mapped->next;
	if (mapped->accessible)
		device_unmap(mapped->shadow);
	if (!clear(mapped->shadow, size))
		abort();
	let_go(mapped->created);
	free(mapped);
	return CUDA_SUCCESS;
}

/* Of one mapping, for its own device. It needs no context. */
CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	struct mapped *mapped;

	ENTER();
	mapped = *find_mapped(device_shadow(ptr));
	if (!mapped || mapped->shadow != device_shadow(ptr) || mapped->bytes != size || !desc ||
	    !count)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE || mapped->accessible)
		return CUDA_ERROR_NOT_SUPPORTED;
	TRY(device_map(mapped->shadow, size, primary_context(mapped->created->device)));
	mapped->accessible = !mprotect(mapped->shadow, size, PROT_READ | PROT_WRITE);
	if (!mapped->accessible)
		device_unmap(mapped->shadow);
	return mapped->accessible ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}
