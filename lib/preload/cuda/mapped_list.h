/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The parts of the mappings of mapped.h that are still mapped. Everything here is under the lock.
 */
#ifndef LIB_PRELOAD_CUDA_MAPPED_LIST_H
#define LIB_PRELOAD_CUDA_MAPPED_LIST_H

#include "preload/cuda/mapped.h"

struct mapped_region {
	struct mapped_region *next;	/* of those that are to be closed */
	struct mapped_range range;
	struct cuda_region its;
	int fd;
	unsigned int parts, registered;
};

/* A part of a mapping that is still mapped. */
struct mapped {
	struct mapped *next;
	char *first, *end;
	struct mapped_region *of;
	bool not_for_children;		/* MADV_DONTFORK */
	void *copy;			/* for a child, while it is made */
};

struct piece {
	struct mapped *mapped;		/* NULL: it is in none, */
	bool is_rest;			/* but in a page of one, and was unmapped before */
	char *first, *end;
};

static inline char *page_of(const struct mapped_region *of, char *at)
{
	return at - (uintptr_t)at % of->its.page_bytes;
}

static inline char *page_behind(const struct mapped_region *of, char *end)
{
	return page_of(of, end + of->its.page_bytes - 1);
}

static inline size_t bytes_of(const struct piece *piece)
{
	return (size_t)(piece->end - piece->first);
}

void mapped_lock(void);
void mapped_unlock(void);

/* The piece at @first of what ends at @end. */
struct piece mapped_piece(char *first, char *end);

/* Another mapping of a part's pages, which the program may have made unreadable; or NULL. */
char *mapped_view(const struct mapped_region *of, char *first, char *end);
void mapped_unview(const struct mapped_region *of, char *first, char *end, char *view);

#endif /* LIB_PRELOAD_CUDA_MAPPED_LIST_H */
