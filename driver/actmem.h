/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the driver know of each other. The layers, from the top:
 * main; ioctl, create and uring; mount, inode and file; dmabuf, map and sysfs;
 * populate; poison; slots; region; place; dmem; pool and account; the tracepoints.
 *
 * The order of locks, each of which may be taken with those before it held:
 *
 *	inode->i_rwsem				a file is given its region, or a name
 *	mmap_lock				the kernel's, of a fault
 *	actmem_pool.settings			the target of a pool is changed
 *	makers[] (populate.c)			the page of a slot is made
 *	lingering_lock (region.c)		lingering regions are looked after
 *	actmem_region.unmap_lock		@inode stays
 *	actmem_region.lock			slots, and what is counted of them
 *	account_lock (account.c)		all quotas, and the table of users
 *	actmem_pool.lock			the lists of a pool
 *
 * From actmem_region.lock on they are spinlocks, held for an instant. The page
 * allocator is called with makers[] or settings held at most.
 */
#ifndef _ACTMEM_H
#define _ACTMEM_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/rcupdate.h>
#include <linux/sched/signal.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#include "uapi/actmem.h"

struct actmem_mount;
struct actmem_user;
struct dentry;
struct dmem_cgroup_pool_state;
struct miscdevice;

#define ACTMEM_PAGE_ORDER	HPAGE_PMD_ORDER
#define ACTMEM_MAX_PAGES	BIT(23)

/* Small pages, the unit of vm_pgoff and of RLIMIT_MEMLOCK, of huge ones. */
#define ACTMEM_SMALL_PAGES(pages)	((pages) << ACTMEM_PAGE_ORDER)

/**
 * struct actmem_quota - what is had, and how much may be
 * @limit: ACTMEM_NO_LIMIT if there is none; what is used may be more, if it was
 *	lowered since
 * @used: things that are there, and that are about to be
 */
struct actmem_quota {
	unsigned long limit;
	unsigned long used;
};

/* Pages that may be had if there is no limit. */
#define ACTMEM_NO_LIMIT		ULONG_MAX

/* What may be had yet, by what actmem_quota_read() has read. */
static inline unsigned long actmem_quota_left(struct actmem_quota quota)
{
	return quota.limit - min(quota.limit, quota.used);
}

/**
 * struct actmem_node - pages on one node
 * @pages: of all regions
 * @lingering: those of them that belong to lingering regions
 * @poisoned: in which the hardware has erred; it never falls
 */
struct actmem_node {
	struct actmem_quota pages;
	atomic_long_t lingering;
	atomic_long_t poisoned;
};

/**
 * struct actmem_region - a length of huge pages
 * @ref: held by the inode, or by the list of lingering regions after it; and
 *	by whoever looked the region up by its id
 * @id: index in the table of regions
 * @flags: ACTMEM_CREATE_*
 * @policy: ACTMEM_POLICY_*
 * @nodes: mask of the policy
 * @page_count: pages, there or not
 * @owner: user who created it
 * @pid: process that created it
 * @mount: of its file, NULL of an unnamed one
 * @user: it counts for, as long as the region is counted
 * @memlock_pages: RLIMIT_MEMLOCK of its maker, ACTMEM_NO_LIMIT with CAP_IPC_LOCK
 * @charged: pages that it has or is about to get; protected by the lock of account.c
 * @unmap_lock: taken before @lock to unmap pages without a reference to @inode,
 *	which stays as long as it is held
 * @inode: NULL before it has one and once it lingers
 * @lock: see there; held for an instant only
 * @pages_held: slots of @folios that are not NULL
 * @node_pages_held: the same for each node
 * @demand_faults: pages allocated when first touched
 * @exported_pages: pages of the dma-bufs that there are of it
 * @poisoned_pages: pages in @folios in which the hardware has erred
 * @lingering: the inode is gone, what is held is pinned from outside
 * @lingering_pages: list of what is held then
 * @folios: page i of the region, NULL if it is missing
 * @charges: the dmem cgroup's that page i is charged to, where there are such
 * @linger: entry in the list of lingering regions
 * @rcu: readers of the table look at regions without a reference
 * @name: label for people, or that of its file; protected by @lock
 */
struct actmem_region {
	struct kref ref;
	u64 id;
	u32 flags;
	u32 policy;
	nodemask_t nodes;
	unsigned long page_count;
	kuid_t owner;
	struct pid *pid;
	struct actmem_mount *mount;
	struct actmem_user *user;
	unsigned long memlock_pages;
	unsigned long charged;
	/* Protects that @inode stays. */
	struct mutex unmap_lock;
	struct inode *inode;
	/* Protects what follows, and the gate of slots.c. */
	spinlock_t lock;
	unsigned long pages_held;
	unsigned long *node_pages_held;
	unsigned long demand_faults;
	unsigned long exported_pages;
	unsigned long poisoned_pages;
	bool lingering;
	struct list_head lingering_pages;
	struct folio **folios;
	struct dmem_cgroup_pool_state **charges;
	struct list_head linger;
	struct rcu_head rcu;
	char name[ACTMEM_NAME_BYTES];
};

