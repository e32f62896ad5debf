/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Events: who waits for one waits for the last record that there was when he began,
 * whatever is recorded by it later, on that stream or another.
 */
#include <stdlib.h>

#include "standin.h"

/* A primary context that was reset is another one, at the same address. */
struct owner {
	CUcontext context;
	unsigned long long id;
};

struct CUevent_st {
	struct CUevent_st *next;
	struct owner owner;
	unsigned int flags;
	bool alive;
	struct record *last;		/* NULL: none */
};

struct record {
	struct owner owner;
	bool reached;
	bool captured;			/* by a stream that was: none can wait for it */
	unsigned int users;
};

static struct CUevent_st *events;

static bool is_alive(const struct owner *owner)
{
	return owner->context->alive && owner->context->id == owner->id;
}

void event_count(struct standin_counts *counts)
{
	const struct CUevent_st *event;

	for (event = events; event; event = event->next)
		counts->events += event->alive && is_alive(&event->owner);
}

void record_put(struct record *record)
{
	if (record && !--record->users)
		free(record);
}

static struct record *record_get(struct record *record)
{
	if (record)
		record->users++;
	return record;
}

bool record_is_reached(const struct record *record)
{
	return !record || record->reached || !is_alive(&record->owner);
}

void record_reach(struct record *record)
{
	record->reached = true;
}

static CUresult check(CUevent handle)
{
	const struct CUevent_st *event = events;
	CUresult result = usable_context(NULL);

	if (result)
		return result;
	while (event && event != handle)
		event = event->next;
	if (!event || !event->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	return is_alive(&event->owner) ? event->owner.context->poison :
	       CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

/* Of one that is to be waited for, or asked. */
static CUresult check_recorded(CUevent handle)
{
	CUresult result = check(handle);

	if (!result && handle->last && handle->last->captured)
		return CUDA_ERROR_CAPTURED_EVENT;
	return result;
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	const unsigned int known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
	struct CUevent_st *event;
	CUcontext context = NULL;

	ENTER();
	TRY(phEvent && !(Flags & ~known) ? usable_context(&context) : CUDA_ERROR_INVALID_VALUE);
	event = calloc(1, sizeof(*event));
	if (!event)
		return CUDA_ERROR_OUT_OF_MEMORY;
	event->owner = (struct owner){ context, context->id };
	event->flags = Flags;
	event->alive = true;
	event->next = events;
	events = event;
	*phEvent = event;
	return CUDA_SUCCESS;
}

/* A thread that waits for it still does. */
CUresult cuEventDestroy_v2(CUevent hEvent)
{
	ENTER();
	TRY(check(hEvent));
	hEvent->alive = false;
	record_put(hEvent->last);
	hEvent->last = NULL;
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
	struct operation operation = {
		.kind = OPERATION_RECORD,
		.name = "cuEventRecord",
	};
	CUresult result;

	ENTER_AS(operation.name);
	TRY(check(hEvent));
	TRY(stream_check(hStream));
	if (hEvent->owner.context != stream_context(hStream))
		return CUDA_ERROR_INVALID_HANDLE;
	operation.record = calloc(1, sizeof(*operation.record));
	if (!operation.record)
		return CUDA_ERROR_OUT_OF_MEMORY;
	operation.record->owner = hEvent->owner;
	operation.record->captured = stream_is_captured(hStream);
	operation.record->users = 2;
	result = stream_do(hStream, &operation);
	if (result) {
		free(operation.record);
		return result;
	}
	record_put(hEvent->last);
	hEvent->last = operation.record;
	return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	struct operation operation = {
		.kind = OPERATION_WAIT,
		.name = "cuStreamWaitEvent",
	};
	CUresult result;

	ENTER_AS(operation.name);
	TRY(Flags & ~CU_EVENT_WAIT_EXTERNAL ? CUDA_ERROR_INVALID_VALUE :
		 check_recorded(hEvent));
	TRY(stream_check(hStream));
	operation.record = record_get(hEvent->last);
	result = stream_do(hStream, &operation);
	if (result)
		record_put(operation.record);
	return result;
}

/* One that was never recorded is reached. */
CUresult cuEventQuery(CUevent hEvent)
{
	ENTER();
	TRY(check_recorded(hEvent));
	return record_is_reached(hEvent->last) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent hEvent)
{
	CUresult result = CUDA_SUCCESS;
	struct record *record;

	ENTER();
	TRY(check_recorded(hEvent));
	record = record_get(hEvent->last);
	while (!result && !record_is_reached(record)) {
		wait_for_change();
		result = check(hEvent);
	}
	record_put(record);
	return result;
}
