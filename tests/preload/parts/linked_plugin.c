/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* A plugin that is linked with libcuda.so.1, which the program is not. */
#include <dlfcn.h>
#include <stddef.h>

#include "linked_plugin.h"

void *linked_default(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

void *linked_function(void)
{
	return (void *)cuMemHostAlloc;
}

CUresult linked_flags(unsigned int *flags, void *memory)
{
	return cuMemHostGetFlags(flags, memory);
}
