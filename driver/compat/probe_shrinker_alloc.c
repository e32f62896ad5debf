// SPDX-License-Identifier: GPL-2.0
/* Is a shrinker allocated by the kernel, or registered as part of the module? */
#include <linux/mm.h>
#include <linux/shrinker.h>

int probe(struct shrinker *shrinker);
int probe(struct shrinker *shrinker)
{
#if PROBE
	shrinker = shrinker_alloc(SHRINKER_NUMA_AWARE, "%s", "probe");
	shrinker_register(shrinker);
	return 0;
#else
	return register_shrinker(shrinker, "%s", "probe");
#endif
}
