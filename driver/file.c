// SPDX-License-Identifier: GPL-2.0
/*
 * What can be done with the descriptor of a region as with that of any file:
 * opened, read, written, sought in, allocated and punched; and its fdinfo. Requests are
 * ioctl.c's and mappings map.c's.
 *
 * An empty file of a mount has no region: its length is 0, so that there is
 * nothing to read or to write.
 */
#include <linux/fs.h>
#include <linux/falloc.h>	/* needs the above */
#include <linux/nodemask.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/splice.h>
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

/* How much of what is wanted from @position on lies in one page; where in it is @offset. */
static size_t file_piece_length(loff_t position, size_t length, size_t *offset)
{
	*offset = position % ACTMEM_PAGE_BYTES;
	return min_t(size_t, length, ACTMEM_PAGE_BYTES - *offset);
}

/* How many bytes were read, fewer than @length is then only if the reader's memory is bad. */
static ssize_t file_read_piece(struct actmem_region *region, loff_t position, size_t *length,
			       struct iov_iter *to)
{
	struct folio *folio = actmem_slot_get(region, position / ACTMEM_PAGE_BYTES);
	ssize_t copied;
	size_t offset;

	if (IS_ERR(folio))
		return actmem_slot_error(folio);
	*length = file_piece_length(position, *length, &offset);
	if (!folio)
		return iov_iter_zero(*length, to);
	if (actmem_bytes_have_failed(folio, offset, *length))
		copied = -EIO;
	else
		copied = _copy_mc_to_iter(folio_address(folio) + offset, *length, to);
	folio_put(folio);
	return copied;
}

static ssize_t file_write_piece(struct actmem_region *region, loff_t position, size_t *length,
				struct iov_iter *from)
{
	struct actmem_why why;
	struct folio *folio;
	ssize_t copied;
	size_t offset;

	actmem_no_reason(&why);
	folio = actmem_slot_demand(region, position / ACTMEM_PAGE_BYTES, &why);
	if (IS_ERR(folio))
		return actmem_slot_error(folio);
	*length = file_piece_length(position, *length, &offset);
	if (actmem_bytes_have_failed(folio, offset, *length))
		copied = -EIO;
	else
		copied = copy_from_iter(folio_address(folio) + offset, *length, from);
	folio_put(folio);
	return copied;
}

typedef ssize_t (*piece_function)(struct actmem_region *region, loff_t position, size_t *length,
				  struct iov_iter *memory);

