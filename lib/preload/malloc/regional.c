/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Remembers the lengths of blocks in a list: there are few, as each is long.
 *
 * What maps them calls malloc, so that the lock is not held meanwhile.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

#include "preload/malloc/large.h"
#include "preload/malloc/next.h"
#include "preload/malloc/regional.h"

#define ALIGN_MAX	(2UL << 20)

/* As in large.c: pthread_atfork() would keep this from loading with other C libraries. */
int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
		      void *library) __attribute__((weak));

struct regional {
	struct regional *next;
	char *memory;
	size_t bytes;
};

struct regional_gate regional_gate = { .min_bytes = SIZE_MAX, .low = UINTPTR_MAX };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* A fork() of a signal's handler finds the lock taken, and leaves it alone. */
static __thread volatile sig_atomic_t inside;
static struct regional *list;
static void *(*map_block)(size_t bytes);

static void lock_list(void)
{
	inside = true;
	pthread_mutex_lock(&lock);
}

static void unlock_list(void)
{
	pthread_mutex_unlock(&lock);
	inside = false;
}

static void before_fork(void)
{
	if (!inside)
		pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void)
{
	if (!inside)
		pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

bool regional_begin(size_t min_bytes, void *(*map)(size_t bytes))
{
	if (!__register_atfork ||
	    __register_atfork(before_fork, after_fork_in_parent, after_fork_in_child, NULL))
		return false;
	map_block = map;
	regional_gate.min_bytes = min_bytes;
	if (min_bytes < large_gate.min_bytes)
		large_gate.min_bytes = min_bytes;
	return true;
}

static void add(struct regional *block)
{
	uintptr_t first = (uintptr_t)block->memory;

	lock_list();
	block->next = list;
	list = block;
	if (first < regional_gate.low)
		atomic_store_explicit(&regional_gate.low, first, memory_order_relaxed);
	if (first + block->bytes > regional_gate.high)
		atomic_store_explicit(&regional_gate.high, first + block->bytes,
				      memory_order_relaxed);
	unlock_list();
}

void *regional_alloc(size_t bytes, size_t align)
{
	struct regional *block;
	int saved = errno;

	if (bytes < regional_gate.min_bytes || align > ALIGN_MAX)
		return NULL;
	block = next.malloc(sizeof(*block));
	if (block) {
		*block = (struct regional){ .memory = map_block(bytes), .bytes = bytes };
		if (block->memory) {
			add(block);
			return block->memory;
		}
		next.free(block);
	}
	errno = saved;
	return NULL;
}

/* Under the lock. */
static struct regional **find(const void *memory)
{
	struct regional **link = &list;

	while (*link && (*link)->memory != memory)
		link = &(*link)->next;
	return link;
}

bool regional_free(void *memory)
{
	struct regional **link, *block;
	int saved = errno;

	lock_list();
	link = find(memory);
	block = *link;
	if (block)
		*link = block->next;
	unlock_list();
	if (!block)
		return false;
	munmap(block->memory, block->bytes);
	next.free(block);
	errno = saved;
	return true;
}

size_t regional_size(const void *memory)
{
	struct regional *block;
	size_t bytes;

	lock_list();
	block = *find(memory);
	bytes = block ? block->bytes : 0;
	unlock_list();
	return bytes;
}
