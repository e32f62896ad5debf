/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Detects forked children. Calls fail in a child if the handlers had stores or other state in the
 * parent, or if a thread held a lock of the handlers at fork(). Such a call fails before it takes
 * any of these locks.
 */
#ifndef LIB_XLA_FORKED_H
#define LIB_XLA_FORKED_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Registers the function @is_free when the library is loaded. fork() calls the function in the
 * child. The function returns true if its source file had no state in the parent, and no thread
 * held the file's locks at fork().
 */
#define FORKED_WATCH(is_free)						\
	static void __attribute__((constructor)) watch_forks_by_##is_free(void)	\
	{								\
		forked_watch(is_free);					\
	}
void forked_watch(bool (*is_free)(void));

/* Returns true if no thread held the lock at fork(). */
static inline bool forked_lock_is_free(pthread_mutex_t *lock)
{
	return !pthread_mutex_trylock(lock) && !pthread_mutex_unlock(lock);
}

static inline bool forked_rwlock_is_free(pthread_rwlock_t *lock)
{
	return !pthread_rwlock_trywrlock(lock) && !pthread_rwlock_unlock(lock);
}

/* Returns true in a child in which calls must fail. */
bool is_forked(void);

/*
 * Returns -EOWNERDEAD with an error message in a child in which calls must fail, or another
 * negative errno if the library cannot detect fork(). Else returns 0.
 */
int forked_check(char *words, size_t words_size);

#endif /* LIB_XLA_FORKED_H */
