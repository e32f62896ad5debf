/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Functions for regions. Other parts of the library, such as heaps, use them.
 */
#ifndef LIB_REGION_REGIONS_H
#define LIB_REGION_REGIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "actmem.h"
#include "region/backend.h"
#include "region/context.h"

/*
 * Like actmem_region_create() and actmem_region_close(), but the caller has checked the arguments.
 */
int region_create(struct actmem *am, const struct region_request *request,
		  struct actmem_region **region);
void region_close(struct actmem_region *region);

/* Returns how many queues have the region attached. An attached region must not be closed. */
static inline unsigned int region_attachments(const struct actmem_region *region)
{
	return atomic_load_explicit(&region->attachments, memory_order_acquire);
}

/*
 * Call region_hold_pages() before the region's pages are registered with io_uring, and
 * region_let_go_of_pages() after the kernel has released them. Between these calls, discarding
 * fails: otherwise io_uring would continue to use the discarded pages.
 */
void region_hold_pages(struct actmem_region *region);
void region_let_go_of_pages(struct actmem_region *region);

/*
 * Returns how many bytes the region should free because a limit of the driver was lowered;
 * otherwise 0.
 */
static inline uint64_t region_surplus(const struct actmem_region *region)
{
	return region->backend->surplus ? region->backend->surplus(&region->backing) : 0;
}

/* Returns -EPERM with an error message if the region was opened only for reading; else 0. */
int region_check_writable(const struct actmem_region *region);

/*
 * Returns -EBUSY with an error message if the region is registered; else 0. Devices can be using
 * the pages of a registered region. @what: a word for the message, such as "closed".
 */
int region_check_unregistered(const struct actmem_region *region, const char *what);

/*
 * Allocates the handle of a region, but not its memory. Returns NULL with an error message if
 * memory is short. Creating or opening the memory can take long: the caller passes @making in the
 * request, so that a child that is forked meanwhile closes the descriptors.
 */
struct actmem_region *region_new(struct actmem *am, const struct backend *backend);

/*
 * @error is the result of the backend's function that created or opened the memory of @made. If
 * @error is 0, completes the region @made and stores it in *@region. Frees @made if @error is not 0
 * or if the completion fails.
 */
int region_finish(struct actmem_region *made, int error, struct actmem_region **region);

/*
 * Prints on stderr that a region is worse than ACTMEM_STRICT=1 demands. Prints this for the first
 * such region of a process. If a later region is the first that is not locked, prints the line
 * again for that region. Prints nothing if `actmem run` has reported this, or if ACTMEM_QUIET=1 is
 * set.
 */
void region_report(const struct actmem_region *region);

/* Like actmem_region_open(), but the caller has checked the request, which has a path. */
int region_open(struct actmem *am, const struct region_request *request,
		struct actmem_region **region);

#endif /* LIB_REGION_REGIONS_H */
