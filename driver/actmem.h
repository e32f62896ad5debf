/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations that the driver's files share. A file calls only functions of files that come later
 * in this list: main, ioctl, file, mount, inode, create, dmabuf, map, sysfs, populate, poison,
 * reclaim, region, slots, place, pool, dmem, quarantine, node, account, argument, the tracepoints.
 * This rule does not apply to functions that the kernel calls through tables of operations.
 *
 * The lock order, outermost first:
 *
 *	inode->i_rwsem				giving a file its region, naming the region
 *	mmap_lock				page faults (taken by the kernel)
 *	actmem_pool.settings			changing the target of a pool
 *	actmem_region.unmap_lock		keeping the region's inode alive
 *	actmem_region.lock			slots and their counters
 *	account_lock (account.c)		all quotas, and the table of users
 *	actmem_pool.lock			the lists of a pool
 *	lingering_lock (region.c)		the list of lingering (closed, but pinned) regions
 *
 * actmem_region.lock and the locks below it are spinlocks with short critical sections. A task that
 * calls the page allocator may hold actmem_pool.settings, but no lock below it in the list. A
 * region has a slot for each page (slots.c). To allocate a page, a task claims the page's slot.
 * Until this claim ends, the task acquires neither mmap_lock nor another claim.
 *
 * A task that copies from or to user memory holds no lock and no claim of the driver, because user
 * memory can take arbitrarily long (FUSE, userfaultfd).
 */
#ifndef _ACTMEM_H
#define _ACTMEM_H

#include <linux/fs.h>
#include <linux/list.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/types.h>
#include <linux/uidgid.h>
#include <linux/wait.h>
#include <linux/xarray.h>

#include "uapi/actmem.h"

struct actmem_mount;
struct actmem_user;
struct dmem_cgroup_ops;
struct dmem_cgroup_pool_state;
struct miscdevice;

#define ACTMEM_PAGE_ORDER	HPAGE_PMD_ORDER
#define ACTMEM_MAX_PAGES	BIT(23)

/* Converts huge pages to small pages, the unit of vm_pgoff. */
#define ACTMEM_SMALL_PAGES(pages)	((pages) << ACTMEM_PAGE_ORDER)

/**
 * struct actmem_quota - usage and limit of a resource
 * @limit: maximum of @used, or ACTMEM_NO_LIMIT. @used can be above a limit that was lowered.
 * @used: number of existing objects, plus the number of objects that are about to be created
 */
struct actmem_quota {
	unsigned long limit;
	unsigned long used;
};

/* The value of @limit for a quota without a limit. */
#define ACTMEM_NO_LIMIT		ULONG_MAX

/* Returns how many more objects the limit allows. @quota is from actmem_quota_read(). */
static inline unsigned long actmem_quota_left(struct actmem_quota quota)
{
	return quota.limit - min(quota.limit, quota.used);
}

/**
 * struct actmem_node - pages on one node
 * @dmem: the node as a region of the dmem controller
 * @pages: quota of the pages of all regions
 * @lingering: pages of lingering regions (closed, but still pinned); these pages also count in
 *	@pages
 * @poisoned: pages in which the hardware reported an error; this number never falls
 */
struct actmem_node {
	struct dmem_cgroup_region *dmem;
	struct actmem_quota pages;
	atomic_long_t lingering;
	atomic_long_t poisoned;
};

