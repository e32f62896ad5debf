/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The library's own threads, which serve those of the program, and what it needs to know
 * of theirs.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/thread.h"

/*
 * A thread that asks for a transfer wakes another to begin it, and goes on computing. Where the
 * kernel takes the other processors for busy, as it does in a virtual machine whose idle
 * ones are not run, it would have that thread begin where it was woken, at once: what a
 * transfer costs the processor would be the caller's stall. One of SCHED_BATCH begins as
 * soon as that thread sleeps or has had its turn, or another processor takes it. A policy
 * that the program has chosen is left alone; and so is the thread, where none may be.
 */
static void let_others_compute(pthread_t thread)
{
	const struct sched_param none = { 0 };

	if (sched_getscheduler(0) == SCHED_OTHER)
		pthread_setschedparam(thread, SCHED_BATCH, &none);
}

int thread_create(pthread_t *thread, const char *name, void *(*body)(void *data), void *data)
{
	/* A fault of the program's own function has to reach the program's own handler. */
	static const int faults[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
	sigset_t all, before;
	unsigned int i;
	int error;

	sigfillset(&all);
	for (i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		sigdelset(&all, faults[i]);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(thread, NULL, body, data);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error)
		pthread_setname_np(*thread, name);
	return error;
}

int thread_start(pthread_t *thread, const char *name, void *(*body)(void *data), void *data)
{
	int error = thread_create(thread, name, body, data);

	if (!error)
		let_others_compute(*thread);
	return error;
}

uint64_t thread_number(void)
{
	static _Atomic uint64_t last;
	static _Thread_local uint64_t number;

	if (!number)
		number = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
	return number;
}

static _Thread_local struct {
	unsigned int depth;
	int state;
} cancellation;

void thread_hold_cancellation(void)
{
	if (!cancellation.depth++)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation.state);
}

void thread_let_cancellation(void)
{
	if (!--cancellation.depth)
		pthread_setcancelstate(cancellation.state, NULL);
}
