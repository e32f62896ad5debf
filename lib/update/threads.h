/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The threads that compute updates: for each node, one for each core that the process may use, at
 * most ACTMEM_UPDATE_THREADS. They start at their first use and may run on all CPUs of the node
 * that the process may use. There are also threads that may run on all nodes.
 */
#ifndef LIB_UPDATE_THREADS_H
#define LIB_UPDATE_THREADS_H

#include <stddef.h>

#define ALL_NODES	(-1)

/*
 * Has up to @useful threads of the node call @work, and waits for them. A call of @work returns
 * when nothing is left to do that another thread has not begun. If no thread could start, the
 * calling thread works alone. Calls for one node take turns.
 *
 * Returns 0, or a negative errno with an error message; then nothing was done.
 */
int threads_run(int node, void (*work)(void *data), void *data, unsigned int useful,
		char *words, size_t words_size);

#endif /* LIB_UPDATE_THREADS_H */
