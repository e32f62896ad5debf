// SPDX-License-Identifier: GPL-2.0
/*
 * What /proc/PID/fdinfo tells of a region's descriptor: lines of key and
 * value, all sizes in bytes.
 */
#include <linux/nodemask.h>
#include <linux/seq_file.h>

#include "actmem.h"
#include "import.h"

const char *actmem_policy_name(u32 policy)
{
	switch (policy) {
	case ACTMEM_POLICY_BIND:
		return "bind";
	case ACTMEM_POLICY_PREFERRED:
		return "preferred";
	default:
		return "interleave";
	}
}

void actmem_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct actmem_region *region = actmem_file_region(file);
	struct actmem_usage usage;
	int node;

	if (!region) {	/* an empty file */
		seq_puts(seq, "actmem-length:\t0\n");
		return;
	}
	actmem_poison_settle();
	/* Nobody is left to read it. */
	if (actmem_slots_usage(region, &usage))
		return;
	seq_printf(seq, "actmem-id:\t%llu\n", region->id);
	seq_printf(seq, "actmem-length:\t%llu\n", region->page_count * ACTMEM_PAGE_BYTES);
	seq_printf(seq, "actmem-page-bytes:\t%llu\n", ACTMEM_PAGE_BYTES);
	seq_printf(seq, "actmem-policy:\t%s\n", actmem_policy_name(region->policy));
	seq_printf(seq, "actmem-nodes:\t%*pbl\n", nodemask_pr_args(&region->nodes));
	seq_printf(seq, "actmem-inherit:\t%d\n", !!(region->flags & ACTMEM_CREATE_INHERIT));
	seq_printf(seq, "actmem-named:\t%d\n", !!region->mount);
	seq_printf(seq, "actmem-sealed:\t%d\n", actmem_is_sealed(region));
	if (region->import)
		seq_printf(seq, "actmem-imported-page-bytes:\t%llu\n",
			   actmem_import_page_bytes(region));
	seq_printf(seq, "actmem-mapped:\t%llu\n", usage.mapped_bytes);
	seq_printf(seq, "actmem-pinned:\t%llu\n", usage.pinned_bytes);

	/* All of one moment, so that the nodes add up. */
	spin_lock(&region->lock);
	seq_printf(seq, "actmem-name:\t%s\n", region->name);
	seq_printf(seq, "actmem-allocated:\t%llu\n", region->pages_held * ACTMEM_PAGE_BYTES);
	seq_printf(seq, "actmem-demand-faults:\t%lu\n", region->demand_faults);
	seq_printf(seq, "actmem-poisoned:\t%llu\n", region->poisoned_pages * ACTMEM_PAGE_BYTES);
	seq_printf(seq, "actmem-exported:\t%llu\n", region->exported_pages * ACTMEM_PAGE_BYTES);
	for_each_node(node)
		if (region->node_small_pages[node])
			seq_printf(seq, "actmem-node%d:\t%llu\n", node,
				   (u64)region->node_small_pages[node] << PAGE_SHIFT);
	spin_unlock(&region->lock);
}
