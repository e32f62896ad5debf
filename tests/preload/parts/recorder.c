/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A preload that writes down what a program asks of cuGetProcAddress(), and the answers.
 * It has no part in them.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "recorder.h"

#define EXPORT	__attribute__((visibility("default")))
#define OLDEST	"GLIBC_2.2.5"

typedef void *dlsym_function(void *handle, const char *name);
typedef unsigned int get_function(const char *name, void **function, int version,
				  uint64_t flags, int *status);

EXPORT struct recorded recorded;
EXPORT dlsym_function dlsym;

static get_function *real_get;

static unsigned int get(const char *name, void **function, int version, uint64_t flags,
			int *status)
{
	unsigned int result = real_get(name, function, version, flags, status);
	struct record *record = &recorded.records[recorded.count];

	if (recorded.count < RECORDS_MAX) {
		recorded.count++;
		snprintf(record->name, sizeof(record->name), "%s", name);
		record->version = version;
		record->flags = flags;
		record->function = result ? NULL : *function;
	}
	/* It asks for itself, too, and goes on with what it gets. */
	if (!result && *function == (void *)real_get)
		*function = (void *)get;
	return result;
}

void *dlsym(void *handle, const char *name)
{
	dlsym_function *real = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", OLDEST);
	void *found = real(handle, name);

	if (!found || strcmp(name, "cuGetProcAddress_v2"))
		return found;
	real_get = (get_function *)found;
	return (void *)get;
}
