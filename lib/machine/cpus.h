/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Sets of CPUs: those of a node, those that the process may use, and the number of a set's cores.
 */
#ifndef LIB_MACHINE_CPUS_H
#define LIB_MACHINE_CPUS_H

#include <sched.h>
#include <stdbool.h>

#define CPUS_MAX	8192

struct cpus {
	unsigned long word[CPUS_MAX / (8 * sizeof(unsigned long))];
};

/*
 * Casts the set for sched_setaffinity(2) and the macros CPU_*_S(), whose size argument is
 * sizeof(*cpus).
 */
static inline cpu_set_t *cpus_set(struct cpus *cpus)
{
	return (cpu_set_t *)cpus;
}

/* Keeps only the CPUs that are in @list, such as "0-3,8". Returns false if the list is invalid. */
bool cpus_keep_listed(struct cpus *cpus, const char *list);

/* Keeps only the CPUs of @node. Returns false if sysfs does not list the node's CPUs. */
bool cpus_keep_node(struct cpus *cpus, unsigned int node);

/*
 * Stores the CPUs on which the first thread of the process may run. Other threads may be restricted
 * to other CPUs. Returns 0 or -errno, without an error message.
 */
int cpus_of_process(struct cpus *cpus);

/* Returns the number of cores: hyperthreads of one core count once. */
unsigned int cpus_count_cores(struct cpus *cpus);

#endif /* LIB_MACHINE_CPUS_H */