/*
 * Why to stop before the work is done, or 0. io_uring notifies a worker that is to
 * stop, as others do (live patching, the freezer): it is left to who issued the
 * command whether to issue the rest again.
 */
static inline int actmem_stopped(void)
{
	if (fatal_signal_pending(current))
		return -EINTR;
	if (!(current->flags & PF_IO_WORKER))
		return 0;
	/* A worker that begins with what is left to do has taken a fatal signal already. */
	return signal_pending(current) || current->signal->flags & SIGNAL_GROUP_EXIT ? -EINTR : 0;
}

/*
 * What the driver notes on a page of its own, in folio->private, which nobody else uses
 * for a page like this, and nobody looks at without the flag PG_private. LENT: a pool
 * has lent it; changed by who takes it from the pool or gives it back. POISONED: it is
 * in a region and the hardware has erred in it; protected by the region's lock. Above
 * these bits, the id of the region that has it.
 */
#define ACTMEM_PAGE_LENT	BIT(0)
#define ACTMEM_PAGE_POISONED	BIT(1)
#define ACTMEM_PAGE_ID_SHIFT	2

static inline unsigned long actmem_page_notes(const struct folio *folio)
{
	return (unsigned long)READ_ONCE(folio->private);
}

static inline void actmem_page_note(struct folio *folio, unsigned long notes)
{
	WRITE_ONCE(folio->private, (void *)notes);
}

/**
 * struct actmem_choice - the nodes that the current task takes pages from
 * @wanted: pages still to be placed
 * @placed: pages placed
 * @placed_here: those of them on the node that is nearest by now
 * @charged: those of them that are charged to a memory cgroup
 * @nodes: those of the policy; without those found full, if others may do instead
 * @from: the nearest node to this one comes first
 */
struct actmem_choice {
	unsigned long wanted;
	unsigned long placed;
	unsigned long placed_here;
	unsigned long charged;
	nodemask_t nodes;
	int from;
};

/**
 * struct actmem_usage - who uses the pages of a region at this moment
 * @mapped_bytes: mapped by some process
 * @pinned_bytes: referenced by somebody who has not mapped them
 */
struct actmem_usage {
	u64 mapped_bytes;
	u64 pinned_bytes;
};

/* ioctl.c */
long actmem_device_ioctl(struct file *file, unsigned int request, unsigned long arg);
long actmem_region_ioctl(struct file *file, unsigned int request, unsigned long arg);
int actmem_change_range(struct file *file, unsigned int request, void __user *user);
bool actmem_is_range(const struct actmem_region *region, u64 offset, u64 length);

int actmem_fetch(void *arg, size_t size, size_t oldest, void __user *user);
int actmem_answer(void __user *user, const void *arg, size_t size);
int actmem_answer_with_file(void __user *user, void *arg, size_t size, s32 *fd,
			    struct file *(*make)(void *context), void *context);
static inline void actmem_no_reason(struct actmem_why *why)
{
	*why = (struct actmem_why){ .reason = ACTMEM_WHY_NONE, .node = NUMA_NO_NODE };
}

/* create.c */
bool actmem_name_is_valid(const char *name, size_t length);
int actmem_create_unnamed(void __user *user);
int actmem_create_named(struct file *file, void __user *user);
int actmem_create_of_length(struct inode *inode, const struct dentry *dentry, loff_t length);

/* uring.c */
int actmem_uring_cmd(struct io_uring_cmd *command, unsigned int issue_flags);

/* dmabuf.c */
#ifdef CONFIG_DMA_SHARED_BUFFER
int actmem_export(struct file *file, void __user *user);
#else
static inline int actmem_export(struct file *file, void __user *user)
{
	return -EOPNOTSUPP;
}
#endif

/* mount.c */
int actmem_fs_init(void);
void actmem_fs_exit(void);

/* file.c */
struct file *actmem_file_make(struct actmem_region *region);
/* NULL of an empty file of a mount; otherwise it stays the same. */
static inline struct actmem_region *actmem_file_region(const struct file *file)
{
	/* Pairs with actmem_inode_attach(). */
	return smp_load_acquire(&file_inode(file)->i_private);
}

/* map.c */
int actmem_mmap(struct file *file, struct vm_area_struct *vma);
unsigned long actmem_get_unmapped_area(struct file *file, unsigned long address,
				       unsigned long length, unsigned long pgoff,
				       unsigned long flags);

/* sysfs.c */
int actmem_sysfs_init(struct miscdevice *device);
void actmem_sysfs_exit(void);

/* region.c */
struct actmem_region *actmem_region_create(struct actmem_ioctl_create *arg,
					   struct actmem_mount *mount);
void actmem_region_retire(struct actmem_region *region);
struct actmem_region *actmem_region_find(u64 id);
struct actmem_region *actmem_region_next(u64 *id);
void actmem_region_put(struct actmem_region *region);
bool actmem_regions_sweep(void);
unsigned long actmem_regions_total(void);
unsigned long actmem_lingering_regions_total(void);
void actmem_regions_exit(void);

