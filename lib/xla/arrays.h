/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory of arrays, which is apart from the store's: what is in it is neither spilled
 * nor within the budget. actmem_xla.h has the calls.
 */
#ifndef ACTMEM_XLA_ARRAYS_H
#define ACTMEM_XLA_ARRAYS_H

#include <stdint.h>

#include "xla/actmem_xla.h"

/*
 * Gives memory back that no array is in: all of it, but for regions with names, if
 * there is no array at all. 0 or -errno with actmem_error().
 */
int arrays_trim(void);

/* One more holder, and one more of XLA's views; and their end. */
void arrays_hold(struct actmem_xla_array *array);
void arrays_let_go(struct actmem_xla_array *array);

#endif /* ACTMEM_XLA_ARRAYS_H */
