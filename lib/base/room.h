/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Maps private anonymous memory at an aligned address.
 */
#ifndef LIB_BASE_ROOM_H
#define LIB_BASE_ROOM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

/*
 * Maps @length bytes at a multiple of @align. @length: whole pages. @align: a power of two, at
 * least a page. @flags: flags of mmap() besides MAP_PRIVATE and MAP_ANONYMOUS. Returns the address,
 * which the caller unmaps with munmap(), or MAP_FAILED with errno set.
 */
static inline void *room_map(size_t length, size_t align, int protection, int flags)
{
	char *room = mmap(NULL, length + align, protection,
			  MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	size_t front;

	if (room == MAP_FAILED)
		return MAP_FAILED;
	front = -(uintptr_t)room & (align - 1);
	if (front)
		munmap(room, front);
	munmap(room + front + length, align - front);
	return room + front;
}

#endif /* LIB_BASE_ROOM_H */
