// SPDX-License-Identifier: GPL-2.0
/*
 * What can be done with the descriptor of a region as with that of any file:
 * opened, read, written, sought in, allocated and punched. Commands are
 * command.c's and mappings map.c's.
 *
 * An empty file of a mount has no region: its length is 0, so that there is
 * nothing to read or to write.
 */
#include <linux/fs.h>
#include <linux/falloc.h>	/* needs the above */
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/splice.h>
#include <linux/uio.h>

#include "actmem.h"
#include "compat/compat.h"
#include "copy.h"
#include "mount.h"

static bool is_named(const struct inode *inode)
{
	return actmem_super_mount(inode->i_sb);
}

static int actmem_open(struct inode *inode, struct file *file)
{
	if (is_named(inode))
		return generic_file_open(inode, file);
	return actmem_hold_internal_mount();
}

static int actmem_release(struct inode *inode, struct file *file)
{
	if (!is_named(inode))
		actmem_release_internal_mount();
	return 0;
}

/* The bytes that are read or written next: of one page, and no more than a region has. */
static size_t piece_length(const struct actmem_extent *extent, size_t length)
{
	return min3(length, extent->length, (size_t)ACTMEM_PAGE_BYTES);
}

/* How many bytes were read, fewer than @length is then only if the reader's memory is bad. */
static ssize_t read_piece(struct actmem_region *region, loff_t position, size_t *length,
			  struct iov_iter *to)
{
	struct actmem_extent extent;
	ssize_t copied;
	int err;

	err = actmem_extent_get(region, position, &extent);
	if (err)
		return err;
	*length = piece_length(&extent, *length);
	if (!extent.folio)
		return iov_iter_zero(*length, to);
	if (copy_is_poisoned(extent.folio, extent.offset, *length))
		copied = -EIO;
	else
		copied = _copy_mc_to_iter(folio_address(extent.folio) + extent.offset, *length, to);
	folio_put(extent.folio);
	return copied;
}

static ssize_t write_piece(struct actmem_region *region, loff_t position, size_t *length,
			   struct iov_iter *from)
{
	struct actmem_extent extent;
	struct actmem_caller caller;
	struct actmem_why why;
	ssize_t copied;
	int err;

	actmem_caller_init(&caller);
	actmem_no_reason(&why);
	err = actmem_extent_demand(region, position, &caller, &why, &extent);
	if (err)
		return err;
	*length = piece_length(&extent, *length);
	if (copy_is_poisoned(extent.folio, extent.offset, *length))
		copied = -EIO;
	else
		copied = copy_from_iter(folio_address(extent.folio) + extent.offset, *length, from);
	folio_put(extent.folio);
	return copied;
}

typedef ssize_t (*piece_function)(struct actmem_region *region, loff_t position, size_t *length,
				  struct iov_iter *memory);

/* Up to the end of the region. An error counts only if nothing came before it. */
static ssize_t do_pieces(struct kiocb *call, struct iov_iter *memory, piece_function do_piece)
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
	done = do_pieces(call, to, read_piece);
	file_accessed(call->ki_filp);
	return done;
}

static ssize_t write_locked(struct kiocb *call, struct iov_iter *from)
{
	struct actmem_region *region;
	ssize_t done;

	done = generic_write_checks(call, from);
	if (done <= 0)
		return done;
	if (call->ki_pos >= i_size_read(file_inode(call->ki_filp)))
		return -EFBIG;
	region = actmem_file_region(call->ki_filp);
	done = actmem_begin_write(region);
	if (done)
		return done;
	done = file_modified(call->ki_filp) ?: do_pieces(call, from, write_piece);
	actmem_end_write(region);
	return done;
}

static ssize_t actmem_write_iter(struct kiocb *call, struct iov_iter *from)
{
	struct inode *inode = file_inode(call->ki_filp);
	ssize_t done;

	inode_lock(inode);
	done = write_locked(call, from);
	inode_unlock(inode);
	return done;
}

/* The first byte from @offset on that has a page, or that has none. */
static loff_t find(const struct actmem_region *region, loff_t offset, bool missing)
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
	found = find(actmem_file_region(file), offset, whence == SEEK_HOLE);
	return found < 0 ? found : vfs_setpos(file, found, file_inode(file)->i_sb->s_maxbytes);
}

static int allocate(struct file *file, u64 offset, u64 end)
{
	struct actmem_region *region = actmem_file_region(file);
	unsigned long first, count, done;
	struct actmem_caller caller;
	struct actmem_why why;

	if (end > region->page_count * ACTMEM_PAGE_BYTES)
		return -EFBIG;
	actmem_caller_init(&caller);
	actmem_no_reason(&why);
	first = offset / ACTMEM_PAGE_BYTES;
	count = DIV_ROUND_UP(end, ACTMEM_PAGE_BYTES) - first;
	return actmem_populate(region, first, count, &caller, &done, &why);
}

/* An empty file is given its length, and with it all its pages. */
static int allocate_all(struct file *file, u64 offset, u64 end)
{
	struct actmem_ioctl_create arg = {
		.length = end,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.policy = ACTMEM_POLICY_PREFERRED,
	};

	return offset ? -EINVAL : actmem_create_for_file(file, &arg);
}

/* Of a page that is there; a missing one reads as zeros. */
static int zero_part(struct actmem_region *region, u64 offset, u64 end)
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
	if (copy_is_poisoned(folio, first, end - offset))
		err = -EIO;
	else
		memset(folio_address(folio) + first, 0, end - offset);
	folio_put(folio);
	return err;
}

/* Whole pages go; of others only what they contain. */
static int punch(struct actmem_region *region, u64 offset, u64 end)
{
	u64 first = ALIGN(offset, ACTMEM_PAGE_BYTES);
	u64 last = ALIGN_DOWN(end, ACTMEM_PAGE_BYTES);
	struct actmem_caller caller;
	unsigned long done;
	int err;

	if (first > last)	/* both lie within one page */
		return zero_part(region, offset, end);
	err = zero_part(region, offset, first) ?: zero_part(region, last, end);
	if (err || first == last)
		return err;
	actmem_caller_init(&caller);
	return actmem_discard(region, first / ACTMEM_PAGE_BYTES, (last - first) / ACTMEM_PAGE_BYTES,
			      &caller, &done);
}

static int punch_locked(struct file *file, u64 offset, u64 end)
{
	struct actmem_region *region = actmem_file_region(file);
	int err;

	if (!region)
		return 0;
	/* The pages are those of the file that was imported. */
	if (region->import)
		return -EOPNOTSUPP;
	end = min_t(u64, end, region->page_count * ACTMEM_PAGE_BYTES);
	if (offset >= end)
		return 0;
	err = actmem_begin_write(region);
	if (err)
		return err;
	err = file_modified(file) ?: punch(region, offset, end);
	actmem_end_write(region);
	return err;
}

static int punch_file(struct file *file, u64 offset, u64 end)
{
	int err;

	inode_lock(file_inode(file));
	err = punch_locked(file, offset, end);
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
		return punch_file(file, offset, end);
	if (!actmem_file_region(file)) {
		err = mode & FALLOC_FL_KEEP_SIZE ? -EFBIG : allocate_all(file, offset, end);
		if (err != -EEXIST)
			return err;
	}
	/* As POPULATE, which others may be at, too. */
	return allocate(file, offset, end);
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

bool actmem_is_region(const struct file *file)
{
	return file->f_op == &actmem_file_operations;
}
