/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the operations for the best instruction set of this processor; see kernels.h.
 */
#include <stdatomic.h>
#include <string.h>

#include "update/kernels.h"

/* __builtin_cpu_supports() also checks that the kernel saves these registers. */
#if defined(__x86_64__)
#define HAS_AVX2	__builtin_cpu_supports("avx2")
#define HAS_AVX512								\
	(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&	\
	 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
#endif

static const struct kernels *_Atomic used;

static const struct kernels *find_named(const char *name)
{
#if defined(__x86_64__)
	if (!strcmp(name, "avx512"))
		return HAS_AVX512 ? &kernels_avx512 : NULL;
	if (!strcmp(name, "avx2"))
		return HAS_AVX2 ? &kernels_avx2 : NULL;
#endif
	return !strcmp(name, "baseline") ? &kernels_baseline : NULL;
}

bool kernels_use(const char *name)
{
	const struct kernels *found = name ? find_named(name) : NULL;

	atomic_store(&used, found);
	return found || !name;
}

const struct kernels *kernels_used(void)
{
	const struct kernels *kernels = atomic_load(&used);

	if (kernels)
		return kernels;
	kernels = find_named("avx512") ?: find_named("avx2") ?: &kernels_baseline;
	atomic_store(&used, kernels);
	return kernels;
}
