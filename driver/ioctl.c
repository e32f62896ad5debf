// SPDX-License-Identifier: GPL-2.0
/*
 * The ioctls of the device and of a region's descriptor: copy arguments, check
 * permission, copy results.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/fcntl.h>
#include <linux/file.h>
#include <linux/pid.h>
#include <linux/pid_namespace.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "actmem.h"

/*
 * Copies a struct from user space. Every struct begins with a __u32: its size in user
 * space, which must be at least @oldest, its size in the first version of the
 * interface.
 */
int actmem_fetch(void *arg, size_t size, size_t oldest, void __user *user)
{
	u32 user_size;
	int err;

	if (get_user(user_size, (u32 __user *)user))
		return -EFAULT;
	if (user_size < oldest)
		return -EINVAL;
	if (user_size > PAGE_SIZE)
		return -E2BIG;
	err = copy_struct_from_user(arg, size, user, user_size);
	if (err)
		return err;
	/* Another thread may have changed the size after get_user(). */
	*(u32 *)arg = user_size;
	return 0;
}

/* Copies to user space the part of the struct that user space knows. */
int actmem_answer(void __user *user, const void *arg, size_t size)
{
	size = min_t(size_t, size, *(u32 *)arg);
	return copy_to_user(user, arg, size) ? -EFAULT : 0;
}

/**
 * actmem_answer_with_file() - return a struct and the descriptor of a new file
 * @user: address in user space to which the struct is copied
 * @arg: the struct; @make may change it
 * @size: of the struct, in bytes
 * @fd: the field of @arg that receives the descriptor; -1 after an error
 * @make: makes the file
 * @context: argument of @make
 *
 * Returns 0 or an error. After an error, no file or descriptor is left, and the struct
 * may or may not have been copied.
 */
int actmem_answer_with_file(void __user *user, void *arg, size_t size, s32 *fd,
			    struct file *(*make)(void *context), void *context)
{
	int number = get_unused_fd_flags(O_CLOEXEC), err;
	struct file *file;

	*fd = -1;
	if (number < 0)
		return number;
	file = make(context);
	err = PTR_ERR_OR_ZERO(file);
	if (!err) {
		*fd = number;
		err = actmem_answer(user, arg, size);
		if (err)
			fput(file);
	}
	if (err) {
		*fd = -1;
		put_unused_fd(number);
		return err;
	}
	fd_install(number, file);
	return 0;
}

static int device_query(void __user *user)
{
	struct actmem_ioctl_query arg;
	bool understood;
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	if (arg.flags || arg.reserved)
		return -EINVAL;

	understood = arg.abi >= ACTMEM_ABI_OLDEST &&
		     arg.abi_oldest <= ACTMEM_ABI_VERSION;
	arg.abi = ACTMEM_ABI_VERSION;
	arg.abi_oldest = ACTMEM_ABI_OLDEST;
	arg.features = IS_ENABLED(CONFIG_CGROUP_DMEM) ? ACTMEM_FEATURE_DMEM : 0;
	arg.page_bytes = ACTMEM_PAGE_BYTES;
	arg.max_region_bytes = ACTMEM_MAX_PAGES * ACTMEM_PAGE_BYTES;
	arg.node_count = nr_node_ids;
	err = actmem_answer(user, &arg, sizeof(arg));
	if (err)
		return err;
	return understood ? 0 : -EPROTONOSUPPORT;
}

/*
 * Returns true if the caller may see the region. The user that created the region may
 * see it, but in a container only if it was created there, because others may have the
 * same uid. The check of CAP_SYS_ADMIN is not audited, because a task without it still
 * sees its own regions.
 */
static bool region_is_visible(const struct actmem_region *region)
{
	if (ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN))
		return true;
	return uid_eq(region->owner, current_euid()) &&
	       pid_nr_ns(region->pid, task_active_pid_ns(current));
}

static int info_answer_nodes(const struct actmem_ioctl_info *arg, const u64 *node_bytes)
{
	size_t count = min_t(size_t, arg->node_count, nr_node_ids);
	void __user *user = u64_to_user_ptr(arg->node_bytes);

	return user && copy_to_user(user, node_bytes, count * sizeof(u64)) ? -EFAULT : 0;
}

