/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Memory of the processes in malloc mode. */
#ifndef ACTMEM_MALLOCS_H
#define ACTMEM_MALLOCS_H

#include <jansson.h>

/* An array of those that the caller may look into; NULL: no memory. */
json_t *mallocs_to_json(void);

/* Nothing, if there are none. As table_print(). */
int mallocs_print(const json_t *mallocs, unsigned int flags);

#endif
