/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Detects forked children. If the parent had memory, or one of its threads held a lock at fork(),
 * each call fails in the child before it takes a lock of the handlers.
 */
#ifndef ACTMEM_XLA_FORKED_H
#define ACTMEM_XLA_FORKED_H

#include <stddef.h>

void forked_watch(int (*is_free)(void));

/*
 * Registers @is_free when the library is loaded. In a child, @is_free returns true if the parent
 * had no state in that file and no thread held its locks.
 */
#define FORKED_WATCH(is_free)						\
	static void __attribute__((constructor)) watch_forks(void)	\
	{								\
		forked_watch(is_free);					\
	}

/* Returns true in such a child. */
int is_forked(void);

/*
 * Returns -EOWNERDEAD with an error message in such a child, or another negative errno if the
 * library cannot detect fork(). Else returns 0.
 */
int forked_check(char *words, size_t words_size);

#endif /* ACTMEM_XLA_FORKED_H */
