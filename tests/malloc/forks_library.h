/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* A library with a lock that it has held over forks from its constructor on. */
#ifndef TESTS_MALLOC_FORKS_LIBRARY_H
#define TESTS_MALLOC_FORKS_LIBRARY_H

void library_lock(void);
void library_unlock(void);

#endif /* TESTS_MALLOC_FORKS_LIBRARY_H */
