/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Names a block in error messages by its site, the place in the program that stored the value. */
#include <stdio.h>

#include "xla/memory.h"
#include "xla/saved.h"

/*
 * Takes saved_lock. The caller may hold the store's lock, because no thread takes the two locks in
 * the opposite order.
 */
static void name_block(struct actmem_key key, char *name, size_t size)
{
	snprintf(name, size, "%s", saved_site_name(key.instance & ~ACTMEM_INSTANCE_ONCE));
}

static void __attribute__((constructor)) register_names(void)
{
	memory_name_blocks(name_block);
}
