/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The threads that run calls that can wait for the store; see waiting.h. Each such call is a job.
 * Each job has a thread of its own, because jobs may wait for each other. After a job, its thread
 * waits for the next job. A new thread is started only if every thread has a job.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/base.h"
#include "xla/forked.h"
#include "xla/waiting.h"

#define THREADS_MAX	64

struct job {
	struct job *next;
	const XLA_FFI_Api *api;
	XLA_FFI_Future *future;
	waiting_function *function;
	struct call call;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t jobs_come = PTHREAD_COND_INITIALIZER;
static struct job *jobs, **last_job = &jobs;
static unsigned int threads;
static unsigned int idle;		/* threads without a job, minus the jobs in the list */

static bool waiting_is_free(void)
{
	return forked_lock_is_free(&lock) && !threads;
}
FORKED_WATCH(waiting_is_free)

/* Runs a job and completes its future. XLA may continue its program on this thread. */
static void job_run(struct job *job)
{
	XLA_FFI_Error *error = job->function(job->api, &job->call);
	XLA_FFI_Future *future = job->future;
	const XLA_FFI_Api *api = job->api;

	free(job);
	ffi_future_end(api, future, error);
}

static void *waiting_thread(void *data)
{
	struct job *job;

	(void)data;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!jobs)
			pthread_cond_wait(&jobs_come, &lock);
		job = jobs;
		jobs = job->next;
		if (!jobs)
			last_job = &jobs;
		pthread_mutex_unlock(&lock);
		job_run(job);
		pthread_mutex_lock(&lock);
		idle++;
	}
	return NULL;
}

/*
 * Reserves an idle thread for a job, or starts a new thread. Returns false on failure. Caller holds
 * the lock.
 */
static bool find_thread(void)
{
	pthread_t thread;

	if (idle) {
		idle--;
		return true;
	}
	if (threads == THREADS_MAX || thread_start(&thread, "actmem-wait", waiting_thread, NULL))
		return false;
	pthread_detach(thread);
	threads++;
	return true;
}

static bool job_start(struct job *job)
{
	bool found;

	pthread_mutex_lock(&lock);
	found = find_thread();
	if (found) {
		job->next = NULL;
		*last_job = job;
		last_job = &job->next;
		pthread_cond_signal(&jobs_come);
	}
	pthread_mutex_unlock(&lock);
	return found;
}

XLA_FFI_Error *waiting_run(XLA_FFI_CallFrame *frame, const struct call *call,
			   waiting_function *function)
{
	struct job *job = is_forked() ? NULL : malloc(sizeof(*job));
	XLA_FFI_Future *future = job ? ffi_future(frame) : NULL;

	if (!future) {
		free(job);
		return function(frame->api, call);
	}
	/* XLA keeps the operands and attributes until the future is completed. */
	*job = (struct job){ .api = frame->api, .future = future, .function = function,
			     .call = *call };
	frame->future = future;
	if (!job_start(job))
		job_run(job);
	return NULL;
}
