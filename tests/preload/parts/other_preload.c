/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Another preload that puts itself in front of CUDA: it hooks dlsym(), and gives a
 * cuMemFreeHost() of its own, which counts and goes on to what it takes for the real
 * one.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define EXPORT	__attribute__((visibility("default")))
#ifdef __x86_64__
#define OLDEST	"GLIBC_2.2.5"
#else
#define OLDEST	"GLIBC_2.17"
#endif

typedef void *dlsym_function(void *handle, const char *name);

EXPORT unsigned int other_lookups, other_frees;
EXPORT dlsym_function dlsym;

static int (*real_free_host)(void *memory);

static int count_free_host(void *memory)
{
	other_frees++;
	return real_free_host(memory);
}

void *dlsym(void *handle, const char *name)
{
	static dlsym_function *real;
	void *found;

	if (!real)
		real = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", OLDEST);
	if (strncmp(name, "cu", 2))
		return real(handle, name);
	other_lookups++;
	found = real(handle, name);
	if (!found || strcmp(name, "cuMemFreeHost"))
		return found;
	real_free_host = (int (*)(void *))found;
	return (void *)count_free_host;
}
