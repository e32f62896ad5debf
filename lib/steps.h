/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What may be made instead of what was asked for, in turn.
 */
#ifndef LIB_STEPS_H
#define LIB_STEPS_H

#include "backend.h"

/* What a backend can make, and what it calls its pages, by enum actmem_pages. */
struct maker {
	int (*make)(int device, const struct region_request *request, struct backing *backing);
	const char *const *page_names;
};

/*
 * Has @maker try what the request asks for, then the steps down that it allows, as
 * long as they could help. Counts those that were taken and tells in words which
 * and why; if all fail, why each did.
 */
int steps_make(const struct maker *maker, int device, const struct region_request *request,
	       struct backing *backing);

/* What @make is told of with a request: whether another would be tried if this fails. */
bool steps_are_left(const struct region_request *attempt);

#endif /* LIB_STEPS_H */
