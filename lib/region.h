/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions, for the heap that makes its own.
 */
#ifndef LIB_REGION_H
#define LIB_REGION_H

#include "actmem.h"
#include "backend.h"

/* As actmem_region_create() and _close(), for arguments that were checked. */
int region_create(struct actmem *am, const struct region_request *request,
		  struct actmem_region **region);
void region_close(struct actmem_region *region);

#endif /* LIB_REGION_H */
