/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the kernel says of this machine and of this process, as JSON values:
 * null where it does not say, NULL for no memory.
 */
#ifndef ACTMEM_FACTS_H
#define ACTMEM_FACTS_H

#include <jansson.h>

/* {"device", "usable", "error", "version", "attributes": {...}} of the driver. */
json_t *facts_driver(void);

/* {"usable", "error", "disabled"}: "disabled" is kernel.io_uring_disabled. */
json_t *facts_io_uring(void);

/* {"enabled", "shmem_enabled"} of transparent huge pages. */
json_t *facts_thp(void);

/* {"soft_bytes", "hard_bytes"} of RLIMIT_MEMLOCK; null is no limit. */
json_t *facts_memlock(void);

/* {"version", "path", "limit_bytes", "used_bytes"}, or null without one. */
json_t *facts_memory_cgroup(void);

/*
 * [{"node", "total_bytes", "free_bytes", "huge_2M": {"total", "free"},
 * "huge_1G": {...}}]: pools count pages.
 */
json_t *facts_nodes(void);

#endif
