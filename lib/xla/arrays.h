/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory of arrays. It is separate from the store's memory: arrays are not spilled, and do not
 * count against the budget. actmem_xla.h has the calls.
 */
#ifndef LIB_XLA_ARRAYS_H
#define LIB_XLA_ARRAYS_H

#include <stdint.h>

#include "xla/actmem_xla.h"

/*
 * Frees memory that no array uses. If there is no array at all, frees all memory except named
 * regions. Returns 0, or a negative errno with actmem_error().
 */
int arrays_trim(void);

/*
 * arrays_hold() adds a reference for a tensor that XLA uses. arrays_let_go() drops this reference.
 */
void arrays_hold(struct actmem_xla_array *array);
void arrays_let_go(struct actmem_xla_array *array);

#endif /* LIB_XLA_ARRAYS_H */
