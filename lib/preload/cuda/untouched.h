/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * For a range of this process's memory, reports the memory policy, and whether any page was touched
 * (read or written).
 */
#ifndef LIB_PRELOAD_CUDA_UNTOUCHED_H
#define LIB_PRELOAD_CUDA_UNTOUCHED_H

#include <stdbool.h>
#include <stddef.h>

#include "actmem.h"

/* A memory policy, as mbind(2) sets it. */
struct cuda_policy {
	int mode;			/* MPOL_*, with its flags; MPOL_DEFAULT: no policy */
	struct actmem_nodes nodes;
};

/* Stores the policy of the page at @address, or MPOL_DEFAULT if the kernel does not report it. */
void cuda_policy_of(struct cuda_policy *policy, const void *address);

/*
 * Returns true if the range is private anonymous memory that can be read and written, and no page
 * of it was touched. The range must consist of whole pages. The function also returns false if the
 * range is only a part of a mapping and has no policy, such as a block of malloc(). If @is_verbose
 * is set, prints a line if the range is a file in /dev/shm.
 */
bool cuda_is_untouched(const void *address, size_t bytes, const struct cuda_policy *policy,
		       bool is_verbose);

#endif /* LIB_PRELOAD_CUDA_UNTOUCHED_H */
