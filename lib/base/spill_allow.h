/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads ACTMEM_SPILL_ALLOW. The handlers for XLA and the command link this file too.
 */
#ifndef LIB_BASE_SPILL_ALLOW_H
#define LIB_BASE_SPILL_ALLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_store.h"

#define SPILL_ALLOW_FLAGS	(ACTMEM_STORE_ALLOW_MEMORY | ACTMEM_STORE_ALLOW_BUFFERED)
#define SPILL_ALLOW_CHOICE	"memory or buffered, or both with a ',' between them"

/*
 * ACTMEM_STORE_ALLOW_* of the words in the variable, 0 if it is not set. False: it has
 * another one, and *@flags is as it was.
 */
bool spill_allow_from_environment(uint32_t *flags);

#endif /* LIB_BASE_SPILL_ALLOW_H */
