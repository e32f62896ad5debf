/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Streams: each has a thread that does its operations one after the other, while the
 * caller goes on. Whatever two streams do is ordered by events alone, so that a missing
 * one is seen as wrong bytes, above all where a test makes some operations slow.
 *
 * On a card, streams share a few hardware queues. A queue begins its operations in the order in
 * which they were submitted, whatever their streams, and several may run at once. But an
 * operation that has to wait, for an event, for a word, or for the operation before it in
 * its stream, holds up all that is behind it in the queue. A host function does, too.
 * With STANDIN_CUDA_QUEUES it is so here, and a program hangs if what ends a wait is queued
 * behind that wait.
 *
 * What a handle was of is remembered after its end, as with contexts.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "standin.h"

struct CUstream_st {
	struct CUstream_st *next;
	CUcontext context;
	CUcontext green;		/* of that one, or NULL */
	unsigned int flags;
	unsigned int queue;		/* of its context */
	bool alive;			/* for its user */
	bool working;			/* its thread is there */
	const struct operation *executing;	/* without the lock */
	struct operation *first, **last;
};

static struct CUstream_st *streams;
static unsigned long long submitted;		/* operations */
static __thread bool in_host_function;

void stream_count(struct standin_counts *counts)
{
	const struct CUstream_st *stream;
	const struct operation *operation;

	for (stream = streams; stream; stream = stream->next) {
		counts->streams += stream->alive || stream->working;
		counts->operations += !!stream->executing;
		for (operation = stream->first; operation; operation = operation->next)
			counts->operations++;
	}
}

bool stream_is_in_host_function(void)
{
	return in_host_function;
}

static bool is_idle(const struct CUstream_st *stream)
{
	return !stream->first && !stream->executing;
}

void streams_wait_idle(CUcontext context, bool blocking_only)
{
	const struct CUstream_st *stream = streams;

	while (stream) {
		if (stream->context != context || is_idle(stream) ||
		    (blocking_only && stream->flags & CU_STREAM_NON_BLOCKING)) {
			stream = stream->next;
		} else {
			wait_for_change();
			stream = streams;
		}
	}
}

void streams_wait_executing(void)
{
	const struct CUstream_st *stream = streams;

	while (stream) {
		if (stream->executing) {
			wait_for_change();
			stream = streams;
		} else {
			stream = stream->next;
		}
	}
}

static void free_operation(struct operation *operation)
{
	record_put(operation->record);
	free(operation);
}

void streams_end_context(CUcontext context)
{
	struct CUstream_st *stream;
	struct operation *operation;

	for (stream = streams; stream; stream = stream->next) {
		if (stream->context != context)
			continue;
		stream->alive = false;
		while (stream->first) {
			operation = stream->first;
			stream->first = operation->next;
			free_operation(operation);
		}
		stream->last = &stream->first;
	}
	announce_change();
	streams_wait_executing();
}

void sleep_for(unsigned int microseconds)
{
	struct timespec time = {
		.tv_sec = microseconds / 1000000,
		.tv_nsec = (long)(microseconds % 1000000) * 1000,
	};

	if (microseconds)
		nanosleep(&time, NULL);
}

/* Without the lock. The host writes the word, and tells nobody. */
static void wait_for_word(const struct CUstream_st *stream, const struct operation *operation)
{
	const unsigned int *word = (const unsigned int *)operation->from;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != operation->value &&
	       __atomic_load_n(&stream->alive, __ATOMIC_RELAXED) &&
	       !__atomic_load_n(&stream->context->poison, __ATOMIC_RELAXED))
		sleep_for(20);
}

