/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Starts the library's own threads, numbers threads, and defers the cancellation of the
 * program's threads.
 */
#ifndef LIB_BASE_THREAD_H
#define LIB_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/*
 * Starts a thread that blocks all signals except those of its own faults. @name: at most 15
 * bytes. Returns 0 or a positive errno.
 */
int thread_create(pthread_t *thread, const char *name, void *(*body)(void *data), void *data);

/* Like thread_create(), but asks the kernel not to let the new thread preempt its waker. */
int thread_start(pthread_t *thread, const char *name, void *(*body)(void *data), void *data);

/* Returns the calling thread's number. Unlike a pthread_t, the number is never reused. */
uint64_t thread_number(void);

/*
 * Between these two calls, the calling thread cannot be cancelled (pthread_cancel). Otherwise the
 * thread could end with locks held. The calls nest.
 */
void thread_hold_cancellation(void);
void thread_let_cancellation(void);

#endif /* LIB_BASE_THREAD_H */
