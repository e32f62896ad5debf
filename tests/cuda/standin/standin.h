/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The inside of the stand-in for libcuda.so.1: devices without memory of their own,
 * contexts, and host memory that is registered or allocated. It keeps the states
 * and gives the errors that cuda.h tells of; it computes nothing.
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
	unsigned int retained;
};

struct range {
	struct range *next;
	char *base;
	size_t bytes;
	unsigned int flags;
	CUcontext context;
	bool allocated;			/* else registered */
};

/*
 * Begins a call: takes the lock, which leave() gives back and returns @result. What
 * is not 0 is why it fails at once: not initialised, or a test wants it to.
 */
CUresult enter(const char *function);
CUresult leave(CUresult result);

/* Under the lock. The context that is current to this thread, or why none can be used. */
CUresult usable_context(CUcontext *context);

/* Lets go of all host memory of a context, as its end does. */
void memory_end_context(CUcontext context);

void memory_count(struct standin_counts *counts);
void context_count(struct standin_counts *counts);

/* As the environment says, when CUDA is initialised. */
CUresult context_configure(void);
bool setting_is(const char *name, const char *value);

extern int device_count;

#endif /* STANDIN_H */