/* Up to the end of the region. An error counts only if nothing came before it. */
static ssize_t file_do_pieces(struct kiocb *call, struct iov_iter *memory, piece_function do_piece)
{
	struct actmem_region *region = actmem_file_region(call->ki_filp);
	u64 end = region->page_count * ACTMEM_PAGE_BYTES;
	ssize_t done = 0, copied = 0;

	while (iov_iter_count(memory) && call->ki_pos < end) {
		size_t length = min_t(u64, iov_iter_count(memory), end - call->ki_pos);

		if (fatal_signal_pending(current))
			return done ?: -EINTR;
		copied = do_piece(region, call->ki_pos, &length, memory);
		if (copied < 0)
			return done ?: copied;
		done += copied;
		call->ki_pos += copied;
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
	done = file_do_pieces(call, to, file_read_piece);
	file_accessed(call->ki_filp);
	return done;
}

static ssize_t file_write_locked(struct kiocb *call, struct iov_iter *from)
{
	ssize_t done = generic_write_checks(call, from);

	if (done <= 0)
		return done;
	if (call->ki_pos >= i_size_read(file_inode(call->ki_filp)))
		return -EFBIG;
	return file_modified(call->ki_filp) ?: file_do_pieces(call, from, file_write_piece);
}

static ssize_t actmem_write_iter(struct kiocb *call, struct iov_iter *from)
{
	struct inode *inode = file_inode(call->ki_filp);
	ssize_t done;

	inode_lock(inode);
	done = file_write_locked(call, from);
	inode_unlock(inode);
	return done;
}

/* The first byte from @offset on that has a page, or that has none. */
static loff_t file_find(const struct actmem_region *region, loff_t offset, bool missing)
{
	loff_t end = region ? region->page_count * ACTMEM_PAGE_BYTES : 0;
	unsigned long index;

	if (offset < 0 || offset >= end)
		return -ENXIO;
	for (index = offset / ACTMEM_PAGE_BYTES; index < region->page_count; index++) {
		if (actmem_slot_is_missing(region, index) == missing)
			return max_t(loff_t, offset, index * ACTMEM_PAGE_BYTES);
		cond_resched();
	}
	/* What comes after the end is missing. */
	return missing ? end : -ENXIO;
}

static loff_t actmem_llseek(struct file *file, loff_t offset, int whence)
{
	loff_t found;

	if (whence != SEEK_DATA && whence != SEEK_HOLE)
		return generic_file_llseek(file, offset, whence);
	found = file_find(actmem_file_region(file), offset, whence == SEEK_HOLE);
	return found < 0 ? found : vfs_setpos(file, found, file_inode(file)->i_sb->s_maxbytes);
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

/* Of a page that is there; a missing one reads as zeros. */
static int file_zero_part(struct actmem_region *region, u64 offset, u64 end)
{
	size_t first = offset % ACTMEM_PAGE_BYTES;
	struct folio *folio;
	int err = 0;

	if (offset >= end)
		return 0;
	folio = actmem_slot_get(region, offset / ACTMEM_PAGE_BYTES);
	if (!folio)
		return 0;
	if (IS_ERR(folio))
		return actmem_slot_error(folio);
	if (actmem_bytes_have_failed(folio, first, end - offset))
		err = -EIO;
	else
		memset(folio_address(folio) + first, 0, end - offset);
	folio_put(folio);
	return err;
}

/* Whole pages go; of others only what they contain. */
static int file_punch(struct actmem_region *region, u64 offset, u64 end)
{
	u64 first = ALIGN(offset, ACTMEM_PAGE_BYTES);
	u64 last = ALIGN_DOWN(end, ACTMEM_PAGE_BYTES);
	unsigned long done;
	int err;

	if (first > last)	/* both lie within one page */
		return file_zero_part(region, offset, end);
	err = file_zero_part(region, offset, first) ?: file_zero_part(region, last, end);
	if (err || first == last)
		return err;
	return actmem_discard(region, first / ACTMEM_PAGE_BYTES, (last - first) / ACTMEM_PAGE_BYTES,
			      &done);
}

static int file_punch_locked(struct file *file, u64 offset, u64 end)
{
	struct actmem_region *region = actmem_file_region(file);

	if (!region)
		return 0;
	end = min_t(u64, end, region->page_count * ACTMEM_PAGE_BYTES);
	if (offset >= end)
		return 0;
	return file_modified(file) ?: file_punch(region, offset, end);
}

static int file_lock_and_punch(struct file *file, u64 offset, u64 end)
{
	int err;

	inode_lock(file_inode(file));
	err = file_punch_locked(file, offset, end);
	inode_unlock(file_inode(file));
	return err;
}

static long actmem_fallocate(struct file *file, int mode, loff_t offset, loff_t length)
{
	u64 end = offset + length;
	int err;

	if (mode & ~(FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE))
		return -EOPNOTSUPP;
	if (mode & FALLOC_FL_PUNCH_HOLE)
		return file_lock_and_punch(file, offset, end);
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

/* What /proc/PID/fdinfo tells: lines of key and value, all sizes in bytes. */
static void actmem_show_fdinfo(struct seq_file *seq, struct file *file)
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
	.llseek = actmem_llseek,
	.read_iter = actmem_read_iter,
	.write_iter = actmem_write_iter,
	.splice_read = ACTMEM_SPLICE_READ,
	.splice_write = iter_file_splice_write,
	.fallocate = actmem_fallocate,
	.fsync = noop_fsync,
	.mmap = actmem_mmap,
	.get_unmapped_area = actmem_get_unmapped_area,
	.unlocked_ioctl = actmem_region_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.uring_cmd = actmem_uring_cmd,
	.show_fdinfo = actmem_show_fdinfo,
};
