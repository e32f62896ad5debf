/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The calls of the dmem controller in Linux 7.3. tests/vm/module-check compiles the driver
 * with them, because the kernel of vm-dmem has those of Linux 6.14 to 7.2.
 */
#ifndef DMEM_OF_7_3_H
#define DMEM_OF_7_3_H

#include <linux/types.h>

struct dmem_cgroup_ops;
struct dmem_cgroup_pool_state;
struct dmem_cgroup_region;

struct dmem_cgroup_init {
	u64 size;
	const struct dmem_cgroup_ops *ops;
	void *reclaim_priv;
};

struct dmem_cgroup_region *dmem_cgroup_register_region(const struct dmem_cgroup_init *init,
						       const char *name, ...);
void dmem_cgroup_unregister_region(struct dmem_cgroup_region *region);
int dmem_cgroup_try_charge(struct dmem_cgroup_region *region, u64 bytes,
			   struct dmem_cgroup_pool_state **charge,
			   struct dmem_cgroup_pool_state **limiting);
void dmem_cgroup_uncharge(struct dmem_cgroup_pool_state *charge, u64 bytes);

#endif
