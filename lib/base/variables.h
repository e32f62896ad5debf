/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Variables of an environment that need not be this process's own. */
#ifndef LIB_BASE_VARIABLES_H
#define LIB_BASE_VARIABLES_H

#include <string.h>

/* The value in @variables, "NAME=value" up to a NULL; or NULL. */
static inline const char *variables_find(const char *const *variables, const char *name)
{
	size_t length = strlen(name);

	for (; *variables; variables++)
		if (!strncmp(*variables, name, length) && (*variables)[length] == '=')
			return *variables + length + 1;
	return NULL;
}

#endif /* LIB_BASE_VARIABLES_H */
