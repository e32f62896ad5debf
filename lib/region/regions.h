/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions, for the heap that makes its own, and for those that have names.
 */
#ifndef LIB_REGION_REGIONS_H
#define LIB_REGION_REGIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "actmem.h"
#include "region/backend.h"
#include "region/context.h"

/* Do as actmem_region_create() and _close(), for arguments that were checked. */
int region_create(struct actmem *am, const struct region_request *request,
		  struct actmem_region **region);
void region_close(struct actmem_region *region);

/* How many queues have it attached: it is not closed then, nor by its heap. */
static inline unsigned int region_attachments(const struct actmem_region *region)
{
	return atomic_load_explicit(&region->attachments, memory_order_acquire);
}

/*
 * The pages that it has now are held by a ring, or are so no more: they cannot be
 * discarded meanwhile, as the ring would go on with memory that is nobody's.
 */
void region_hold_pages(struct actmem_region *region);
void region_let_go_of_pages(struct actmem_region *region);

/* 0; -EPERM with words for one opened only to read. */
int region_check_writable(const struct actmem_region *region);

/*
 * 0; -EBUSY with words: it is registered, so that devices use the pages that it has, and is
 * not to be @what until that ends.
 */
int region_check_unregistered(const struct actmem_region *region, const char *what);

/* Checks that pages of it may be discarded. 0 or -errno with words. */
int region_check_discard(const struct actmem_region *region);

/* 0; -EINVAL with words: not whole pages of it. */
int region_check_range(const struct actmem_region *region, uint64_t offset, uint64_t length);

/* A region of nothing yet; NULL with words: no memory. */
struct actmem_region *region_new(struct actmem *am, const struct backend *backend);

/* Turns the backend's result into *@region; with @error, leaves nothing. */
int region_finish(struct actmem_region *made, int error, struct actmem_region **region);

/* Does as actmem_region_open(), for a request with a path. */
int region_open(struct actmem *am, const struct region_request *request,
		struct actmem_region **region);

#endif /* LIB_REGION_REGIONS_H */
