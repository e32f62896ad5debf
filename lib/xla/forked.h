/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Forked children. Each call fails in a child that has its parent's memory, or locks that a
 * thread of the parent held, before it takes any lock of the handlers'.
 */
#ifndef ACTMEM_XLA_FORKED_H
#define ACTMEM_XLA_FORKED_H

#include <stddef.h>

/* Before main(). @is_free tells in a child whether nobody had a file's locks and state. */
void forked_watch(int (*is_free)(void));

/* Whether this is such a child. */
int is_forked(void);

/* -EOWNERDEAD with words if it is, or another -errno if that could not be known. */
int forked_check(char *words, size_t words_size);

#endif /* ACTMEM_XLA_FORKED_H */
