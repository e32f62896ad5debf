/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The calls of the dmem controller in Linux 6.14 to 7.2. tests/vm/module-check compiles the driver
 * with them, because the kernel of vm-dmem has those of Linux 7.3.
 */
#ifndef DMEM_OF_6_14_H
#define DMEM_OF_6_14_H

#include <linux/types.h>

struct dmem_cgroup_pool_state;
struct dmem_cgroup_region;

struct dmem_cgroup_region *dmem_cgroup_register_region(u64 size, const char *name, ...);
void dmem_cgroup_unregister_region(struct dmem_cgroup_region *region);
int dmem_cgroup_try_charge(struct dmem_cgroup_region *region, u64 bytes,
			   struct dmem_cgroup_pool_state **charge,
			   struct dmem_cgroup_pool_state **limiting);
void dmem_cgroup_uncharge(struct dmem_cgroup_pool_state *charge, u64 bytes);
bool dmem_cgroup_state_evict_valuable(struct dmem_cgroup_pool_state *limit_pool,
				      struct dmem_cgroup_pool_state *test_pool,
				      bool ignore_low, bool *ret_hit_low);

#endif
