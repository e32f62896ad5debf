/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The threads that compute updates: each node has one thread for each core that the process may
 * use, but at most ACTMEM_UPDATE_THREADS threads. The threads of a node start at the first call for
 * this node, and run on all CPUs of the node that the process may use. Work for ALL_NODES has
 * threads of its own, which run on all nodes.
 */
#ifndef LIB_UPDATE_THREADS_H
#define LIB_UPDATE_THREADS_H

#include <stddef.h>

#define ALL_NODES	(-1)

/*
 * Makes up to @useful threads of the node call @work, and waits for them. Each call of @work does
 * parts of the work until no part is left to begin, and then returns. If no thread could start, the
 * calling thread itself calls @work. Calls for one node take turns.
 *
 * Returns 0, or a negative errno with an error message. After an error, @work was not called.
 */
int threads_run(int node, void (*work)(void *data), void *data, unsigned int useful,
		char *words, size_t words_size);

#endif /* LIB_UPDATE_THREADS_H */
