/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Fallbacks of the memfd backend: other pages and nodes than the request names.
 */
#ifndef LIB_REGION_MEMFD_STEPS_H
#define LIB_REGION_MEMFD_STEPS_H

#include "region/backend.h"

/*
 * Calls @make with the request. While @make fails because pages are missing or unsupported, calls
 * @make with the next fallback that the request allows. Counts the fallbacks that were used. After
 * a success with fallbacks, the error message says which ones were used, and why. If all attempts
 * fail, the error message says why they failed.
 */
int steps_make(int (*make)(const struct region_request *request, struct backing *backing),
	       const struct region_request *request, struct backing *backing);

/* Returns true if steps_make() would try another fallback after this attempt fails. */
bool steps_are_left(const struct region_request *attempt);

#endif /* LIB_REGION_MEMFD_STEPS_H */
