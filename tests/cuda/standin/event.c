/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Events: of each record there is a number, and an event is reached up to the one of
 * the last record that its stream has come to. Who waits waits for the last record
 * that there was when he began.
 */
#include <stdlib.h>

#include "standin.h"

struct CUevent_st {
	struct CUevent_st *next;
	CUcontext context;
	unsigned int flags;
	bool alive;
	unsigned int users;		/* operations */
	uint64_t recorded, reached;
};

static struct CUevent_st *events;

void event_count(struct standin_counts *counts)
{
	const struct CUevent_st *event;

	for (event = events; event; event = event->next)
		counts->events += event->alive && event->context->alive;
}

void event_put(CUevent event)
{
	event->users--;
}

bool event_is_reached(const struct operation *operation)
{
	return operation->event->reached >= operation->number || !operation->event->context->alive;
}

void event_reach(const struct operation *operation)
{
	if (operation->event->reached < operation->number)
		operation->event->reached = operation->number;
}

static CUresult check(CUevent handle)
{
	const struct CUevent_st *event = events;

	while (event && event != handle)
		event = event->next;
	if (!event || !event->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	return event->context->alive ? event->context->poison : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	const unsigned int known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
	CUresult result = enter("cuEventCreate");
	struct CUevent_st *event;
	CUcontext context = NULL;

	if (result)
		return result;
	result = phEvent && !(Flags & ~known) ? usable_context(&context) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		return leave(result);
	event = calloc(1, sizeof(*event));
	if (!event)
		return leave(CUDA_ERROR_OUT_OF_MEMORY);
	event->context = context;
	event->flags = Flags;
	event->alive = true;
	event->next = events;
	events = event;
	*phEvent = event;
	return leave(CUDA_SUCCESS);
}

/* Who waits for it still does. */
CUresult cuEventDestroy_v2(CUevent hEvent)
{
	CUresult result = enter("cuEventDestroy_v2");

	if (result)
		return result;
	result = check(hEvent);
	if (result != CUDA_ERROR_INVALID_HANDLE)
		hEvent->alive = false;
	return leave(result);
}

CUresult cuEventDestroy(CUevent hEvent)
{
	return cuEventDestroy_v2(hEvent);
}

CUresult cuEventRecord(CUevent hEvent, CUstream hStream)
{
	struct operation operation = {
		.kind = OPERATION_RECORD,
		.name = "cuEventRecord",
		.event = hEvent,
	};
	CUresult result = enter(operation.name);

	if (result)
		return result;
	result = check(hEvent);
	if (!result)
		result = stream_check(hStream);
	if (!result && hEvent->context != stream_context(hStream))
		result = CUDA_ERROR_INVALID_HANDLE;
	if (result)
		return leave(result);
	operation.number = hEvent->recorded + 1;
	result = stream_do(hStream, &operation);
	if (!result) {
		hEvent->recorded++;
		hEvent->users++;
	}
	return leave(result);
}

CUresult cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
	struct operation operation = {
		.kind = OPERATION_WAIT,
		.name = "cuStreamWaitEvent",
		.event = hEvent,
	};
	CUresult result = enter(operation.name);

	if (result)
		return result;
	result = Flags & ~CU_EVENT_WAIT_EXTERNAL ? CUDA_ERROR_INVALID_VALUE : check(hEvent);
	if (!result)
		result = stream_check(hStream);
	if (result)
		return leave(result);
	operation.number = hEvent->recorded;
	result = stream_do(hStream, &operation);
	if (!result)
		hEvent->users++;
	return leave(result);
}

/* One that was never recorded is reached. */
CUresult cuEventQuery(CUevent hEvent)
{
	CUresult result = enter("cuEventQuery");

	if (result)
		return result;
	result = check(hEvent);
	if (!result && hEvent->reached < hEvent->recorded)
		result = CUDA_ERROR_NOT_READY;
	return leave(result);
}

CUresult cuEventSynchronize(CUevent hEvent)
{
	CUresult result = enter("cuEventSynchronize");
	uint64_t number;

	if (result)
		return result;
	result = check(hEvent);
	if (result)
		return leave(result);
	number = hEvent->recorded;
	while (!result && hEvent->reached < number) {
		wait_for_change();
		result = check(hEvent);
	}
	return leave(result);
}
