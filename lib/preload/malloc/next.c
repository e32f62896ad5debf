/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the malloc that the program would use without the preload, at the first call of any
 * function. There is only one thread then, because starting another one allocates.
 *
 * In some C libraries, dlsym() allocates memory. It then gets memory from an array in this file,
 * which is never freed. Only in this case, this file replaces free() and two other functions with
 * functions that recognize the array.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "preload/malloc/next.h"

#define EARLY_BYTES	8192
#define EARLY_ALIGN	16UL

static _Alignas(EARLY_ALIGN) char early[EARLY_BYTES];
static size_t early_used;
static bool is_looking;

static void (*real_free)(void *memory);
static void *(*real_realloc)(void *memory, size_t size);
static size_t (*real_usable_size)(void *memory);

static bool is_early(const void *memory)
{
	return (uintptr_t)memory - (uintptr_t)early < EARLY_BYTES;
}

/* Allocates a block of the array, with its length stored before it. */
static void *early_alloc(size_t size)
{
	size_t room = (size + EARLY_ALIGN - 1) / EARLY_ALIGN * EARLY_ALIGN + EARLY_ALIGN;
	char *memory = early + early_used;

	if (size > EARLY_BYTES || room > EARLY_BYTES - early_used)
		return NULL;
	early_used += room;
	memcpy(memory, &size, sizeof(size));
	return memory + EARLY_ALIGN;
}

static size_t early_size(const void *memory)
{
	size_t size;

	memcpy(&size, (const char *)memory - EARLY_ALIGN, sizeof(size));
	return size;
}

/* Replacements for all functions while this file looks for them: dlsym() may call them. */
static void early_free(void *memory)
{
}

static void *early_calloc(size_t count, size_t size)
{
	size_t bytes;

	/* The array is never reused, so the block is zero. */
	return __builtin_mul_overflow(count, size, &bytes) ? NULL : early_alloc(bytes);
}

static void *copy_early(void *to, const void *from, size_t size)
{
	if (to && from)
		memcpy(to, from, size < early_size(from) ? size : early_size(from));
	return to;
}

static void *early_realloc(void *memory, size_t size)
{
	return copy_early(early_alloc(size), memory, size);
}

static size_t early_usable_size(void *memory)
{
	return memory ? early_size(memory) : 0;
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

/* The next two also replace functions that only glibc has. */
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
	.malloc = early_alloc,
	.free = early_free,
	.calloc = early_calloc,
	.realloc = early_realloc,
	.posix_memalign = no_posix_memalign,
	.aligned_alloc = no_aligned_alloc,
	.memalign = no_aligned_alloc,
	.valloc = no_pvalloc,
	.pvalloc = no_pvalloc,
	.malloc_usable_size = early_usable_size,
	.malloc_trim = no_trim,
};

static void free_unless_early(void *memory)
{
	if (!is_early(memory))
		real_free(memory);
}

static void *realloc_unless_early(void *memory, size_t size)
{
	return is_early(memory) ? copy_early(next.malloc(size), memory, size) :
	       real_realloc(memory, size);
}

static size_t usable_size_unless_early(void *memory)
{
	return is_early(memory) ? early_size(memory) : real_usable_size(memory);
}

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

static bool is_one_library(const void *one, const void *other)
{
	Dl_info first, second;

	return dladdr(one, &first) && dladdr(other, &second) && first.dli_fbase == second.dli_fbase;
}

const struct next *find_next(void)
{
	struct next found = { .is_found = true };

	if (is_looking)
		return &next;
	is_looking = true;
	found.malloc = (void *(*)(size_t))look_for("malloc");
	found.free = (void (*)(void *))look_for("free");
	found.calloc = (void *(*)(size_t, size_t))look_for("calloc");
	found.realloc = (void *(*)(void *, size_t))look_for("realloc");
	found.posix_memalign = (int (*)(void **, size_t, size_t))look_for("posix_memalign");
	found.aligned_alloc = (void *(*)(size_t, size_t))look_for("aligned_alloc");
	found.memalign = (void *(*)(size_t, size_t))look_for("memalign");
	found.valloc = (void *(*)(size_t))look_for("valloc");
	found.pvalloc = (void *(*)(size_t))look_for_or("pvalloc", (void *)no_pvalloc);
	found.malloc_usable_size = (size_t (*)(void *))look_for("malloc_usable_size");
	found.malloc_trim = (int (*)(size_t))look_for_or("malloc_trim", (void *)no_trim);
	found.knows_sizes = is_one_library((void *)found.malloc,
					       (void *)found.malloc_usable_size);
	if (early_used) {
		real_free = found.free;
		real_realloc = found.realloc;
		real_usable_size = found.malloc_usable_size;
		found.free = free_unless_early;
		found.realloc = realloc_unless_early;
		found.malloc_usable_size = usable_size_unless_early;
	}
	next = found;
	return &next;
}