/**
 * struct actmem_region - a range of huge pages
 * @ref: reference count. The inode holds a reference. When the inode is gone, the list of lingering
 *	regions holds this reference. Each caller that found the region by its id also holds a
 *	reference
 * @id: index in the table of regions
 * @flags: ACTMEM_CREATE_*
 * @policy: ACTMEM_POLICY_*
 * @nodes: node mask of the policy
 * @page_count: length in pages, including missing pages
 * @owner: user that created the region
 * @pid: process that created the region
 * @mount: mount of the region's file, NULL for an unnamed region
 * @user: user whose limit applies to the region; NULL after actmem_user_detach()
 * @memlock_pages: RLIMIT_MEMLOCK of the creator; ACTMEM_NO_LIMIT if the creator has CAP_IPC_LOCK
 * @charged: pages that the region has or is about to get; protected by account_lock
 * @unmap_lock: keeps @inode alive while a task unmaps pages, because the task has no reference to
 *	@inode; acquired before @lock
 * @inode: NULL before the region has an inode, and after the inode was evicted
 * @unclaimed: wait queue for tasks that wait until another task's claim ends
 * @charges: entry i is the dmem cgroup to which page i is charged, if the kernel has dmem cgroups
 * @linger: entry in the list of lingering regions
 * @rcu: frees the region after a grace period, because tasks that search the table access regions
 *	under RCU, without a reference
 * @lock: protects the region's pages, and the fields below, which describe these pages
 * @pages_held: number of slots that have a page
 * @demand_faults: pages that page faults allocated
 * @exported_pages: pages in dma-bufs of the region; a page counts once for each dma-buf that
 *	contains it
 * @poisoned_pages: pages in @slots in which the hardware reported an error
 * @asked_pages: pages that the region should still give back because dmem.max was lowered
 * @asked_until: when the request for @asked_pages ends, in jiffies
 * @lingering: true if the inode is gone, but code outside the driver still pins the region's
 *	remaining pages
 * @slots: entry i is page i of the region, or a claim while a task allocates this page. Pages are
 *	stored and removed under @lock. A task needs no @lock to create a claim, or to remove a
 *	claim after a failure
 * @name: the name of the region's file; for an unnamed region, a text that the creator chose
 * @node_pages_held: number of the region's pages on each node
 */
struct actmem_region {
	refcount_t ref;
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
	/* Keeps @inode alive. */
	struct mutex unmap_lock;
	struct inode *inode;
	wait_queue_head_t unclaimed;
	struct xarray charges;
	struct list_head linger;
	struct rcu_head rcu;
	/* Protects the fields below. slot_empty() in slots.c relies on this lock. */
	spinlock_t lock;
	unsigned long pages_held;
	unsigned long demand_faults;
	unsigned long exported_pages;
	unsigned long poisoned_pages;
	unsigned long asked_pages;
	unsigned long asked_until;
	bool lingering;
	struct xarray slots;
	char name[ACTMEM_NAME_BYTES];
	unsigned long node_pages_held[];
};

/*
 * The number of references that the driver holds to each of its pages: in a slot, in a pool, in
 * quarantine, and in between. With only one reference, unpoison-pfn of hwpoison-inject would free
 * the page, because the kernel would mistake the driver's reference for the kernel's own.
 */
#define ACTMEM_PAGE_REFERENCES	2

/*
 * The driver stores notes about a page (two bits and the id of a region) in the page's
 * folio->private. The kernel does not use this field for the driver's pages, and does not read it
 * unless PG_private is set. LENT: the page belongs to a pool, which has lent it to a region
 * (pool.c). The task that takes the page from the pool sets LENT, and the task that gives the page
 * back clears LENT. POISONED: the page is in a region, and the hardware reported an error in the
 * page. The region's lock protects this bit. The higher bits hold the id of the region to which the
 * page belongs.
 */
#define ACTMEM_PAGE_LENT	BIT(0)
#define ACTMEM_PAGE_POISONED	BIT(1)
#define ACTMEM_PAGE_ID_SHIFT	2

static inline unsigned long actmem_page_notes(const struct folio *folio)
{
	return (unsigned long)READ_ONCE(folio->private);
}

static inline void actmem_page_notes_set(struct folio *folio, unsigned long notes)
{
	WRITE_ONCE(folio->private, (void *)notes);
}

/**
 * struct actmem_choice - the nodes from which the current task takes pages
 * @wanted: number of pages that the task still has to allocate
 * @placed: pages already allocated
 * @placed_here: without interleaving, pages that were allocated on the nearest node that is left in
 *	@nodes
 * @charged: allocated pages that are charged to a memory cgroup
 * @nodes: nodes that the policy permits. If a node is full or has reached its limit, it is removed
 *	from @nodes, unless it is the only node left. With interleaving, no node is removed
 * @from: without interleaving, nodes are tried in order of their distance from this node
 */
