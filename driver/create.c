// SPDX-License-Identifier: GPL-2.0
/*
 * Making regions: unnamed ones for /dev/actmem, of new memory or of that of others,
 * and those of a mount for files that have none yet.
 */
#include <linux/dcache.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/rwsem.h>
#include <linux/string.h>

#include "actmem.h"
#include "import.h"
#include "mount.h"
#include "trace.h"

/*
 * Who makes a region for a file of a mount holds this lock, and not that of the inode:
 * while a large one is populated, the file can be removed and renamed. It is there for
 * what a file has in the page cache, which these have nothing in: so nobody else takes
 * it, and it may be held when that of the inode is taken, other than where files have.
 */
static struct rw_semaphore *making_lock(const struct file *file)
{
	return &file->f_mapping->invalidate_lock;
}

/* Printable, and not a path. */
bool actmem_name_is_valid(const char *name, size_t length)
{
	size_t i;

	for (i = 0; i < length; i++)
		if (name[i] < ' ' || name[i] > '~' || name[i] == '/')
			return false;
	return length < ACTMEM_NAME_BYTES;
}

static bool label_is_valid(const char name[ACTMEM_NAME_BYTES])
{
	return actmem_name_is_valid(name, strnlen(name, ACTMEM_NAME_BYTES));
}

static int check_create(const struct actmem_ioctl_create *arg)
{
	if (arg->flags & ~(ACTMEM_CREATE_INHERIT | ACTMEM_CREATE_LAZY))
		return -EINVAL;
	if (arg->page_bytes != ACTMEM_PAGE_BYTES)
		return -EINVAL;
	if (!arg->length || arg->length % ACTMEM_PAGE_BYTES ||
	    arg->length / ACTMEM_PAGE_BYTES > ACTMEM_MAX_PAGES)
		return -EINVAL;
	return label_is_valid(arg->name) ? 0 : -EINVAL;
}

static int populate_all(struct actmem_region *region, struct actmem_why *why)
{
	struct actmem_caller caller;
	unsigned long done;

	actmem_caller_init(&caller);
	return actmem_populate(region, 0, region->page_count, &caller, &done, why);
}

/* With all its pages, unless it is lazy; nobody else has it yet. */
static struct actmem_region *make_region(struct actmem_ioctl_create *arg,
					 struct actmem_mount *mount)
{
	struct actmem_region *region;
	int err;

	region = actmem_region_create(arg, mount);
	if (IS_ERR(region))
		return region;
	arg->id = region->id;
	if (region->flags & ACTMEM_CREATE_LAZY)
		return region;
	err = populate_all(region, &arg->why);
	if (err) {
		actmem_region_retire(region);
		return ERR_PTR(err);
	}
	return region;
}

/* The reasons for a failure are told in @arg. */
struct file *actmem_create_unnamed(struct actmem_ioctl_create *arg)
{
	u64 began = actmem_latency_begin(trace_actmem_region_create_enabled());
	int err = check_create(arg);
	struct actmem_region *region;
	struct file *file;

	if (err)
		return ERR_PTR(err);
	region = make_region(arg, NULL);
	file = IS_ERR(region) ? ERR_CAST(region) : actmem_fs_open(region);
	trace_actmem_region_create(arg, PTR_ERR_OR_ZERO(file), actmem_latency_end(began));
	return file;
}

static int check_import(const struct actmem_ioctl_import *arg)
{
	if (arg->flags & ~ACTMEM_CREATE_INHERIT)
		return -EINVAL;
	if (!arg->length || !IS_ALIGNED(arg->offset | arg->length, ACTMEM_PAGE_BYTES) ||
	    arg->length / ACTMEM_PAGE_BYTES > ACTMEM_MAX_PAGES)
		return -EINVAL;
	return label_is_valid(arg->name) ? 0 : -EINVAL;
}

static struct actmem_region *import_region(struct actmem_ioctl_import *arg)
{
	struct file *memory = fget(arg->memory_fd);
	struct actmem_region *region;

	if (!memory)
		return ERR_PTR(-EBADF);
	region = actmem_region_import(arg, memory);
	fput(memory);
	if (IS_ERR(region))
		return region;
	arg->id = region->id;
	arg->page_bytes = actmem_import_page_bytes(region);
	return region;
}

/* The same of a region of memory that others made. */
struct file *actmem_create_imported(struct actmem_ioctl_import *arg)
{
	u64 began = actmem_latency_begin(trace_actmem_region_import_enabled());
	struct actmem_region *region;
	int err = check_import(arg);
	struct file *file;

	if (err)
		return ERR_PTR(err);
	region = import_region(arg);
	file = IS_ERR(region) ? ERR_CAST(region) : actmem_fs_open(region);
	trace_actmem_region_import(arg, PTR_ERR_OR_ZERO(file), actmem_latency_end(began));
	return file;
}

