/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What this process's memory cgroup still lets it have.
 */
#ifndef LIB_CGROUP_H
#define LIB_CGROUP_H

#include <stdint.h>

#define CGROUP_PATH_MAX	512

/*
 * Bytes that this process's memory cgroup and those above it still allow,
 * the page cache that they could drop included. UINT64_MAX if nothing limits
 * it or the limit cannot be read. @knob: the file of the narrowest limit.
 */
uint64_t cgroup_available_bytes(char knob[CGROUP_PATH_MAX]);

#endif /* LIB_CGROUP_H */
