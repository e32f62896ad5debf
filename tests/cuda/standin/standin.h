/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The inside of the stand-in for libcuda.so.1: devices, contexts, host memory that is
 * registered or allocated, devices' memory, streams and events. It keeps the states
 * and gives the errors that cuda.h tells of; it copies, and computes nothing.
 *
 * Streams are those that are created: the default ones are not there. Whatever uses
 * streams and events wants a current context, cuStreamGetCtx() excepted: the real one
 * may be less strict.
 *
 * cuda.h is read as its owner reads it, with every version of each function, so
 * that the compiler compares them all.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#pragma GCC visibility pop

#include "control.h"

#define DEVICES_MAX	8
#define DRIVER_VERSION	13000

struct CUctx_st {
	struct CUctx_st *next;
	unsigned long long id;
	CUdevice device;
	unsigned int flags;
	bool primary;
	bool alive;
	struct CUctx_st *green_of;	/* of a green one: the primary context; else NULL */
	unsigned int retained;
	unsigned int streams;		/* created in it: the next one's queue follows */
	CUresult poison;		/* what an operation failed by: all that follows does */
};

struct record;

/* What a stream does; the one thing that is not of it stays 0. */
struct operation {
	struct operation *next;
	enum {
		OPERATION_COPY,
		OPERATION_FILL,
		OPERATION_RECORD,
		OPERATION_WAIT,
		OPERATION_WAIT_VALUE,
		OPERATION_HOST_FUNCTION,
	} kind;
	const char *name;		/* of the call */
	unsigned long long number;	/* in the order in which all operations are submitted */
	unsigned int delay;		/* microseconds */
	char *to;
	const char *from;
	size_t bytes;
	bool to_device, from_device;
	const char *pinned;		/* host memory that is to be so until then */
	unsigned int value;
	size_t width;			/* of it */
	struct record *record;		/* of an event */
	CUhostFn function;
	void *data;
};

/* Memory of the host that is registered or allocated, or what a device's lies behind. */
struct range {
	struct range *next;
	char *base;
	size_t bytes;
	unsigned int flags;
	CUcontext context;
	bool allocated;			/* and unmapped with it; else registered, or mapped */
};

/* The link to the range of a list that an address is in, or to the end. */
struct range **range_find(struct range **list, const char *address);
CUresult range_add(struct range **list, const struct range *wanted);
void range_drop(struct range **link);
void ranges_end_context(struct range **list, CUcontext context);

/* The lock alone. */
void enter_quietly(void);
void leave(void);

/* Takes the lock; what is not 0 is why a call fails: not initialised, or a test wants it to. */
CUresult enter(const char *function);

static inline void leave_call(const CUresult *unused)
{
	leave();
}

/* Begins a call, which has the lock until it returns; and it returns at once if it fails. */
#define ENTER_AS(function)							\
	CUresult entered __attribute__((cleanup(leave_call))) = enter(function);	\
	TRY(entered)
#define ENTER()	ENTER_AS(__func__)

/* Returns what is an error. */
#define TRY(result)								\
	do {									\
		CUresult tried = (result);					\
										\
		if (tried)							\
			return tried;						\
	} while (0)

/* Under the lock, which is given back until anything has changed; and that it has. */
void wait_for_change(void);
void announce_change(void);

/* Under the lock. The context that is current to this thread, or why none can be used. */
CUresult usable_context(CUcontext *context);

/* Why it cannot be used as a green context. */
CUresult green_check(CUgreenCtx green);

/* Lets go of all host memory of a context, as its end does. */
void memory_end_context(CUcontext context);

/*
 * All of it is registered or allocated, at once: copies of what is so by parts, or of which
 * a part is, fail.
 */
bool memory_is_pinned(const char *address, size_t bytes);
bool memory_is_partly_pinned(const char *address, size_t bytes);

/* Where devices have host memory. */
CUdeviceptr device_address(const char *address);

/*
 * Pinned memory too has an address that devices use, the host's own: it can stand where
 * a device's does. *@host is that memory, else as it was.
 */
char *memory_of(CUdeviceptr address, size_t bytes, const char **host);

/* Where a device's memory is; NULL if not all of it is its. */
char *device_memory(CUdeviceptr address, size_t bytes);
bool device_has_shadow(const char *shadow);
CUcontext device_memory_context(CUdeviceptr address);
CUresult device_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address);
void device_end_context(CUcontext context);
size_t device_free_bytes(CUdevice device);

/* Memory that is there by other means, behind device_of_shadow(), and no more. */
CUdeviceptr device_of_shadow(const char *shadow);
char *device_shadow(CUdeviceptr address);
CUresult device_map(char *shadow, size_t bytes, CUcontext context);
void device_unmap(const char *shadow);

/* 0, or why the stream cannot be used; or neither it nor any, for want of a context. */
CUresult stream_check(CUstream stream);
CUresult stream_use(CUstream stream);
CUcontext stream_context(CUstream stream);
CUresult stream_do(CUstream stream, const struct operation *operation);
CUresult stream_wait_idle(CUstream stream);
void streams_wait_idle(CUcontext context, bool blocking_only);
void streams_wait_executing(void);
void streams_end_context(CUcontext context);
bool stream_is_in_host_function(void);

/*
 * Streams that are captured: what they do is not done. Whether a call is forbidden by that,
 * for it is unsafe, or waits: for a stream, or, without one, for a context.
 */
bool stream_is_captured(CUstream stream);
CUresult capture_forbids(const char *function);
CUresult capture_forbids_waiting(CUcontext context, CUstream stream);
void capture_drop(CUstream stream);
void captures_end_context(CUcontext context);

/* NULL: of an event that was never recorded. */
void record_put(struct record *record);
bool record_is_reached(const struct record *record);
void record_reach(struct record *record);

/* Why it cannot be done, now that it is due. */
CUresult operation_failure(const struct operation *operation);

/* What a test wants of a function's operations. */
CUresult wanted_execution_failure(const char *function);
unsigned int wanted_delay(const char *function);
void sleep_for(unsigned int microseconds);

void memory_count(struct standin_counts *counts);
void context_count(struct standin_counts *counts);
void stream_count(struct standin_counts *counts);
void event_count(struct standin_counts *counts);
void device_count_memory(struct standin_counts *counts);
void copy_count(struct standin_counts *counts);
void virtual_count(struct standin_counts *counts);

/* As the environment says, when CUDA is initialised. */
CUresult context_configure(void);
bool is_device(CUdevice device);
CUcontext primary_context(CUdevice device);
bool setting_is(const char *name, const char *value);

extern int device_count;

#endif /* STANDIN_H */