/* populate.c */
void actmem_populate_init(void);
int actmem_populate(struct actmem_region *region, unsigned long first, unsigned long count,
		    unsigned long *done, struct actmem_why *why);
struct folio *actmem_slot_demand(struct actmem_region *region, unsigned long index,
				 struct actmem_why *why);

/* slots.c */
struct folio *actmem_slot_get(struct actmem_region *region, unsigned long index);
/* To system calls: what the processor's exception is to those who have it mapped. */
static inline int actmem_slot_error(const struct folio *folio)
{
	return PTR_ERR(folio) == -EHWPOISON ? -EIO : PTR_ERR(folio);
}

void actmem_slot_fill(struct actmem_region *region, unsigned long index, struct folio *folio);
bool actmem_slot_is_missing(const struct actmem_region *region, unsigned long index);
bool actmem_slot_is_poisoned(struct actmem_region *region, unsigned long index);
int actmem_slot_poison(struct actmem_region *region, unsigned long index, struct folio *folio);
void actmem_slot_unmap_poisoned(struct actmem_region *region, unsigned long index,
				struct folio *folio);
unsigned long actmem_slots_missing(const struct actmem_region *region, unsigned long first,
				   unsigned long count);
int actmem_discard(struct actmem_region *region, unsigned long first, unsigned long count,
		   unsigned long *done);
bool actmem_slots_give_back(struct actmem_region *region);
void actmem_slots_linger(struct actmem_region *region);
bool actmem_slots_give_back_lingering(struct actmem_region *region);
int actmem_slots_usage(struct actmem_region *region, struct actmem_usage *usage);

/* poison.c */
void actmem_poison_init(void);
void actmem_poison_exit(void);
bool actmem_poison_is_suspected(void);
bool actmem_page_has_failed(struct folio *folio);
void actmem_poison_explain(struct actmem_region *region, unsigned long index,
			   struct actmem_why *why);
void actmem_quarantine(struct folio *folio);

/* place.c */
unsigned long actmem_node_capacity(int node);
bool actmem_wait_for_page(unsigned int *waits);
int actmem_place_check(struct actmem_region *region, struct actmem_ioctl_create *arg);
void actmem_choose(const struct actmem_region *region, unsigned long wanted,
		   struct actmem_choice *choice);
int actmem_place_check_limits(struct actmem_region *region, const struct actmem_choice *choice,
			      unsigned long pages, struct actmem_why *why);
struct folio *actmem_place_page(struct actmem_region *region, unsigned long index,
				struct actmem_choice *choice, struct actmem_why *why);

/* dmem.c */
#ifdef CONFIG_CGROUP_DMEM
int actmem_dmem_init(void);
void actmem_dmem_exit(void);
int actmem_dmem_region_init(struct actmem_region *region);
void actmem_dmem_region_exit(struct actmem_region *region);
int actmem_dmem_charge(struct actmem_region *region, unsigned long index, int node);
void actmem_dmem_uncharge(struct actmem_region *region, unsigned long index);
#else
static inline int actmem_dmem_init(void)
{
	return 0;
}

static inline void actmem_dmem_exit(void)
{
}

static inline int actmem_dmem_region_init(struct actmem_region *region)
{
	return 0;
}

static inline void actmem_dmem_region_exit(struct actmem_region *region)
{
}

static inline int actmem_dmem_charge(struct actmem_region *region, unsigned long index, int node)
{
	return 0;
}

static inline void actmem_dmem_uncharge(struct actmem_region *region, unsigned long index)
{
}
#endif

/* pool.c */
int actmem_pool_init(void);
void actmem_pool_exit(void);
struct folio *actmem_pool_take(int node);
void actmem_pool_give(struct folio *folio);
int actmem_pool_set_target(int node, unsigned long target);
unsigned long actmem_pool_target(int node);
unsigned long actmem_pool_ready(int node);
unsigned long actmem_pool_lent(int node);
unsigned long actmem_pool_held(int node);

/* account.c */
extern unsigned long actmem_user_limit;
extern struct actmem_node *actmem_nodes;
int actmem_account_init(void);
void actmem_account_exit(void);
int actmem_user_attach(struct actmem_region *region);
void actmem_user_detach(struct actmem_region *region);
bool actmem_quota_charge(struct actmem_quota *quota);
void actmem_quota_uncharge(struct actmem_quota *quota);
struct actmem_quota actmem_quota_read(const struct actmem_quota *quota);
void actmem_quota_set_limit(struct actmem_quota *quota, unsigned long limit);
int actmem_quota_try_limit(struct actmem_quota *quota, unsigned long limit, unsigned long *used);
int actmem_check_room(const struct actmem_region *region, unsigned long pages,
		      struct actmem_why *why);
int actmem_charge_page(struct actmem_region *region, struct actmem_why *why);
void actmem_uncharge_page(struct actmem_region *region);
void actmem_count_page(struct actmem_region *region, int node, int change);
void actmem_count_as_lingering(struct actmem_region *region);

#endif /* _ACTMEM_H */
