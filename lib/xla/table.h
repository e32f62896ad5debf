/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The table of live blocks (saved.h), by token. The caller's lock guards the table.
 */
#ifndef LIB_XLA_TABLE_H
#define LIB_XLA_TABLE_H

#include <stdint.h>

#include "xla/block.h"

/* Makes sure that one more block can be added. Returns 0 or -ENOMEM. */
int table_reserve(void);

void table_add(struct saved *block);
void table_remove(struct saved *block);
struct saved *table_find(uint64_t token);

#endif /* LIB_XLA_TABLE_H */
