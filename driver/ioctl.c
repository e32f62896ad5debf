// SPDX-License-Identifier: GPL-2.0
/* The ioctls of the device and of regions: copy arguments, check permission, copy results. */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "actmem.h"
#include "mount.h"

static int ioctl_device_query(void __user *user)
{
	struct actmem_ioctl_query arg;
	bool understood;
	int err;

	err = actmem_argument_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	if (arg.flags || arg.reserved)
		return -EINVAL;

	understood = arg.abi >= ACTMEM_ABI_OLDEST &&
		     arg.abi_oldest <= ACTMEM_ABI_VERSION;
	arg.abi = ACTMEM_ABI_VERSION;
	arg.abi_oldest = ACTMEM_ABI_OLDEST;
	arg.features = ACTMEM_HAS_DMEM ? ACTMEM_FEATURE_DMEM : 0;
	arg.page_bytes = ACTMEM_PAGE_BYTES;
	arg.max_region_bytes = ACTMEM_MAX_PAGES * ACTMEM_PAGE_BYTES;
	arg.node_count = nr_node_ids;
	err = actmem_argument_answer(user, &arg, sizeof(arg));
	if (err)
		return err;
	return understood ? 0 : -EPROTONOSUPPORT;
}

static int ioctl_create_fetch(struct actmem_ioctl_create *arg, void __user *user)
{
	int err = actmem_argument_fetch(arg, sizeof(*arg), sizeof(*arg), user);

	if (err)
		return err;
	arg->fd = -1;
	arg->id = 0;
	actmem_why_clear(&arg->why);
	return 0;
}

/* Clears the id in the result, and returns @err. Ignores an error of the copy. */
static int ioctl_create_fail(struct actmem_ioctl_create *arg, void __user *user, int err)
{
	arg->id = 0;
	(void)actmem_argument_answer(user, arg, sizeof(*arg));
	return err;
}

static struct file *ioctl_create_file(void *context)
{
	struct actmem_region *region = actmem_create_region(context, NULL);

	return IS_ERR(region) ? ERR_CAST(region) : actmem_file_make(region);
}

/* Executes ACTMEM_IOC_CREATE on the device. */
static int ioctl_device_create(void __user *user)
{
	struct actmem_ioctl_create arg;
	int err;

	err = ioctl_create_fetch(&arg, user);
	if (err)
		return err;
	err = actmem_argument_answer_with_file(user, &arg, sizeof(arg), &arg.fd, ioctl_create_file,
					       &arg);
	return err ? ioctl_create_fail(&arg, user, err) : 0;
}

/*
 * Executes ACTMEM_IOC_CREATE on the descriptor of a file. Copies the result before the region is
 * attached to the file, because the file must stay empty if the copy fails. Copies without the
 * inode's lock: the copy can take arbitrarily long (FUSE, userfaultfd), and every user of the file
 * or its directory may need the lock.
 */
static int ioctl_region_create(struct file *file, void __user *user)
{
	struct inode *inode = file_inode(file);
	struct actmem_ioctl_create arg, made;
	struct actmem_region *region;
	int err;

	/* Refuse the file of an unnamed region, which already has a region. */
	if (!actmem_super_mount(inode->i_sb))
		return -ENOTTY;
	err = ioctl_create_fetch(&arg, user);
	if (err)
		return err;
	if (*arg.name)
		return -EINVAL;
	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;

	if (actmem_file_region(file))
		return ioctl_create_fail(&arg, user, -EEXIST);

	made = arg;
	region = actmem_create_for_file(inode, &made);
	arg.why = made.why;
	if (IS_ERR(region))
		return ioctl_create_fail(&arg, user, PTR_ERR(region));
	arg.id = made.id;
	err = actmem_argument_answer(user, &arg, sizeof(arg));
	if (!err) {
		inode_lock(inode);
		err = actmem_create_attach_named(inode, region);
		inode_unlock(inode);
	}
	if (!err)
		return 0;
	actmem_region_retire(region);
	return ioctl_create_fail(&arg, user, err);
}

