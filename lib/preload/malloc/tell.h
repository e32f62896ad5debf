/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes what told.h has. Under the caller's lock.
 */
#ifndef LIB_PRELOAD_MALLOC_TELL_H
#define LIB_PRELOAD_MALLOC_TELL_H

#include "preload/malloc/told.h"

/* This process's counters; private, if they could not be published. */
struct told *tell(void);

/* For a forked child, which must not write to its parent's counters. */
void tell_anew(void);

#endif /* LIB_PRELOAD_MALLOC_TELL_H */
