/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Steps down from what was asked for to what the memfd backend may make instead.
 */
#ifndef LIB_REGION_MEMFD_STEPS_H
#define LIB_REGION_MEMFD_STEPS_H

#include "region/backend.h"

/*
 * Has @make try what the request asks for, then the steps down that it allows, as
 * long as they could help. Counts those that were taken and tells in words which
 * and why; if all fail, why each did.
 */
int steps_make(int (*make)(const struct region_request *request, struct backing *backing),
	       const struct region_request *request, struct backing *backing);

/* Tells @make, with a request, whether another would be tried if this fails. */
bool steps_are_left(const struct region_request *attempt);

#endif /* LIB_REGION_MEMFD_STEPS_H */
