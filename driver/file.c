// SPDX-License-Identifier: GPL-2.0
/*
 * What can be done with the descriptor of a region as with that of any file: opened,
 * read, and allocated; and its fdinfo. Requests are ioctl.c's and mappings map.c's,
 * by which alone a region is written, as hugetlbfs has it.
 *
 * An empty file of a mount has no region: its length is 0, so that there is
 * nothing to read.
 */
#include <linux/fs.h>
#include <linux/falloc.h>	/* needs the above */
#include <linux/nodemask.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/uio.h>

#include "actmem.h"
#include "compat/compat.h"
#include "mount.h"

static bool file_is_named(const struct inode *inode)
{
	return actmem_super_mount(inode->i_sb);
}

static int actmem_open(struct inode *inode, struct file *file)
{
	if (file_is_named(inode))
		return generic_file_open(inode, file);
	return actmem_hold_internal_mount();
}

static int actmem_release(struct inode *inode, struct file *file)
{
	if (!file_is_named(inode))
		actmem_release_internal_mount();
	return 0;
}

/* How many bytes were read, fewer than @length is then only if the reader's memory is bad. */
static ssize_t file_read_piece(struct actmem_region *region, loff_t position, size_t *length,
			       struct iov_iter *to)
{
	struct folio *folio = actmem_slot_get(region, position / ACTMEM_PAGE_BYTES);
	size_t offset = position % ACTMEM_PAGE_BYTES;
	ssize_t copied;

	if (IS_ERR(folio))
		return actmem_slot_error(folio);
	*length = min_t(size_t, *length, ACTMEM_PAGE_BYTES - offset);
	if (!folio)
		return iov_iter_zero(*length, to);
	copied = _copy_mc_to_iter(folio_address(folio) + offset, *length, to);
	folio_put(folio);
	return copied;
}

/* Up to the end of the region. An error counts only if nothing came before it. */
static ssize_t file_read(struct actmem_region *region, loff_t *position, struct iov_iter *to)
{
	u64 end = region->page_count * ACTMEM_PAGE_BYTES;
	ssize_t done = 0, copied;

	while (iov_iter_count(to) && *position < end) {
		size_t length = min_t(u64, iov_iter_count(to), end - *position);

		if (fatal_signal_pending(current))
			return done ?: -EINTR;
		copied = file_read_piece(region, *position, &length, to);
		if (copied < 0)
			return done ?: copied;
		done += copied;
		*position += copied;
		if (copied < length)
			return done ?: -EFAULT;
		cond_resched();
	}
	return done;
}

static ssize_t actmem_read_iter(struct kiocb *call, struct iov_iter *to)
{
	ssize_t done;

	if (!actmem_file_region(call->ki_filp))
		return 0;
	done = file_read(actmem_file_region(call->ki_filp), &call->ki_pos, to);
	file_accessed(call->ki_filp);
	return done;
}

static int file_allocate(struct file *file, u64 offset, u64 end)
{
	struct actmem_region *region = actmem_file_region(file);
	unsigned long first, count, done;
	struct actmem_why why;

	if (end > region->page_count * ACTMEM_PAGE_BYTES)
		return -EFBIG;
	actmem_no_reason(&why);
	first = offset / ACTMEM_PAGE_BYTES;
	count = DIV_ROUND_UP(end, ACTMEM_PAGE_BYTES) - first;
	return actmem_populate(region, first, count, &done, &why);
}

/* An empty file is given its length. */
static int file_allocate_length(struct file *file, u64 offset, u64 end)
{
	struct inode *inode = file_inode(file);
	int err;

	if (offset)
		return -EINVAL;
	inode_lock(inode);
	err = actmem_create_for_file(inode, file_dentry(file), end);
	inode_unlock(inode);
	/* Somebody was faster. */
	return err == -EEXIST ? 0 : err;
}

static long actmem_fallocate(struct file *file, int mode, loff_t offset, loff_t length)
{
	u64 end = offset + length;
	int err;

	if (mode & ~FALLOC_FL_KEEP_SIZE)
		return -EOPNOTSUPP;
	if (!actmem_file_region(file)) {
		err = mode & FALLOC_FL_KEEP_SIZE ? -EFBIG : file_allocate_length(file, offset, end);
		if (err)
			return err;
	}
	/* As POPULATE, which others may be at, too. */
	return file_allocate(file, offset, end);
}

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

/* For /proc/PID/fdinfo: lines of key and value, all sizes in bytes. */
static void actmem_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct actmem_region *region = actmem_file_region(file);
	struct actmem_usage usage;
	int node;

	if (!region) {	/* an empty file */
		seq_puts(seq, "actmem-length:\t0\n");
		return;
	}
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
		if (region->node_pages_held[node])
			seq_printf(seq, "actmem-node%d:\t%llu\n", node,
				   region->node_pages_held[node] * ACTMEM_PAGE_BYTES);
	spin_unlock(&region->lock);
}

const struct file_operations actmem_file_operations = {
	.open = actmem_open,
	.release = actmem_release,
	.llseek = generic_file_llseek,
	.read_iter = actmem_read_iter,
	.fallocate = actmem_fallocate,
	.fsync = noop_fsync,
	.mmap = actmem_mmap,
	.get_unmapped_area = actmem_get_unmapped_area,
	.unlocked_ioctl = actmem_region_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = actmem_uring_cmd,
	.show_fdinfo = actmem_show_fdinfo,
};