/*
 * Returns true if the caller has CAP_SYS_ADMIN, or is the user that created the region. A user in a
 * container sees only regions that were created in this container, because users outside may have
 * the same uid. The check of CAP_SYS_ADMIN is not audited, because a task without this capability
 * still sees its own regions.
 */
static bool ioctl_region_is_visible(const struct actmem_region *region)
{
	if (ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN))
		return true;
	return uid_eq(region->owner, current_euid()) &&
	       pid_nr_ns(region->pid, task_active_pid_ns(current));
}

static int ioctl_info_answer(struct actmem_region *region, struct actmem_ioctl_info *arg,
			     void __user *user)
{
	u64 *node_bytes;
	int node, err;

	err = actmem_slots_usage(region, arg);
	if (err)
		return err;
	node_bytes = kcalloc(nr_node_ids, sizeof(*node_bytes), GFP_KERNEL);
	if (!node_bytes)
		return -ENOMEM;

	arg->id = region->id;
	arg->length = region->page_count * ACTMEM_PAGE_BYTES;
	arg->page_bytes = ACTMEM_PAGE_BYTES;
	arg->policy = region->policy;
	arg->state = region->flags & ACTMEM_CREATE_INHERIT ? ACTMEM_INFO_INHERIT : 0;
	if (region->mount)
		arg->state |= ACTMEM_INFO_NAMED;
	spin_lock(&region->lock);
	arg->allocated_bytes = region->pages_held * ACTMEM_PAGE_BYTES;
	arg->demand_faults = region->demand_faults;
	arg->poisoned_bytes = region->poisoned_pages * ACTMEM_PAGE_BYTES;
	arg->exported_bytes = region->exported_pages * ACTMEM_PAGE_BYTES;
	for (node = 0; node < nr_node_ids; node++)
		node_bytes[node] = region->node_pages_held[node] * ACTMEM_PAGE_BYTES;
	if (region->lingering)
		arg->state |= ACTMEM_INFO_LINGERING;
	if (region->poisoned_pages)
		arg->state |= ACTMEM_INFO_POISONED;
	memcpy(arg->name, region->name, sizeof(arg->name));
	spin_unlock(&region->lock);
	arg->surplus_bytes = actmem_account_surplus(region, &arg->surplus_reason) *
			     ACTMEM_PAGE_BYTES;

	memset(arg->nodes, 0, sizeof(arg->nodes));
	for_each_node_mask(node, region->nodes)
		arg->nodes[node / 64] |= 1ULL << (node % 64);
	arg->uid = from_kuid_munged(current_user_ns(), region->owner);
	arg->pid = 0;
	if (pid_has_task(region->pid, PIDTYPE_TGID))
		arg->pid = pid_vnr(region->pid) ?: ACTMEM_PID_ELSEWHERE;

	if (arg->node_bytes &&
	    copy_to_user(u64_to_user_ptr(arg->node_bytes), node_bytes,
			 min_t(size_t, arg->node_count, nr_node_ids) * sizeof(u64)))
		err = -EFAULT;
	kfree(node_bytes);
	if (err)
		return err;
	arg->node_count = nr_node_ids;
	return actmem_argument_answer(user, arg, sizeof(*arg));
}

static int ioctl_info_fetch(struct actmem_ioctl_info *arg, void __user *user)
{
	size_t oldest = offsetof(struct actmem_ioctl_info, surplus_bytes);
	int err = actmem_argument_fetch(arg, sizeof(*arg), oldest, user);

	if (!err && (arg->flags || arg->surplus_reason))
		err = -EINVAL;
	return err;
}

