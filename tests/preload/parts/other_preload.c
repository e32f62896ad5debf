/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Another preload that puts itself in front of CUDA: it hooks dlsym(), and gives a
 * cuMemFreeHost() of its own, which counts and goes on to the real one. That it looks
 * for as any other library does, and lets its own lookups pass.
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

/* By its name, which is that of the first preload. */
static __attribute__((noinline)) void *ask(void *handle, const char *name)
{
	return dlsym(handle, name);
}

void *dlsym(void *handle, const char *name)
{
	static dlsym_function *real;
	static __thread int is_asking;
	void *found;

	if (!real)
		real = (dlsym_function *)dlvsym(RTLD_NEXT, "dlsym", OLDEST);
	if (is_asking || strncmp(name, "cu", 2))
		return real(handle, name);
	other_lookups++;
	if (strcmp(name, "cuMemFreeHost"))
		return real(handle, name);
	is_asking++;
	found = ask(handle, name);
	is_asking--;
	if (!found)
		return NULL;
	real_free_host = (int (*)(void *))found;
	return (void *)count_free_host;
}
