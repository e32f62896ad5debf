/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The kernel's word on this machine and on this process, as JSON values: null where it
 * does not say, NULL for no memory.
 */
#ifndef ACTMEM_FACTS_H
#define ACTMEM_FACTS_H

#include <stdbool.h>
#include <jansson.h>

/* {"version", "abi", "abi_oldest"}: of uapi/actmem.h, as far as it goes back. */
json_t *facts_library(void);

/*
 * {"device", "error", "abi", "abi_oldest", "cgroup_limits", "regions",
 * "lingering_regions", "user_limit_bytes"}: cgroup_limits, whether the kernel has them.
 * The totals are there also for users who may not use the device. The limit, null for
 * none, is left out if the module has no limits.
 */
json_t *facts_driver(void);

/* {"error", "disabled"}: null if it can be used; kernel.io_uring_disabled. */
json_t *facts_io_uring(void);

/*
 * [{"path", "size_bytes", "used_bytes"}]: the driver's file systems, where this
 * process sees them mounted; null is no limit.
 */
json_t *facts_mounts(void);

/* {"enabled", "shmem_enabled"} of transparent huge pages. */
json_t *facts_thp(void);

/* {"soft_bytes", "hard_bytes"} of RLIMIT_MEMLOCK; null is no limit. */
json_t *facts_memlock(void);

/* {"version", "path", "limit_bytes", "used_bytes"}, or null without one. */
json_t *facts_memory_cgroup(void);

/*
 * [{"node", "total_bytes", "free_bytes", "huge_2M": {"total", "free"},
 * "huge_1G": {...}, "pool": {"total_bytes", "free_bytes", "lent_bytes"}, "regions",
 * "region_bytes", "lingering_bytes", "limit_bytes"}]: "huge_*" count pages, what
 * follows is the driver's.
 */
json_t *facts_nodes(void);

/* {"total_bytes", "available_bytes"}: what the kernel says of the machine; null if it does not. */
json_t *facts_memory(void);

/*
 * actmem_region_list() lists no region of a driver that cannot be asked. 0 if there
 * is none to miss; else the errno of actmem_open(), and its words.
 */
int driver_missing(void);

/* A container has no device of a module that was loaded after it began, and sees its sysfs. */
bool driver_lacks_device(void);

#endif
