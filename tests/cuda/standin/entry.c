/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What all calls have in common: the lock, initialisation, the process that did it,
 * failures that a test wants, names of errors, and the way to functions by name.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

#define FAILURES_MAX	4
#define EXPORT	__attribute__((visibility("default")))

EXPORT standin_counts_function standin_counts;
EXPORT standin_fail_function standin_fail;
EXPORT standin_slow_function standin_slow;
EXPORT standin_poison_function standin_poison;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static pid_t initialised_by;		/* 0: nobody yet */
static bool deinitialised;
static uint64_t calls;
static __thread uint64_t own_waits, own_registrations;

static struct failure {
	char function[64];
	unsigned int first, count;
	CUresult result;
} failures[FAILURES_MAX], poisons[FAILURES_MAX];

static struct delay {
	char function[64];
	unsigned int microseconds;
} delays[FAILURES_MAX];

static CUresult wanted_failure(struct failure *list, const char *function)
{
	struct failure *failure = list;

	while (failure < list + FAILURES_MAX &&
	       (!failure->count || strcmp(failure->function, function)))
		failure++;
	if (failure == list + FAILURES_MAX)
		return CUDA_SUCCESS;
	if (failure->first > 1) {
		failure->first--;
		return CUDA_SUCCESS;
	}
	failure->count--;
	return failure->result;
}

/* In the place of one that is over, or of the last. */
static void want_failure(struct failure *list, const char *function, unsigned int first,
			 unsigned int count, CUresult result)
{
	struct failure *failure = list;

	while (failure < list + FAILURES_MAX - 1 && failure->count)
		failure++;
	snprintf(failure->function, sizeof(failure->function), "%s", function);
	failure->first = first;
	failure->count = count;
	failure->result = result;
}

static CUresult state(const char *function)
{
	CUresult result = wanted_failure(failures, function);

	if (result)
		return result;
	if (stream_is_in_host_function())
		return CUDA_ERROR_NOT_PERMITTED;
	if (deinitialised)
		return CUDA_ERROR_DEINITIALIZED;
	if (initialised_by && initialised_by != getpid())
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!initialised_by && strcmp(function, "cuInit"))
		return CUDA_ERROR_NOT_INITIALIZED;
	return capture_forbids(function);
}

static void count_own(const char *function)
{
	own_waits += !strcmp(function, "cuEventSynchronize") ||
		     !strcmp(function, "cuStreamSynchronize") ||
		     !strcmp(function, "cuCtxSynchronize");
	own_registrations += !strcmp(function, "cuMemHostRegister_v2");
}

CUresult enter(const char *function)
{
	count_own(function);
	pthread_mutex_lock(&lock);
	calls++;
	return state(function);
}

void enter_quietly(void)
{
	pthread_mutex_lock(&lock);
}

void leave(void)
{
	pthread_mutex_unlock(&lock);
}

void wait_for_change(void)
{
	pthread_cond_wait(&change, &lock);
}

void announce_change(void)
{
	pthread_cond_broadcast(&change);
}

/* Threads of streams may be at it when the program forks. */
static void __attribute__((constructor)) mind_forks(void)
{
	pthread_atfork(enter_quietly, leave, leave);
}

bool setting_is(const char *name, const char *value)
{
	const char *text = getenv(name);

	return text && !strcmp(text, value);
}

static void take_failure_from_environment(void)
{
	const char *text = getenv("STANDIN_CUDA_FAIL");
	unsigned int first, result, count = 1;
	char function[64];

	if (text && sscanf(text, "%63[^:]:%u:%u:%u", function, &first, &result, &count) >= 3)
		want_failure(failures, function, first, count, (CUresult)result);
}