static int info_answer(struct actmem_region *region, struct actmem_ioctl_info *arg,
		       void __user *user)
{
	struct actmem_usage usage;
	u64 *node_bytes;
	int node, err;

	err = actmem_slots_usage(region, &usage);
	if (err)
		return err;
	node_bytes = kcalloc(nr_node_ids, sizeof(*node_bytes), GFP_KERNEL);
	if (!node_bytes)
		return -ENOMEM;

	arg->id = region->id;
	arg->length = region->page_count * ACTMEM_PAGE_BYTES;
	arg->page_bytes = ACTMEM_PAGE_BYTES;
	arg->mapped_bytes = usage.mapped_bytes;
	arg->pinned_bytes = usage.pinned_bytes;
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

	memset(arg->nodes, 0, sizeof(arg->nodes));
	for_each_node_mask(node, region->nodes)
		arg->nodes[node / 64] |= 1ULL << (node % 64);
	arg->uid = from_kuid_munged(current_user_ns(), region->owner);
	arg->pid = 0;
	if (pid_has_task(region->pid, PIDTYPE_TGID))
		arg->pid = pid_vnr(region->pid) ?: ACTMEM_PID_ELSEWHERE;

	err = info_answer_nodes(arg, node_bytes);
	kfree(node_bytes);
	if (err)
		return err;
	arg->node_count = nr_node_ids;
	return actmem_answer(user, arg, sizeof(*arg));
}

static int info_fetch(struct actmem_ioctl_info *arg, void __user *user)
{
	int err = actmem_fetch(arg, sizeof(*arg), sizeof(*arg), user);

	if (err)
		return err;
	if (arg->flags || arg->reserved)
		return -EINVAL;
	return 0;
}

static int device_info(void __user *user)
{
	struct actmem_ioctl_info arg;
	struct actmem_region *region;
	int err;

	err = info_fetch(&arg, user);
	if (err)
		return err;
	region = actmem_region_find(arg.id);
	if (!region)
		return -ENOENT;
	err = region_is_visible(region) ? info_answer(region, &arg, user) : -EPERM;
	actmem_region_put(region);
	return err;
}

static int region_info(struct file *file, void __user *user)
{
	struct actmem_ioctl_info arg;
	int err;

	err = info_fetch(&arg, user);
	if (err)
		return err;
	if (arg.id)
		return -EINVAL;
	if (!actmem_file_region(file))
		return -ENODATA;
	return info_answer(actmem_file_region(file), &arg, user);
}

static int device_list(void __user *user)
{
	struct actmem_region *region;
	struct actmem_ioctl_list arg;
	u64 __user *ids;
	u32 count = 0;
	u64 id;
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
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
		seen = region_is_visible(region);
		actmem_region_put(region);
		cond_resched();
		if (!seen)
			continue;
		if (put_user(id, ids + count))
			return -EFAULT;
		count++;
	}
	arg.count = count;
	return actmem_answer(user, &arg, sizeof(arg));
}

/* Returns true if the range consists of whole pages of the region and is not empty. */
bool actmem_is_range(const struct actmem_region *region, u64 offset, u64 length)
{
	u64 bytes = region->page_count * ACTMEM_PAGE_BYTES;

	return length && IS_ALIGNED(offset | length, ACTMEM_PAGE_BYTES) && length <= bytes &&
	       offset <= bytes - length;
}

static int range_check(const struct file *file, const struct actmem_ioctl_range *arg)
{
	if (!actmem_file_region(file))
		return -ENODATA;
	if (arg->flags || !actmem_is_range(actmem_file_region(file), arg->offset, arg->length))
		return -EINVAL;
	return file->f_mode & FMODE_WRITE ? 0 : -EBADF;
}

/* Executes POPULATE or DISCARD with the struct at @user. */
static int region_change_range(struct file *file, unsigned int request, void __user *user)
{
	struct actmem_region *region = actmem_file_region(file);
	unsigned long first, count, done = 0;
	struct actmem_ioctl_range arg;
	int err, unanswered;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (!err)
		err = range_check(file, &arg);
	if (err)
		return err;

	actmem_no_reason(&arg.why);
	first = arg.offset / ACTMEM_PAGE_BYTES;
	count = arg.length / ACTMEM_PAGE_BYTES;
	if (request == ACTMEM_IOC_POPULATE)
		err = actmem_populate(region, first, count, &done, &arg.why);
	else
		err = actmem_discard(region, first, count, &done);
	arg.done = done * ACTMEM_PAGE_BYTES;
	unanswered = actmem_answer(user, &arg, sizeof(arg));
	return err ?: unanswered;
}

long actmem_device_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (request) {
	case ACTMEM_IOC_QUERY:
		return device_query(user);
	case ACTMEM_IOC_CREATE:
		return actmem_create_unnamed(user);
	case ACTMEM_IOC_INFO:
		return device_info(user);
	case ACTMEM_IOC_LIST:
		return device_list(user);
	default:
		return -ENOTTY;
	}
}

long actmem_region_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (request) {
	case ACTMEM_IOC_CREATE:
		return actmem_create_named(file, user);
	case ACTMEM_IOC_INFO:
		return region_info(file, user);
	case ACTMEM_IOC_EXPORT:
		return actmem_export(file, user);
	case ACTMEM_IOC_POPULATE:
	case ACTMEM_IOC_DISCARD:
		return region_change_range(file, request, user);
	default:
		return -ENOTTY;
	}
}
