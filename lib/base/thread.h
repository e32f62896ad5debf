/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The library's own threads, which serve those of the program, and what it needs to know
 * of theirs.
 */
#ifndef LIB_BASE_THREAD_H
#define LIB_BASE_THREAD_H

#include <pthread.h>
#include <stdint.h>

/*
 * Starts a thread to which no signal is delivered but those of its own faults. @name: at
 * most 15 bytes. 0 or a positive errno.
 */
int thread_create(pthread_t *thread, const char *name, void *(*body)(void *data), void *data);

/* Starts one that does not take the processor from a thread of the program that wakes it. */
int thread_start(pthread_t *thread, const char *name, void *(*body)(void *data), void *data);

/* Returns the calling thread's number, which no other gets, unlike a pthread_t, after its end. */
uint64_t thread_number(void);

/*
 * Between these two the thread is not cancelled (pthread_cancel), as it would end with
 * locks held. They nest.
 */
void thread_hold_cancellation(void);
void thread_let_cancellation(void);

#endif /* LIB_BASE_THREAD_H */