static int ioctl_device_info(void __user *user)
{
	struct actmem_ioctl_info arg;
	struct actmem_region *region;
	int err;

	err = ioctl_info_fetch(&arg, user);
	if (err)
		return err;
	region = actmem_region_find(arg.id);
	if (!region)
		return -ENOENT;
	err = ioctl_region_is_visible(region) ? ioctl_info_answer(region, &arg, user) : -EPERM;
	actmem_region_put(region);
	return err;
}

static int ioctl_region_info(struct file *file, void __user *user)
{
	struct actmem_ioctl_info arg;
	int err;

	err = ioctl_info_fetch(&arg, user);
	if (err)
		return err;
	if (arg.id)
		return -EINVAL;
	if (!actmem_file_region(file))
		return -ENODATA;
	return ioctl_info_answer(actmem_file_region(file), &arg, user);
}

static int ioctl_device_list(void __user *user)
{
	struct actmem_region *region;
	struct actmem_ioctl_list arg;
	u64 __user *ids;
	u32 count = 0;
	u64 id;
	int err;

	err = actmem_argument_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	if (arg.flags || arg.reserved || !arg.count)
		return -EINVAL;

	ids = u64_to_user_ptr(arg.ids);
	id = arg.after;
	while (count < arg.count) {
		bool seen;

		if (fatal_signal_pending(current))
			return -EINTR;
		region = actmem_region_next(&id);
		if (!region)
			break;
		seen = ioctl_region_is_visible(region);
		actmem_region_put(region);
		cond_resched();
		if (seen && put_user(id, ids + count))
			return -EFAULT;
		count += seen;
	}
	arg.count = count;
	return actmem_argument_answer(user, &arg, sizeof(arg));
}

static int ioctl_range_check(const struct file *file, const struct actmem_ioctl_range *arg)
{
	if (!actmem_file_region(file))
		return -ENODATA;
	if (arg->flags ||
	    !actmem_region_has_range(actmem_file_region(file), arg->offset, arg->length))
		return -EINVAL;
	return file->f_mode & FMODE_WRITE ? 0 : -EBADF;
}

/* Executes POPULATE or DISCARD with the struct at @user. */
static int ioctl_range_change(struct file *file, unsigned int request, void __user *user)
{
	struct actmem_region *region = actmem_file_region(file);
	unsigned long first, count, done = 0;
	struct actmem_ioctl_range arg;
	int err, unanswered;

	err = actmem_argument_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (!err)
		err = ioctl_range_check(file, &arg);
	if (err)
		return err;

	actmem_why_clear(&arg.why);
	first = arg.offset / ACTMEM_PAGE_BYTES;
	count = arg.length / ACTMEM_PAGE_BYTES;
	if (request == ACTMEM_IOC_POPULATE)
		err = actmem_populate(region, first, count, &done, &arg.why);
	else
		err = actmem_slots_discard(region, first, count, &done);
	arg.done = done * ACTMEM_PAGE_BYTES;
	unanswered = actmem_argument_answer(user, &arg, sizeof(arg));
	return err ?: unanswered;
}

long actmem_device_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (request) {
	case ACTMEM_IOC_QUERY:
		return ioctl_device_query(user);
	case ACTMEM_IOC_CREATE:
		return ioctl_device_create(user);
	case ACTMEM_IOC_INFO:
		return ioctl_device_info(user);
	case ACTMEM_IOC_LIST:
		return ioctl_device_list(user);
	default:
		return -ENOTTY;
	}
}

long actmem_region_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (request) {
	case ACTMEM_IOC_CREATE:
		return ioctl_region_create(file, user);
	case ACTMEM_IOC_INFO:
		return ioctl_region_info(file, user);
	case ACTMEM_IOC_EXPORT:
		return IS_ENABLED(CONFIG_DMA_SHARED_BUFFER) ? actmem_dmabuf_export(file, user) :
							      -EOPNOTSUPP;
	case ACTMEM_IOC_POPULATE:
	case ACTMEM_IOC_DISCARD:
		return ioctl_range_change(file, request, user);
	default:
		return -ENOTTY;
	}
}
