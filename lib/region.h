/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions, for the heap that makes its own, and for those that have names.
 */
#ifndef LIB_REGION_H
#define LIB_REGION_H

#include "actmem.h"
#include "backend.h"

/* As actmem_region_create() and _close(), for arguments that were checked. */
int region_create(struct actmem *am, const struct region_request *request,
		  struct actmem_region **region);
void region_close(struct actmem_region *region);

/* A region of nothing yet; NULL with words: no memory. */
struct actmem_region *region_new(struct actmem *am, const struct backend *backend);

/* What the backend made, or its @error, becomes a region in *@region, or nothing stays. */
int region_finish(struct actmem_region *made, int error, struct actmem_region **region);

/* As actmem_region_open(), for a request with a path. */
int region_open(struct actmem *am, const struct region_request *request,
		struct actmem_region **region);

#endif /* LIB_REGION_H */
