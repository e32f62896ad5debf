/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Facts from the kernel about this machine and this process, as JSON values. A value is null if the
 * kernel does not report it. The functions return NULL if out of memory.
 */
#ifndef ACTMEM_FACTS_H
#define ACTMEM_FACTS_H

#include <stdbool.h>
#include <jansson.h>

/*
 * {"version", "abi", "abi_oldest"}: "abi" and "abi_oldest" are the newest and the oldest ABI of
 * uapi/actmem.h that the library supports.
 */
json_t *facts_library(void);

/*
 * {"device", "error", "version", "abi", "abi_oldest", "cgroup_limits", "regions",
 * "lingering_regions", "user_limit_bytes"}. "cgroup_limits" says whether the kernel supports limits
 * by cgroup. The numbers of regions are present even if the user may not open the device.
 * "user_limit_bytes" is null if there is no limit, and absent if the module does not support user
 * limits.
 */
json_t *facts_driver(void);

/*
 * {"error", "disabled"}: error is null if io_uring can be used; disabled is
 * kernel.io_uring_disabled.
 */
json_t *facts_io_uring(void);

/*
 * [{"path", "size_bytes", "used_bytes"}]: the driver's file systems in this process's mount
 * namespace. A null size means no limit.
 */
json_t *facts_mounts(void);

/* {"enabled", "shmem_enabled"} of transparent huge pages. */
json_t *facts_thp(void);

/* {"soft_bytes", "hard_bytes"} of RLIMIT_MEMLOCK. Null means no limit. */
json_t *facts_memlock(void);

/* {"version", "path", "limit_bytes", "used_bytes"}, or null if there is no memory cgroup. */
json_t *facts_memory_cgroup(void);

/*
 * [{"node", "total_bytes", "free_bytes", "huge_2M": {"total", "free"}, "huge_1G": {...}, "pool":
 * {"total_bytes", "free_bytes", "lent_bytes"}, "region_bytes", "lingering_bytes", "limit_bytes",
 * "poisoned_bytes"}]: "huge_2M" and "huge_1G" count hugetlb pages. The driver reports "pool" and
 * all values after "pool".
 */
json_t *facts_nodes(void);

/* {"total_bytes", "available_bytes"} of the machine, each null if the kernel does not report it. */
json_t *facts_memory(void);

/*
 * Checks whether actmem_region_list() omits the driver's regions because it cannot open the driver.
 * Returns 0 if it omits no regions. Otherwise returns the negative errno of actmem_open(), and
 * actmem_error() has the message.
 */
int driver_missing(void);

/*
 * Returns true if sysfs shows the driver, but the device file is missing. A container lacks the
 * device of a module that was loaded after the container started.
 */
bool driver_lacks_device(void);

#endif
