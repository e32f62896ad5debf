/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the tests of the malloc mode share. The programs run under it, with
 * ACTMEM_MALLOC_MIN=1M unless they say otherwise.
 */
#ifndef TESTS_MALLOC_TEST_H
#define TESTS_MALLOC_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../common/tap.h"
#include "watch/watch.h"

#define MIB	(1UL << 20)

/* What this process publishes; all zero before its first large block. */
struct malloc_counters counters_now(void);

/* Resident bytes of this process's large blocks and their pools, by the kernel's word. */
size_t resident_bytes(void);

/* Different for each @seed, everywhere. */
void fill(void *memory, size_t bytes, unsigned int seed);
bool is_filled(const void *memory, size_t bytes, unsigned int seed);
bool is_zero(const void *memory, size_t bytes);

/* Whether the child ended with status 0; @body's result is that status's opposite. */
bool in_child(bool (*body)(void));

#endif /* TESTS_MALLOC_TEST_H */