/* Without the lock. */
static void execute(const struct CUstream_st *stream, const struct operation *operation)
{
	size_t i;

	sleep_for(operation->delay);
	switch (operation->kind) {
	case OPERATION_COPY:
		memmove(operation->to, operation->from, operation->bytes);
		break;
	case OPERATION_FILL:
		for (i = 0; i < operation->bytes; i += operation->width)
			memcpy(operation->to + i, &operation->value, operation->width);
		break;
	case OPERATION_WAIT_VALUE:
		wait_for_word(stream, operation);
		break;
	case OPERATION_HOST_FUNCTION:
		in_host_function = true;
		operation->function(operation->data);
		in_host_function = false;
		break;
	default:
		break;
	}
}

/* Returns the oldest operation of a stream that still holds up its queue, or NULL. */
static const struct operation *oldest_of(const struct CUstream_st *stream)
{
	const struct operation *executing = stream->executing;

	if (executing && (executing->kind == OPERATION_WAIT_VALUE ||
			  executing->kind == OPERATION_HOST_FUNCTION))
		return executing;
	return stream->first;
}

/* Returns whether an operation of another stream is ahead of the next one in its queue. */
static bool is_held_up(const struct CUstream_st *stream)
{
	const struct CUstream_st *other;
	const struct operation *oldest;

	for (other = streams; other; other = other->next) {
		if (other == stream || other->context != stream->context ||
		    other->queue != stream->queue)
			continue;
		oldest = oldest_of(other);
		if (oldest && oldest->number < stream->first->number)
			return true;
	}
	return false;
}

/* Under the lock. What is not NULL is to be done, and is in no queue any more. */
static struct operation *next_operation(struct CUstream_st *stream)
{
	struct operation *operation = stream->first;

	if (!operation || is_held_up(stream) ||
	    (operation->kind == OPERATION_WAIT && !record_is_reached(operation->record) &&
	     !stream->context->poison))
		return NULL;
	stream->first = operation->next;
	if (!stream->first)
		stream->last = &stream->first;
	return operation;
}

static void *work(void *data)
{
	struct CUstream_st *stream = data;
	struct operation *operation;
	CUresult failure;

	enter_quietly();
	while (stream->alive || stream->first) {
		operation = next_operation(stream);
		if (!operation) {
			wait_for_change();
			continue;
		}
		/* Nothing is done any more after an error. */
		failure = stream->context->poison ? stream->context->poison :
			  operation_failure(operation);
		if (failure)
			stream->context->poison = failure;
		if (!failure) {
			stream->executing = operation;
			/* It holds up its queue no longer, unless it is a wait. */
			announce_change();
			leave();
			execute(stream, operation);
			enter_quietly();
			stream->executing = NULL;
		}
		if (operation->kind == OPERATION_RECORD)
			record_reach(operation->record);
		free_operation(operation);
		announce_change();
	}
	stream->working = false;
	announce_change();
	leave();
	return NULL;
}

static CUresult start(struct CUstream_st *stream)
{
	sigset_t all, before;
	pthread_attr_t attributes;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, &attributes, work, stream);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return error ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult stream_check(CUstream handle)
{
	const struct CUstream_st *stream = streams;

	while (stream && stream != handle)
		stream = stream->next;
	if (!stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!stream->context->alive || (stream->green && !stream->green->alive))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	return stream->alive ? stream->context->poison : CUDA_ERROR_INVALID_HANDLE;
}

CUresult stream_use(CUstream handle)
{
	CUresult result = usable_context(NULL);

	return result ? result : stream_check(handle);
}

CUcontext stream_context(CUstream stream)
{
	return stream->context;
}

CUresult stream_do(CUstream stream, const struct operation *wanted)
{
	struct operation *operation;

	/* It would be done when what is captured is launched. */
	if (stream_is_captured(stream)) {
		record_put(wanted->record);
		return CUDA_SUCCESS;
	}
	operation = malloc(sizeof(*operation));
	if (!operation)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*operation = *wanted;
	operation->number = submitted++;
	operation->delay = wanted_delay(wanted->name);
	*stream->last = operation;
	stream->last = &operation->next;
	announce_change();
	return CUDA_SUCCESS;
}

