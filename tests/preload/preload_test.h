/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of the preload share. They are programs that use CUDA and know nothing
 * of it, but that they look at whose functions they have. Where ACTMEM_CUDA is 0 they
 * are to have the driver's own.
 */
#ifndef PRELOAD_TEST_H
#define PRELOAD_TEST_H

#include <stdbool.h>

#include "../cuda/cuda_test.h"

/* The names that dlsym() is to find in the preload, and cuGetProcAddress(), to NULL. */
extern const char *const hooked_names[], *const hooked_addresses[];

/* Whether the preload is to be in front of CUDA. */
bool hooks_wanted(void);

/* One result: whether this is the preload's, if that is in front; else the driver's. */
#define is_hook(function, ...)								\
	is_of_file((function), hooks_wanted() ? "libactmem_preload.so" : "libcuda.so",	\
		   __FILE__, __LINE__, __VA_ARGS__)

/* One result: whether this is the driver's own. */
#define is_of_driver(function, ...)	\
	is_of_file((function), "libcuda.so", __FILE__, __LINE__, __VA_ARGS__)
bool is_of_file(const void *function, const char *wanted, const char *file, int line,
		const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The file of the library that has this address, without its folder; "" for none. */
const char *owner(const void *address);

/* A library of this test, from the folder that the program lies in, or bails out. */
void *part(const char *name, int flags);

/* One that must be there. */
void *symbol(void *handle, const char *name);

#endif /* PRELOAD_TEST_H */
