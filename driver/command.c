// SPDX-License-Identifier: GPL-2.0
/*
 * The ioctls of the device and of a region's descriptor: arguments in,
 * permission, results out.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "actmem.h"
#include "import.h"
#include "trace.h"

#define INFO_OLDEST	offsetof(struct actmem_ioctl_info, demand_faults)

static int query(void __user *user)
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
	arg.features = ACTMEM_FEATURE_NAMES | ACTMEM_FEATURE_IMPORT | ACTMEM_FEATURE_MACHINE_CHECK;
	if (IS_ENABLED(CONFIG_IO_URING))
		arg.features |= ACTMEM_FEATURE_URING;
	if (IS_ENABLED(CONFIG_DMA_SHARED_BUFFER))
		arg.features |= ACTMEM_FEATURE_DMABUF;
	arg.page_bytes = ACTMEM_PAGE_BYTES;
	arg.max_region_bytes = ACTMEM_MAX_PAGES * ACTMEM_PAGE_BYTES;
	arg.node_count = nr_node_ids;
	err = actmem_answer(user, &arg, sizeof(arg));
	if (err)
		return err;
	return understood ? 0 : -EPROTONOSUPPORT;
}

static struct file *make_created(void *arg)
{
	return actmem_create_unnamed(arg);
}

static int create(void __user *user)
{
	struct actmem_ioctl_create arg;
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	arg.id = 0;
	actmem_no_reason(&arg.why);
	err = actmem_regions_sweep();
	if (err)
		return err;
	err = actmem_answer_with_file(user, &arg, sizeof(arg), &arg.fd, make_created, &arg);
	if (!err)
		return 0;
	/* The first error is the one that matters. */
	arg.id = 0;
	(void)actmem_answer(user, &arg, sizeof(arg));
	return err;
}

static struct file *make_imported(void *arg)
{
	return actmem_create_imported(arg);
}

static int import(void __user *user)
{
	struct actmem_ioctl_import arg;
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	arg.id = 0;
	arg.page_bytes = 0;
	actmem_no_reason(&arg.why);
	err = actmem_regions_sweep();
	if (err)
		return err;
	err = actmem_answer_with_file(user, &arg, sizeof(arg), &arg.fd, make_imported, &arg);
	if (!err)
		return 0;
	/* As above. */
	arg.id = 0;
	arg.page_bytes = 0;
	(void)actmem_answer(user, &arg, sizeof(arg));
	return err;
}

static bool is_own(const struct actmem_region *region)
{
	return uid_eq(region->owner, current_euid());
}

static int answer_node_bytes(const struct actmem_ioctl_info *arg, const u64 *node_bytes)
{
	size_t count = min_t(size_t, arg->node_count, nr_node_ids);
	void __user *user = u64_to_user_ptr(arg->node_bytes);

	return user && copy_to_user(user, node_bytes, count * sizeof(u64)) ? -EFAULT : 0;
}

static int tell(struct actmem_region *region, struct actmem_ioctl_info *arg, void __user *user)
{
	struct actmem_usage usage;
	u64 *node_bytes;
	int node, err;

	actmem_poison_settle();
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
	if (actmem_is_sealed(region))
		arg->state |= ACTMEM_INFO_SEALED;
	if (region->import)
		arg->state |= ACTMEM_INFO_IMPORTED;
	arg->imported_page_bytes = actmem_import_page_bytes(region);
	spin_lock(&region->lock);
	arg->allocated_bytes = region->pages_held * ACTMEM_PAGE_BYTES;
	arg->demand_faults = region->demand_faults;
	arg->poisoned_bytes = region->poisoned_pages * ACTMEM_PAGE_BYTES;
	arg->exported_bytes = region->exported_pages * ACTMEM_PAGE_BYTES;
	for (node = 0; node < nr_node_ids; node++)
		node_bytes[node] = (u64)region->node_small_pages[node] << PAGE_SHIFT;
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
	arg->pid = pid_has_task(region->pid, PIDTYPE_TGID) ? pid_vnr(region->pid) : 0;

	err = answer_node_bytes(arg, node_bytes);
	kfree(node_bytes);
	if (err)
		return err;
	arg->node_count = nr_node_ids;
	return actmem_answer(user, arg, sizeof(*arg));
}

static int fetch_info(struct actmem_ioctl_info *arg, void __user *user)
{
	int err = actmem_fetch(arg, sizeof(*arg), INFO_OLDEST, user);

	if (err)
		return err;
	if (arg->flags || arg->reserved)
		return -EINVAL;
	return actmem_regions_sweep();
}

static int info_by_id(void __user *user)
{
	struct actmem_ioctl_info arg;
	struct actmem_region *region;
	int err;

	err = fetch_info(&arg, user);
	if (err)
		return err;
	region = actmem_region_find(arg.id);
	if (!region)
		return -ENOENT;
	err = is_own(region) || capable(CAP_SYS_ADMIN) ? tell(region, &arg, user) : -EPERM;
	actmem_region_put(region);
	return err;
}

static int info_of_file(struct file *file, void __user *user)
{
	struct actmem_ioctl_info arg;
	int err;

	err = fetch_info(&arg, user);
	if (err)
		return err;
	if (arg.id)
		return -EINVAL;
	if (!actmem_file_region(file))
		return -ENODATA;
	return tell(actmem_file_region(file), &arg, user);
}

static int list(void __user *user)
{
	struct actmem_region *region;
	struct actmem_ioctl_list arg;
	u64 __user *ids;
	bool sees_all;
	u32 count = 0;
	u64 id;
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	if (arg.flags || arg.reserved || !arg.count)
		return -EINVAL;
	err = actmem_regions_sweep();
	if (err)
		return err;

	ids = u64_to_user_ptr(arg.ids);
	id = arg.after;
	/* Nothing is refused to who may not. */
	sees_all = ns_capable_noaudit(&init_user_ns, CAP_SYS_ADMIN);
	while (count < arg.count) {
		bool seen;

		if (fatal_signal_pending(current))
			return -EINTR;
		region = actmem_region_next(&id);
		if (!region)
			break;
		seen = sees_all || is_own(region);
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

long actmem_device_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	void __user *user = (void __user *)arg;

	switch (request) {
	case ACTMEM_IOC_QUERY:
		return query(user);
	case ACTMEM_IOC_CREATE:
		return create(user);
	case ACTMEM_IOC_IMPORT:
		return import(user);
	case ACTMEM_IOC_INFO:
		return info_by_id(user);
	case ACTMEM_IOC_LIST:
		return list(user);
	default:
		return -ENOTTY;
	}
}

long actmem_region_ioctl(struct file *file, unsigned int request, unsigned long arg)
{
	void __user *user = (void __user *)arg;
	struct actmem_caller caller;

	switch (request) {
	case ACTMEM_IOC_CREATE:
		return actmem_create_named(file, user);
	case ACTMEM_IOC_INFO:
		return info_of_file(file, user);
	case ACTMEM_IOC_EXPORT:
		return actmem_export(file, user);
	case ACTMEM_IOC_SEAL:
		return actmem_seal(file, user);
	default:
		actmem_caller_init(&caller);
		return actmem_request(file, request, user, &caller);
	}
}
