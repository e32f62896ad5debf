/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program with a dlsym() of its own, which it exports, and which goes on to what it
 * takes for the real one.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "preload_test.h"

#ifdef __x86_64__
#define OLDEST	"GLIBC_2.2.5"
#else
#define OLDEST	"GLIBC_2.17"
#endif

static unsigned int lookups;

__attribute__((visibility("default"))) void *dlsym(void *handle, const char *name)
{
	void *(*real)(void *handle, const char *name);

	lookups++;
	*(void **)&real = dlvsym(RTLD_NEXT, "dlsym", OLDEST);
	return real ? real(handle, name) : NULL;
}

int main(void)
{
	void *(*next)(void *handle, const char *name);
	unsigned int i, before;
	void *library;

	cuda_or_skip();
	library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	before = lookups;
	for (i = 0; hooked_names[i]; i++)
		is_hook(dlsym(library, hooked_names[i]), "%s by the program's own dlsym()",
			hooked_names[i]);
	ok(lookups == before + i, "which was called (%u times)", lookups);
	*(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "NO_SUCH_1.0");
	ok(!next && dlerror(), "a version that the C library has not is not found");
	is_hook(dlvsym(RTLD_NEXT, "dlvsym", OLDEST), "dlvsym() is the preload's as well");
	ok(!strncmp(owner(dlvsym(RTLD_NEXT, "dlopen", OLDEST)), "libc.so", 7),
	   "and dlopen() the C library's");
	return tap_end();
}