CUresult cuInit(unsigned int Flags)
{
	ENTER();
	if (Flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (initialised_by)
		return CUDA_SUCCESS;
	TRY(context_configure());
	take_failure_from_environment();
	initialised_by = getpid();
	return CUDA_SUCCESS;
}

/* Destructors that run later find it so, as they do with the real one. */
static void __attribute__((destructor)) deinitialise(void)
{
	deinitialised = true;
}

/* It needs no cuInit(). */
CUresult cuDriverGetVersion(int *driverVersion)
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

void standin_counts(struct standin_counts *counts)
{
	memset(counts, 0, sizeof(*counts));
	pthread_mutex_lock(&lock);
	counts->calls = calls;
	counts->own_waits = own_waits;
	counts->own_registrations = own_registrations;
	memory_count(counts);
	context_count(counts);
	device_count_memory(counts);
	stream_count(counts);
	event_count(counts);
	copy_count(counts);
	virtual_count(counts);
	pthread_mutex_unlock(&lock);
}

void standin_fail(const char *function, unsigned int first, unsigned int count,
		  unsigned int result)
{
	pthread_mutex_lock(&lock);
	if (count)
		want_failure(failures, function, first, count, (CUresult)result);
	else
		memset(failures, 0, sizeof(failures));
	pthread_mutex_unlock(&lock);
}

void standin_slow(const char *function, unsigned int microseconds)
{
	struct delay *delay = delays;

	pthread_mutex_lock(&lock);
	while (delay < delays + FAILURES_MAX - 1 && delay->microseconds &&
	       strcmp(delay->function, function))
		delay++;
	snprintf(delay->function, sizeof(delay->function), "%s", function);
	delay->microseconds = microseconds;
	pthread_mutex_unlock(&lock);
}

unsigned int wanted_delay(const char *function)
{
	const struct delay *delay;

	for (delay = delays; delay < delays + FAILURES_MAX; delay++)
		if (!strcmp(delay->function, function))
			return delay->microseconds;
	return 0;
}

void standin_poison(const char *function, unsigned int first, unsigned int result)
{
	pthread_mutex_lock(&lock);
	want_failure(poisons, function, first, 1, (CUresult)result);
	pthread_mutex_unlock(&lock);
}

CUresult wanted_execution_failure(const char *function)
{
	return wanted_failure(poisons, function);
}

#define ERRORS(e)							\
	e(CUDA_SUCCESS, "no error")					\
	e(CUDA_ERROR_INVALID_VALUE, "invalid argument")			\
	e(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")			\
	e(CUDA_ERROR_NOT_INITIALIZED, "initialization error")		\
	e(CUDA_ERROR_DEINITIALIZED, "driver shutting down")		\
	e(CUDA_ERROR_STUB_LIBRARY, "CUDA driver is a stub library")	\
	e(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable")	\
	e(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected")	\
	e(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal")		\
	e(CUDA_ERROR_INVALID_CONTEXT, "invalid device context")		\
	e(CUDA_ERROR_OPERATING_SYSTEM, "OS call failed or operation not supported on this OS")	\
	e(CUDA_ERROR_ECC_UNCORRECTABLE, "uncorrectable ECC error encountered")	\
	e(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle")		\
	e(CUDA_ERROR_NOT_READY, "device not ready")			\
	e(CUDA_ERROR_NOT_FOUND, "named symbol not found")		\
	e(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered")	\
	e(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, "primary context is active")	\
	e(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed")	\
	e(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,			\
	  "part or all of the requested memory range is already mapped")	\
	e(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,			\
	  "pointer does not correspond to a registered memory region")	\
	e(CUDA_ERROR_NOT_PERMITTED, "operation not permitted")		\
	e(CUDA_ERROR_NOT_SUPPORTED, "operation not supported")		\
	e(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized")	\
	e(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination")	\
	e(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing")	\
	e(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,			\
	  "operation failed due to a previous error during capture")	\
	e(CUDA_ERROR_CAPTURED_EVENT,					\
	  "operation not permitted on an event last recorded in a capturing stream")	\
	e(CUDA_ERROR_UNKNOWN, "unknown error")

static const struct {
	CUresult error;
	const char *name, *text;
} errors[] = {
#define ERROR_ENTRY(code, words)	{ code, #code, words },
	ERRORS(ERROR_ENTRY)
#undef ERROR_ENTRY
};

static CUresult look_up(CUresult error, const char **into, size_t field)
{
	size_t i;

	if (!into)
		return CUDA_ERROR_INVALID_VALUE;
	*into = NULL;
	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		if (errors[i].error == error) {
			*into = field ? errors[i].text : errors[i].name;
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
	return look_up(error, pStr, 0);
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
	return look_up(error, pStr, 1);
}
