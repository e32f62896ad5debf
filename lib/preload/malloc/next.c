/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the functions that the program would use without the preload. The search runs at the first
 * call of any of these functions. The process has only one thread at that time, because starting
 * another thread allocates memory.
 *
 * During the search, dlsym() may call free() for its own memory. That memory is leaked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#include "preload/malloc/next.h"

static bool is_looking;

static void no_free(void *memory)
{
}

static void *no_realloc(void *memory, size_t size)
{
	errno = ENOMEM;
	return NULL;
}

static int no_posix_memalign(void **memory, size_t align, size_t size)
{
	return ENOMEM;
}

static void *no_aligned_alloc(size_t align, size_t size)
{
	errno = ENOMEM;
	return NULL;
}

static size_t no_usable_size(void *memory)
{
	return 0;
}

/* Used if the C library lacks pvalloc() or malloc_trim(); glibc has both. */
static void *no_pvalloc(size_t size)
{
	errno = ENOMEM;
	return NULL;
}

static int no_trim(size_t pad)
{
	return 0;
}

struct next next = {
	.free = no_free,
	.realloc = no_realloc,
	.posix_memalign = no_posix_memalign,
	.aligned_alloc = no_aligned_alloc,
	.memalign = no_aligned_alloc,
	.valloc = no_pvalloc,
	.pvalloc = no_pvalloc,
	.malloc_usable_size = no_usable_size,
	.malloc_trim = no_trim,
};

static void *look_for(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		abort();
	return found;
}

static void *look_for_or(const char *name, void *otherwise)
{
	void *found = dlsym(RTLD_NEXT, name);

	return found ? found : otherwise;
}

const struct next *find_next(void)
{
	struct next found = { .is_found = true };

	if (is_looking)
		return &next;
	is_looking = true;
	found.free = (void (*)(void *))look_for("free");
	found.realloc = (void *(*)(void *, size_t))look_for("realloc");
	found.posix_memalign = (int (*)(void **, size_t, size_t))look_for("posix_memalign");
	found.aligned_alloc = (void *(*)(size_t, size_t))look_for("aligned_alloc");
	found.memalign = (void *(*)(size_t, size_t))look_for("memalign");
	found.valloc = (void *(*)(size_t))look_for("valloc");
	found.pvalloc = (void *(*)(size_t))look_for_or("pvalloc", (void *)no_pvalloc);
	found.malloc_usable_size = (size_t (*)(void *))look_for("malloc_usable_size");
	found.malloc_trim = (int (*)(size_t))look_for_or("malloc_trim", (void *)no_trim);
	next = found;
	return &next;
}
