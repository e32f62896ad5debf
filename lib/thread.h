/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The library's own threads, which serve those of the program. */
#ifndef LIB_THREAD_H
#define LIB_THREAD_H

#include <pthread.h>

/* One in which no signal is delivered. @name: at most 15 bytes. 0 or a positive errno. */
int thread_create(pthread_t *thread, const char *name, void *(*body)(void *data), void *data);

/* And which does not take the processor from a thread of the program that wakes it. */
int thread_start(pthread_t *thread, const char *name, void *(*body)(void *data), void *data);

#endif /* LIB_THREAD_H */