struct actmem_choice {
	unsigned long wanted;
	unsigned long placed;
	unsigned long placed_here;
	unsigned long charged;
	nodemask_t nodes;
	int from;
};

static inline void actmem_why_clear(struct actmem_why *why)
{
	*why = (struct actmem_why){ .reason = ACTMEM_WHY_NONE, .node = NUMA_NO_NODE };
}

/* ioctl.c */
long actmem_device_ioctl(struct file *file, unsigned int request, unsigned long arg);
long actmem_region_ioctl(struct file *file, unsigned int request, unsigned long arg);

/* file.c */
struct file *actmem_file_make(struct actmem_region *region);
/*
 * Returns the file's region, or NULL for an empty file of a mount. Once a file has a region, it
 * keeps this region.
 */
static inline struct actmem_region *actmem_file_region(const struct file *file)
{
	/* Pairs with actmem_create_attach(). */
	return smp_load_acquire(&file_inode(file)->i_private);
}

/* mount.c */
int actmem_mount_init(void);
void actmem_mount_exit(void);

/* create.c */
bool actmem_name_is_valid(const char *name, size_t length);
struct actmem_region *actmem_create_region(struct actmem_ioctl_create *arg,
					   struct actmem_mount *mount);
struct actmem_region *actmem_create_for_file(struct inode *inode, struct actmem_ioctl_create *arg);
void actmem_create_attach(struct inode *inode, struct actmem_region *region);
int actmem_create_attach_named(struct inode *inode, struct actmem_region *region);
int actmem_create_of_length(struct inode *inode, loff_t length);

/* dmabuf.c, with CONFIG_DMA_SHARED_BUFFER */
int actmem_dmabuf_export(struct file *file, void __user *user);

/* map.c */
int actmem_mmap(struct file *file, struct vm_area_struct *vma);
unsigned long actmem_get_unmapped_area(struct file *file, unsigned long address,
				       unsigned long length, unsigned long pgoff,
				       unsigned long flags);

/* sysfs.c */
int actmem_sysfs_init(struct miscdevice *device);
void actmem_sysfs_exit(void);

/* populate.c */
int actmem_populate(struct actmem_region *region, unsigned long first, unsigned long count,
		    unsigned long *done, struct actmem_why *why);
struct folio *actmem_populate_demand(struct actmem_region *region, unsigned long index,
				     struct actmem_why *why);

/* poison.c */
void actmem_poison_init(void);
void actmem_poison_exit(void);
void actmem_poison_explain(struct actmem_region *region, unsigned long index,
			   struct actmem_why *why);

/* region.c */
extern atomic_long_t actmem_region_total;
struct actmem_region *actmem_region_create(struct actmem_ioctl_create *arg,
					   struct actmem_mount *mount);
void actmem_region_set_name(struct actmem_region *region, const struct dentry *dentry);
void actmem_region_retire(struct actmem_region *region);
struct actmem_region *actmem_region_find(u64 id);
struct actmem_region *actmem_region_next(u64 *id);
void actmem_region_put(struct actmem_region *region);
bool actmem_region_has_range(const struct actmem_region *region, u64 offset, u64 length);
bool actmem_regions_sweep(void);
unsigned long actmem_lingering_regions_total(void);
void actmem_regions_exit(void);

/* slots.c */
struct folio *actmem_slot_get(struct actmem_region *region, unsigned long index);
/*
 * Translates an error of actmem_slot_get() to the error of a system call. Page faults do not use
 * this function: a thread that touches a poisoned page gets a signal.
 */
static inline int actmem_slot_error(const struct folio *folio)
{
	return PTR_ERR(folio) == -EHWPOISON ? -EIO : PTR_ERR(folio);
}

