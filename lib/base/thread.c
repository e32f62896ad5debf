/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Starts the library's own threads, gives each thread a number, and defers the cancellation of the
 * program's threads.
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/thread.h"

/*
 * Keeps a library thread from preempting the thread that wakes it. A thread that requests a
 * transfer wakes a library thread to begin the transfer, and goes on computing. The kernel may
 * consider all other CPUs busy, as in a virtual machine whose idle CPUs are descheduled. The kernel
 * then runs the woken thread on the waker's CPU at once, and the waker stalls for the transfer's
 * CPU time. A SCHED_BATCH thread starts when the waker sleeps or ends its time slice, or when
 * another CPU pulls it. If the program chose a scheduling policy, or if the kernel refuses
 * SCHED_BATCH, the thread keeps its policy.
 */
static void let_others_compute(pthread_t thread)
{
	const struct sched_param none = { 0 };

	if (sched_getscheduler(0) == SCHED_OTHER)
		pthread_setschedparam(thread, SCHED_BATCH, &none);
}

int thread_create(pthread_t *thread, const char *name, void *(*body)(void *data), void *data)
{
	/* If the thread runs a function of the program, faults must reach the program's handler. */
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