static void use_policy_of_mount(struct actmem_ioctl_create *arg, const struct actmem_mount *mount)
{
	int node;

	if (arg->policy != ACTMEM_POLICY_PREFERRED ||
	    memchr_inv(arg->nodes, 0, sizeof(arg->nodes)))
		return;
	arg->policy = mount->policy;
	for_each_node_mask(node, mount->nodes)
		arg->nodes[node / 64] |= 1ULL << (node % 64);
}

static void set_name(char name[ACTMEM_NAME_BYTES], const struct inode *inode,
		     const struct dentry *dentry)
{
	lockdep_assert_held_write(&inode->i_rwsem);
	/* A file without a name is given one when it is linked. */
	if (inode->i_nlink)
		strscpy_pad(name, dentry->d_name.name, ACTMEM_NAME_BYTES);
}

/* A region for an empty file of a mount, by the policy that it has there. */
static struct actmem_region *make_named(const struct inode *inode, struct actmem_ioctl_create *arg)
{
	u64 began = actmem_latency_begin(trace_actmem_region_create_enabled());
	struct actmem_mount *mount = actmem_super_mount(inode->i_sb);
	struct actmem_region *region;
	int err;

	err = check_create(arg);
	if (err)
		return ERR_PTR(err);
	use_policy_of_mount(arg, mount);
	region = make_region(arg, mount);
	trace_actmem_region_create(arg, PTR_ERR_OR_ZERO(region), actmem_latency_end(began));
	return region;
}

/*
 * Gives an empty file of a mount a region without pages. The caller holds the lock of
 * the inode, so that there is nobody who could be faster.
 */
int actmem_create_lazy(struct inode *inode, const struct dentry *dentry,
		       struct actmem_ioctl_create *arg)
{
	struct actmem_region *region;

	set_name(arg->name, inode, dentry);
	arg->flags |= ACTMEM_CREATE_LAZY;
	region = make_named(inode, arg);
	if (IS_ERR(region))
		return PTR_ERR(region);
	actmem_inode_attach(inode, region);
	return 0;
}

/* EEXIST if the file has one by now, EINTR if the task is killed while it waits. */
static int begin_to_make(struct file *file, struct actmem_ioctl_create *arg)
{
	struct inode *inode = file_inode(file);

	if (down_write_killable(making_lock(file)))
		return -EINTR;
	if (down_write_killable(&inode->i_rwsem)) {
		up_write(making_lock(file));
		return -EINTR;
	}
	set_name(arg->name, inode, file_dentry(file));
	inode_unlock(inode);
	if (!actmem_file_region(file))
		return 0;
	up_write(making_lock(file));
	return -EEXIST;
}

/*
 * The file has the region from here on, by the name that it has now. EEXIST if it was
 * given one without pages meanwhile.
 */
static int attach(struct file *file, struct actmem_region *region)
{
	struct inode *inode = file_inode(file);
	int err = 0;

	inode_lock(inode);
	if (inode->i_private) {
		err = -EEXIST;
	} else {
		spin_lock(&region->lock);
		set_name(region->name, inode, file_dentry(file));
		spin_unlock(&region->lock);
		actmem_inode_attach(inode, region);
	}
	inode_unlock(inode);
	return err;
}

/* Gives an empty file of a mount its region; EEXIST if somebody was faster. */
int actmem_create_for_file(struct file *file, struct actmem_ioctl_create *arg)
{
	struct actmem_region *region;
	int err;

	err = begin_to_make(file, arg);
	if (err)
		return err;
	region = make_named(file_inode(file), arg);
	err = PTR_ERR_OR_ZERO(region);
	if (!err) {
		err = attach(file, region);
		if (err)
			actmem_region_retire(region);
	}
	up_write(making_lock(file));
	return err;
}

/* Nothing but the outcome is written back, and before the file has its region. */
static int create_and_answer(struct file *file, struct actmem_ioctl_create *arg, void __user *user)
{
	struct actmem_ioctl_create made = *arg;
	struct actmem_region *region;
	int err;

	err = begin_to_make(file, &made);
	if (err) {
		(void)actmem_answer(user, arg, sizeof(*arg));
		return err;
	}
	region = make_named(file_inode(file), &made);
	arg->why = made.why;
	if (!IS_ERR(region))
		arg->id = made.id;
	err = actmem_answer(user, arg, sizeof(*arg));
	if (IS_ERR(region)) {
		err = PTR_ERR(region);
	} else {
		err = err ?: attach(file, region);
		if (err) {
			actmem_region_retire(region);
			arg->id = 0;
			(void)actmem_answer(user, arg, sizeof(*arg));
		}
	}
	up_write(making_lock(file));
	return err;
}

/* ACTMEM_IOC_CREATE on a file's own descriptor. */
int actmem_create_named(struct file *file, void __user *user)
{
	struct actmem_ioctl_create arg;
	int err;

	/* An unnamed region never was without one. */
	if (!actmem_super_mount(file_inode(file)->i_sb))
		return -ENOTTY;
	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	if (*arg.name)
		return -EINVAL;
	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;
	arg.fd = -1;
	arg.id = 0;
	actmem_no_reason(&arg.why);
	actmem_regions_sweep();
	return create_and_answer(file, &arg, user);
}