int actmem_slot_claim(struct actmem_region *region, unsigned long index);
int actmem_slot_wait(struct actmem_region *region, unsigned long index);
void actmem_slot_fill(struct actmem_region *region, unsigned long index, struct folio *folio);
bool actmem_slot_is_missing(struct actmem_region *region, unsigned long index);
bool actmem_slot_is_poisoned(struct actmem_region *region, unsigned long index);
int actmem_slot_poison(struct actmem_region *region, unsigned long index, struct folio *folio);
void actmem_slot_unmap_poisoned(struct actmem_region *region, unsigned long index,
				struct folio *folio);
unsigned long actmem_slots_missing(struct actmem_region *region, unsigned long first,
				   unsigned long count);
int actmem_slots_discard(struct actmem_region *region, unsigned long first, unsigned long count,
			 unsigned long *done);
bool actmem_slots_give_back(struct actmem_region *region);
int actmem_slots_usage(struct actmem_region *region, struct actmem_ioctl_info *info);

/* place.c */
int actmem_place_check(struct actmem_region *region, struct actmem_ioctl_create *arg);
void actmem_place_choose(const struct actmem_region *region, unsigned long wanted,
			 struct actmem_choice *choice);
int actmem_place_check_limits(struct actmem_region *region, const struct actmem_choice *choice,
			      unsigned long pages, struct actmem_why *why);
struct folio *actmem_place_page(struct actmem_region *region, unsigned long index,
				struct actmem_choice *choice, struct actmem_why *why);

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

/* dmem.c and reclaim.c, with CONFIG_CGROUP_DMEM */
#define ACTMEM_HAS_DMEM		IS_ENABLED(CONFIG_CGROUP_DMEM)
extern const struct dmem_cgroup_ops actmem_reclaim_operations;
int actmem_dmem_init(void);
void actmem_dmem_exit(void);
int actmem_dmem_charge(struct actmem_region *region, unsigned long index, int node);
void actmem_dmem_uncharge(struct actmem_region *region, unsigned long index);
unsigned long actmem_dmem_pages(struct actmem_region *region, struct dmem_cgroup_pool_state *pool);

/* quarantine.c */
extern bool actmem_quarantine_expected;
bool actmem_quarantine_is_needed(struct folio *folio);
void actmem_quarantine_log(struct actmem_region *region, unsigned long index, struct folio *folio);
void actmem_quarantine_page(struct folio *folio);

/* node.c */
struct folio *actmem_node_alloc(int node, gfp_t gfp);
void actmem_node_free(struct folio *folio);
unsigned long actmem_node_pages(int node, bool free);
u64 actmem_node_movable_bytes(int node);
unsigned long actmem_node_capacity(int node);
bool actmem_node_wait(unsigned int *waits);

/* account.c */
extern unsigned long actmem_user_limit;
extern struct wait_queue_head actmem_limit_changed;
extern struct actmem_node *actmem_nodes;
int actmem_account_init(void);
void actmem_account_exit(void);
int actmem_user_attach(struct actmem_region *region);
void actmem_user_detach(struct actmem_region *region);
bool actmem_quota_charge(struct actmem_quota *quota);
void actmem_quota_uncharge(struct actmem_quota *quota);
struct actmem_quota actmem_quota_read(const struct actmem_quota *quota);
int actmem_why_fail(struct actmem_why *why, int err, u32 reason, int node, unsigned long wanted,
		    unsigned long available);
void actmem_limit_set(unsigned long *limit, unsigned long value);
int actmem_account_check(const struct actmem_region *region, unsigned long pages,
			 struct actmem_why *why);
int actmem_account_charge(struct actmem_region *region, struct actmem_why *why);
void actmem_account_uncharge(struct actmem_region *region);
unsigned long actmem_account_surplus(struct actmem_region *region, u32 *reason);
void actmem_account_count(struct actmem_region *region, int node, int change);
void actmem_account_linger(struct actmem_region *region);

/* argument.c */
int actmem_argument_fetch(void *arg, size_t size, size_t oldest, void __user *user);
int actmem_argument_answer(void __user *user, const void *arg, size_t size);
int actmem_argument_answer_with_file(void __user *user, void *arg, size_t size, s32 *fd,
				     struct file *(*make)(void *context), void *context);
const char *actmem_argument_number(const char *text, u64 *number);

#endif /* _ACTMEM_H */
