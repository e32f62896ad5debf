/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A libcuda.so.1 that loads another one and goes on to its functions, as WSL's does.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define EXPORT	__attribute__((visibility("default")))

EXPORT void *outer_find(const char *name);

static void *inner(void)
{
	char path[4096] = "";
	Dl_info info;

	if (!dladdr((void *)outer_find, &info))
		return NULL;
	snprintf(path, sizeof(path), "%.*s/../another/libcuda.so.1",
		 (int)(strrchr(info.dli_fname, '/') - info.dli_fname), info.dli_fname);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *outer_find(const char *name)
{
	return dlsym(inner(), name);
}

#define FORWARD(name)							\
EXPORT unsigned int name(void *first, size_t second, size_t third);	\
unsigned int name(void *first, size_t second, size_t third)		\
{									\
	unsigned int (*found)(void *, size_t, size_t);			\
									\
	*(void **)&found = outer_find(#name);				\
	return found(first, second, third);				\
}

FORWARD(cuInit)
FORWARD(cuMemHostAlloc)
FORWARD(cuMemAllocHost_v2)
FORWARD(cuMemFreeHost)
FORWARD(cuMemHostRegister_v2)
FORWARD(cuMemHostUnregister)
FORWARD(cuMemHostGetDevicePointer_v2)
FORWARD(cuMemHostGetFlags)
