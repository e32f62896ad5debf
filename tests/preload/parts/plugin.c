/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A plugin as XLA's is: loaded RTLD_LOCAL, it opens CUDA by itself. It is linked with
 * behind.so alone, where its RUNPATH leads.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "plugin.h"

int cuWho(void)
{
	return 1;
}

int who(void)
{
	return 1;
}

void *plugin_find(const char *name)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	return cuda ? dlsym(cuda, name) : NULL;
}

void *plugin_default(const char *name)
{
	return dlsym(RTLD_DEFAULT, name);
}

void *plugin_next(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* It is where only the RUNPATH leads. */
void *plugin_open_behind(void)
{
	return dlopen("behind.so", RTLD_NOW | RTLD_LOCAL);
}
