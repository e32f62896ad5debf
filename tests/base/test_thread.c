/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The library's own threads: without signals, and behind those that compute. And that the
 * program's threads are not cancelled while they are held.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/thread.h"
#include "faults.h"

static pthread_barrier_t barrier;

/* Waits until its policy has been looked at, and tells which signals it takes. */
static void *body(void *signals)
{
	pthread_sigmask(SIG_SETMASK, NULL, signals);
	pthread_barrier_wait(&barrier);
	return signals;
}

typedef int start_function(pthread_t *thread, const char *name, void *(*body)(void *data),
			   void *data);

static int policy_of(start_function *start, sigset_t *signals)
{
	struct sched_param param;
	pthread_t thread;
	char name[16];
	int policy;

	assert_int_equal(start(&thread, "actmem-test", body, signals), 0);
	assert_int_equal(pthread_getschedparam(thread, &policy, &param), 0);
	assert_int_equal(pthread_getname_np(thread, name, sizeof(name)), 0);
	assert_string_equal(name, "actmem-test");
	pthread_barrier_wait(&barrier);
	assert_int_equal(pthread_join(thread, NULL), 0);
	return policy;
}

static void test_usual(void **state)
{
	sigset_t signals;

	assert_int_equal(policy_of(thread_create, &signals), SCHED_OTHER);
	assert_int_equal(sigismember(&signals, SIGTERM), 1);
	assert_int_equal(policy_of(thread_start, &signals), SCHED_BATCH);
	assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
	assert_int_equal(sigismember(&signals, SIGTERM), 1);
	/* But for those of faults, which the program's own handler is to get. */
	assert_int_equal(sigismember(&signals, SIGSEGV), 0);
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &signals), 0);
	assert_int_equal(sigismember(&signals, SIGTERM), 0);
}

static void *start_idle(void *result)
{
	const struct sched_param none = { 0 };
	sigset_t signals;

	if (!pthread_setschedparam(pthread_self(), SCHED_IDLE, &none))
		*(int *)result = policy_of(thread_start, &signals);
	return NULL;
}

/* A policy that a thread has chosen is for the threads that it starts, too. */
static void test_chosen(void **state)
{
	pthread_t thread;
	int policy = -1;

	assert_int_equal(pthread_create(&thread, NULL, start_idle, &policy), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(policy, SCHED_IDLE);
}

static void test_none(void **state)
{
	pthread_t thread;
	sigset_t signals;

	fail_every("pthread_create", EAGAIN);
	assert_int_equal(thread_start(&thread, "actmem-test", body, &signals), EAGAIN);
	fail_nothing();
	assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &signals), 0);
	assert_int_equal(sigismember(&signals, SIGTERM), 0);
}

/* Only the last of nested calls lets the thread be cancelled again. */
static void test_cancellation(void **state)
{
	int was;

	thread_hold_cancellation();
	thread_hold_cancellation();
	thread_let_cancellation();
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	assert_int_equal(was, PTHREAD_CANCEL_DISABLE);
	thread_let_cancellation();
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &was);
	assert_int_equal(was, PTHREAD_CANCEL_ENABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_usual),
		cmocka_unit_test(test_chosen),
		cmocka_unit_test(test_none),
		cmocka_unit_test(test_cancellation),
	};

	pthread_barrier_init(&barrier, NULL, 2);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
