/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Fallbacks of the memfd backend: other pages and nodes than the request names.
 */
#ifndef LIB_REGION_MEMFD_STEPS_H
#define LIB_REGION_MEMFD_STEPS_H

#include "region/backend.h"

/*
 * Calls @make with the request, then with the fallbacks that the request allows, while they could
 * help. Counts the fallbacks that it used. The error message says which ones and why. If all
 * attempts fail, it says why each failed.
 */
int steps_make(int (*make)(const struct region_request *request, struct backing *backing),
	       const struct region_request *request, struct backing *backing);

/* Returns true if steps_make() would try another fallback after this attempt fails. */
bool steps_are_left(const struct region_request *attempt);

#endif /* LIB_REGION_MEMFD_STEPS_H */
