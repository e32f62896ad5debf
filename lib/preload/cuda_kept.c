/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Keeps what `actmem run` set: what is needed of it is read when CUDA is first used, and
 * a program may have cleared its environment by then.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../variables.h"
#include "cuda_kept.h"

#define PREFIX		"ACTMEM_"
#define KEPT_MAX	64
#define KEPT_BYTES	16384

static const char *kept[KEPT_MAX + 1];
static char text[KEPT_BYTES];

/* All of them, or none. */
void cuda_keep_variables(char *const *environment)
{
	size_t count = 0, used = 0, length;

	for (; *environment; environment++) {
		if (strncmp(*environment, PREFIX, strlen(PREFIX)) != 0)
			continue;
		length = strlen(*environment) + 1;
		if (count == KEPT_MAX || length > sizeof(text) - used) {
			count = 0;
			break;
		}
		kept[count++] = memcpy(text + used, *environment, length);
		used += length;
	}
	kept[count] = NULL;
}

const char *const *cuda_variables(void)
{
	static const char *const none[] = { NULL };

	if (*kept && !getenv("ACTMEM_CUDA"))
		return kept;
	return environ ? (const char *const *)environ : none;
}

const char *cuda_variable(const char *name)
{
	return variables_find(cuda_variables(), name);
}