CUresult stream_wait_idle(CUstream stream)
{
	CUresult result;

	for (;;) {
		result = stream_check(stream);
		if (result || is_idle(stream))
			return result;
		wait_for_change();
	}
}

/* Returns the queue of the next stream of a context. */
static unsigned int next_queue(CUcontext context)
{
	const char *text = getenv("STANDIN_CUDA_QUEUES");
	unsigned int queues = text ? (unsigned int)atoi(text) : 0, number = context->streams++;

	return queues ? number % queues : number;
}

static CUresult create_stream(CUstream *phStream, unsigned int flags, CUcontext context,
			      CUcontext green)
{
	struct CUstream_st *stream = calloc(1, sizeof(*stream));
	CUresult result;

	if (!stream)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->context = context;
	stream->green = green;
	stream->flags = flags;
	stream->queue = next_queue(context);
	stream->last = &stream->first;
	stream->alive = true;
	stream->working = true;
	result = start(stream);
	if (result) {
		free(stream);
		return result;
	}
	stream->next = streams;
	streams = stream;
	*phStream = stream;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	CUcontext context = NULL;

	ENTER();
	TRY(phStream && !(flags & ~CU_STREAM_NON_BLOCKING) ? usable_context(&context) :
		 CUDA_ERROR_INVALID_VALUE);
	return create_stream(phStream, flags, context, NULL);
}

CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags,
				int priority)
{
	CUcontext green = (CUcontext)greenCtx;

	ENTER();
	TRY(phStream && flags == CU_STREAM_NON_BLOCKING ? green_check(greenCtx) :
		 CUDA_ERROR_INVALID_VALUE);
	return create_stream(phStream, flags, green->green_of, green);
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	return cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
	ENTER();
	TRY(usable_context(NULL));
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = -5;
	return CUDA_SUCCESS;
}

/* What it has to do is still done, later. */
CUresult cuStreamDestroy_v2(CUstream hStream)
{
	ENTER();
	TRY(stream_use(hStream));
	capture_drop(hStream);
	hStream->alive = false;
	announce_change();
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream hStream)
{
	ENTER();
	TRY(stream_use(hStream));
	TRY(capture_forbids_waiting(NULL, hStream));
	return stream_wait_idle(hStream);
}

CUresult cuStreamQuery(CUstream hStream)
{
	ENTER();
	TRY(stream_use(hStream));
	TRY(capture_forbids_waiting(NULL, hStream));
	return is_idle(hStream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
	ENTER();
	TRY(pctx ? stream_check(hStream) : CUDA_ERROR_INVALID_VALUE);
	*pctx = hStream->green ? hStream->green : hStream->context;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx)
{
	ENTER();
	TRY(pCtx && pGreenCtx ? stream_check(hStream) : CUDA_ERROR_INVALID_VALUE);
	*pCtx = hStream->context;
	*pGreenCtx = (CUgreenCtx)hStream->green;
	return CUDA_SUCCESS;
}

/* Of what it can wait for, an equal word alone. */
CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
				unsigned int flags)
{
	struct operation operation = {
		.kind = OPERATION_WAIT_VALUE,
		.name = "cuStreamWaitValue32_v2",
		.value = value,
	};
	const char *host = NULL;

	ENTER_AS(operation.name);
	TRY(stream_use(stream));
	TRY(flags == CU_STREAM_WAIT_VALUE_EQ ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
	operation.from = memory_of(addr, sizeof(value), &host);
	TRY(operation.from && !(addr % sizeof(value)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	return stream_do(stream, &operation);
}

/* XLA 0.11 calls it where no context is current, so that the driver minds only the stream. */
CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
	struct operation operation = {
		.kind = OPERATION_HOST_FUNCTION,
		.name = "cuLaunchHostFunc",
		.function = fn,
		.data = userData,
	};

	ENTER_AS(operation.name);
	TRY(fn ? stream_check(hStream) : CUDA_ERROR_INVALID_VALUE);
	return stream_do(hStream, &operation);
}
