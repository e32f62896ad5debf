/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Maps regions.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/map.h"

static bool is_aligned(const void *address)
{
	return !((uintptr_t)address % HUGE_PAGE_BYTES);
}

static void *map_at(const struct backing *backing, void *hint, int flags)
{
	int protection = PROT_READ | (backing->read_only ? 0 : PROT_WRITE);

	return mmap(hint, backing->length, protection, MAP_SHARED | flags, backing->fd, 0);
}

/*
 * Maps a region at an aligned address. Hugetlb files and the driver choose an aligned address
 * themselves. For other files, the function reserves aligned address space and maps the file over
 * it. Without the reservation, another thread could map the same address first. If mapping the file
 * over the reservation fails, the function does not unmap the reservation: the kernel may have
 * unmapped it already, and another thread may use the addresses.
 */
static void *map_aligned(const struct backing *backing)
{
	void *address = map_at(backing, NULL, 0);
	uint64_t length = backing->length;
	void *room;

	if (address == MAP_FAILED || is_aligned(address))
		return address;
	munmap(address, length);
	room = room_map(length, HUGE_PAGE_BYTES, PROT_NONE, MAP_NORESERVE);
	if (room == MAP_FAILED)
		return MAP_FAILED;
	/*
	 * After mlockall(MCL_FUTURE), the reservation is locked. Unlock it, so that it does not
	 * count against RLIMIT_MEMLOCK.
	 */
	munlock(room, length);
	return map_at(backing, room, MAP_FIXED);
}

int map_region(struct backing *backing)
{
	void *mapped = map_aligned(backing);
	uint64_t length = backing->length;
	int error;

	if (mapped == MAP_FAILED)
		return fail_more_address_space(fail(errno, "cannot map %s (mmap: %s)",
						    BYTES_TEXT(length), strerror(errno)));
	if (madvise(mapped, length, MADV_DONTDUMP) ||
	    (!backing->inherit && madvise(mapped, length, MADV_DONTFORK))) {
		error = fail(errno, "cannot keep %s out of children and core dumps (madvise: %s)",
			     BYTES_TEXT(length), strerror(errno));
		munmap(mapped, length);
		return error;
	}
	backing->address = mapped;
	return 0;
}
