// SPDX-License-Identifier: GPL-2.0
/*
 * The file operations of a region (open, read, poll, fdinfo), and the files of unnamed regions.
 * ioctl.c handles ioctls, and map.c handles mappings. As on hugetlbfs, programs write to a region
 * only through mappings.
 *
 * An empty file in a mounted file system has no region, so a read returns nothing.
 */
#include <linux/file.h>
#include <linux/mount.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/uio.h>

#include "actmem.h"
#include "mount.h"

static struct vfsmount *unnamed_mount;
static int unnamed_mount_users;

/*
 * Takes a reference to the internal mount, which has the files of unnamed regions. Open files of
 * unnamed regions hold such a reference. The inodes do not, to avoid a deadlock. A watcher
 * (inotify) can drop the last reference to an inode. If inodes held the mount, this watcher could
 * shut down the superblock, and the shutdown waits for watchers.
 */
static int file_mount_hold(void)
{
	return simple_pin_fs(&actmem_fs_type, &unnamed_mount, &unnamed_mount_users);
}

static int actmem_open(struct inode *inode, struct file *file)
{
	if (actmem_super_mount(inode->i_sb))
		return generic_file_open(inode, file);
	return file_mount_hold();
}

static int actmem_release(struct inode *inode, struct file *file)
{
	if (!actmem_super_mount(inode->i_sb))
		simple_release_fs(&unnamed_mount, &unnamed_mount_users);
	return 0;
}

/*
 * Reads missing pages as zeros. If an error occurs after some bytes were read, returns the number
 * of these bytes.
 */
static ssize_t actmem_read_iter(struct kiocb *call, struct iov_iter *to)
{
	struct actmem_region *region = actmem_file_region(call->ki_filp);
	u64 end = region ? region->page_count * ACTMEM_PAGE_BYTES : 0;
	ssize_t done = 0;
	int err = 0;

	while (!err && iov_iter_count(to) && call->ki_pos < end) {
		size_t offset = call->ki_pos % ACTMEM_PAGE_BYTES;
		size_t length = min_t(size_t, iov_iter_count(to), ACTMEM_PAGE_BYTES - offset);
		struct folio *folio;
		size_t copied;

		folio = actmem_slot_get(region, call->ki_pos / ACTMEM_PAGE_BYTES);
		if (IS_ERR(folio)) {
			err = actmem_slot_error(folio);
			break;
		}
		if (folio) {
			copied = _copy_mc_to_iter(folio_address(folio) + offset, length, to);
			folio_put(folio);
		} else {
			copied = iov_iter_zero(length, to);
		}
		done += copied;
		call->ki_pos += copied;
		if (copied < length)
			err = -EFAULT;
		else if (fatal_signal_pending(current))
			err = -EINTR;
		cond_resched();
	}
	file_accessed(call->ki_filp);
	return done ?: err;
}

/* Reports EPOLLPRI while the region has a surplus: pages to give back after a limit was lowered. */
static __poll_t actmem_poll(struct file *file, struct poll_table_struct *table)
{
	struct actmem_region *region = actmem_file_region(file);
	u32 why;

	poll_wait(file, &actmem_limit_changed, table);
	return DEFAULT_POLLMASK | (region && actmem_account_surplus(region, &why) ? EPOLLPRI : 0);
}

/*
 * Prints lines of key and value for /proc/PID/fdinfo, with sizes in bytes. To get the other
 * properties, pass the id that is printed here to ACTMEM_IOC_INFO.
 */
static void actmem_show_fdinfo(struct seq_file *seq, struct file *file)
{
	struct actmem_region *region = actmem_file_region(file);

	if (!region)	/* an empty file */
		return;
	seq_printf(seq, "actmem-id:\t%llu\n", region->id);
	seq_printf(seq, "actmem-length:\t%llu\n", region->page_count * ACTMEM_PAGE_BYTES);
	spin_lock(&region->lock);
	seq_printf(seq, "actmem-name:\t%s\n", region->name);
	seq_printf(seq, "actmem-allocated:\t%llu\n", region->pages_held * ACTMEM_PAGE_BYTES);
	spin_unlock(&region->lock);
}

const struct file_operations actmem_file_operations = {
	.open = actmem_open,
	.release = actmem_release,
	.llseek = generic_file_llseek,
	.read_iter = actmem_read_iter,
	.poll = actmem_poll,
	.fsync = noop_fsync,
	.mmap = actmem_mmap,
	.get_unmapped_area = actmem_get_unmapped_area,
	.unlocked_ioctl = actmem_region_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.show_fdinfo = actmem_show_fdinfo,
};

/*
 * Makes the file of an unnamed region. The file takes over the caller's reference. On failure,
 * actmem_region_retire() frees the region. In both cases, the caller must not use the region
 * afterwards.
 */
struct file *actmem_file_make(struct actmem_region *region)
{
	char name[sizeof("actmem:") + ACTMEM_NAME_BYTES];
	struct inode *inode;
	struct file *file;
	int err;

	snprintf(name, sizeof(name), "actmem:%s", region->name);
	/* Hold the mount for the file here, because actmem_open() is not called for this file. */
	err = file_mount_hold();
	if (err)
		goto retire;
	inode = actmem_inode_unnamed(unnamed_mount->mnt_sb);
	if (IS_ERR(inode)) {
		err = PTR_ERR(inode);
		goto release_mount;
	}
	/*
	 * With O_LARGEFILE, read(2) can read beyond 2 GiB. open() sets this flag for every 64-bit
	 * task.
	 */
	file = alloc_file_pseudo(inode, unnamed_mount, name, O_RDWR | O_LARGEFILE,
				 &actmem_file_operations);
	if (IS_ERR(file)) {
		err = PTR_ERR(file);
		goto put_inode;
	}
	file->f_mode |= FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE;
	actmem_create_attach(inode, region);
	return file;

put_inode:
	iput(inode);
release_mount:
	simple_release_fs(&unnamed_mount, &unnamed_mount_users);
retire:
	actmem_region_retire(region);
	return ERR_PTR(err);
}
