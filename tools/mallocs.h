/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Memory of the processes in malloc mode. */
#ifndef ACTMEM_MALLOCS_H
#define ACTMEM_MALLOCS_H

#include <jansson.h>

/* Returns an array of the processes that the caller may inspect, or NULL if out of memory. */
json_t *mallocs_to_json(void);

/* Prints the array, or nothing if it is empty. Returns 0 or -ENOMEM, as table_print() does. */
int mallocs_print(const json_t *mallocs, unsigned int flags);

#endif
