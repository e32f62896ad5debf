/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the driver know of each other. The layers, from the top:
 * main, machine_check, command and uring; request, create and export; fs,
 * mount_options, inode and file; seal, dmabuf, map, sysfs and fdinfo; copy; populate;
 * poison; slots; region; import; place; pool, account, user, mount, node, parallel and
 * caller; failure and the tracepoints.
 */
#ifndef _ACTMEM_H
#define _ACTMEM_H

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/rcupdate.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#include "uapi/actmem.h"

struct actmem_import;
struct actmem_mount;
struct actmem_user;
struct attribute_group;
struct device;
struct dma_buf;
struct miscdevice;

#define ACTMEM_PAGE_ORDER	HPAGE_PMD_ORDER
#define ACTMEM_MAX_PAGES	BIT(23)

/* Small pages, the unit of vm_pgoff and of RLIMIT_MEMLOCK, of huge ones. */
#define ACTMEM_SMALL_PAGES(pages)	((pages) << ACTMEM_PAGE_ORDER)

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
 * @user: of @owner, as long as the region is counted
 * @charged: user whose locked_vm is charged with pages that no limit of the
 *	administrator's holds for, NULL if its maker may lock any amount
 * @charged_pages: pages it has that it is charged with; protected by the lock of user.c
 * @memlock_pages: small pages, RLIMIT_MEMLOCK of its maker
 * @reserved: pages that it has or is about to get; protected by the lock of user.c
 * @spare: those of them that nobody has begun to make, [1] if it is charged with them
 * @reserve_lock: of who reserves many at once
 * @reservers: how many do; the last gives back what is spare
 * @writers: commands that write at this moment; see seal.c
 * @unmap_lock: taken before @lock by who unmaps pages without a reference to @inode,
 *	which stays as long as it is held
 * @inode: NULL before it has one and once it lingers
 * @lock: see there; held for an instant only
 * @pages_held: slots of @folios that are not NULL
 * @node_small_pages: small pages on each node
 * @demand_faults: pages allocated when first touched
 * @exported_pages: pages of the dma-bufs that there are of it
 * @poisoned_pages: length of @poisoned
 * @poisoned: pages in @folios in which the hardware has erred
 * @lingering: the inode is gone, what is held is pinned from outside
 * @folios: page i of the region, NULL if it is missing; NULL if it was imported
 * @import: where its pages are, if it was imported; NULL otherwise
 * @kept_first: once the inode is gone, first slot that may hold a page
 * @kept_end: and the end of those slots
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
	struct user_struct *charged;
	unsigned long charged_pages;
	unsigned long memlock_pages;
	unsigned long reserved;
	atomic_long_t spare[2];
	/* Protects what follows, and that @spare does not outlast it. */
	struct mutex reserve_lock;
	unsigned int reservers;
	atomic_t writers;
	/* Protects that @inode stays. */
	struct mutex unmap_lock;
	struct inode *inode;
	/* Protects what follows, and the gate of slots.c. */
	spinlock_t lock;
	unsigned long pages_held;
	unsigned long *node_small_pages;
	unsigned long demand_faults;
	unsigned long exported_pages;
	unsigned long poisoned_pages;
	struct list_head poisoned;
	bool lingering;
	struct folio **folios;
	struct actmem_import *import;
	unsigned long kept_first;
	unsigned long kept_end;
	struct list_head linger;
	struct rcu_head rcu;
	char name[ACTMEM_NAME_BYTES];
};

/**
 * struct actmem_caller - on whose behalf pages are taken, moved or given back
 * @allowed: nodes that its cpuset allows and that have memory
 * @node: near which it runs
 * @memcg: to charge with, NULL for the current task's
 * @task: waits for the work; what stops it, stops the work
 * @req: the command of io_uring that the work is, NULL if it is none; then @task
 *	is a worker of io_uring, and notified if the work is cancelled
 */
struct actmem_caller {
	nodemask_t allowed;
	int node;
	struct mem_cgroup *memcg;
	struct task_struct *task;
	const void *req;
};

/*
 * What the driver notes on a page of its own: where folio->private points to, which
 * nobody else uses for a page like this, and nobody looks at without the flag
 * PG_private. LENT: a pool has lent it; changed by who takes it from the pool or
 * gives it back. POISONED: it is in a region and the hardware has erred in it;
 * protected by the region's lock.
 */
#define ACTMEM_PAGE_LENT	BIT(0)
#define ACTMEM_PAGE_POISONED	BIT(1)
#define ACTMEM_PAGE_NOTES	4

extern char actmem_page_notes[ACTMEM_PAGE_NOTES];

static inline unsigned long actmem_page_notes_of(const struct folio *folio)
{
	unsigned long notes = (unsigned long)folio->private - (unsigned long)actmem_page_notes;

	return notes < ACTMEM_PAGE_NOTES ? notes : 0;
}

static inline void actmem_page_note(struct folio *folio, unsigned long notes)
{
	folio->private = notes ? &actmem_page_notes[notes] : NULL;
}

/* Which nodes to take pages from, for one caller. */
struct actmem_choice;

/*
 * How far to go for a page: what a pool has ready; then what is free and can be
 * zeroed; then what can be reclaimed, and after that other nodes.
 */
enum actmem_effort {
	ACTMEM_READY,
	ACTMEM_FREE,
	ACTMEM_RECLAIM,
};

/* Pages that may be had if there is no limit. */
#define ACTMEM_NO_LIMIT		ULONG_MAX

/**
 * struct actmem_user_usage - what a user's regions have at this moment
 * @regions: that there are
 * @pages: that they have
 * @lingering_pages: those of them that belong to lingering regions
 * @limit: pages that they may have, by the user's own limit
 */
struct actmem_user_usage {
	unsigned long regions;
	unsigned long pages;
	unsigned long lingering_pages;
	unsigned long limit;
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

/**
 * struct actmem_extent - bytes of a region that are one behind the other in a page
 * @folio: with a reference for the caller; NULL if it is missing
 * @offset: of the first of them in it, in bytes
 * @length: up to its end, in bytes
 */
struct actmem_extent {
	struct folio *folio;
	size_t offset;
	size_t length;
};

/* command.c */
long actmem_device_ioctl(struct file *file, unsigned int request, unsigned long arg);
long actmem_region_ioctl(struct file *file, unsigned int request, unsigned long arg);

/* uring.c */
int actmem_uring_cmd(struct io_uring_cmd *command, unsigned int issue_flags);

/* request.c */
int actmem_request(struct file *file, unsigned int request, void __user *user,
		   const struct actmem_caller *caller);

bool actmem_is_range(const struct actmem_region *region, u64 offset, u64 length);

/* export.c */
int actmem_export(struct file *file, void __user *user);

/* dmabuf.c */
#ifdef CONFIG_DMA_SHARED_BUFFER
struct dma_buf *actmem_dmabuf_create(struct file *file, unsigned long first, unsigned long count,
				     bool writable, const struct actmem_caller *caller,
				     struct actmem_why *why);
#else
static inline struct dma_buf *actmem_dmabuf_create(struct file *file, unsigned long first,
						   unsigned long count, bool writable,
						   const struct actmem_caller *caller,
						   struct actmem_why *why)
{
	return ERR_PTR(-EOPNOTSUPP);
}
#endif

/* argument.c */
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
struct file *actmem_create_unnamed(struct actmem_ioctl_create *arg);
struct file *actmem_create_imported(struct actmem_ioctl_import *arg);
int actmem_create_named(struct file *file, void __user *user);
int actmem_create_lazy(struct inode *inode, const struct dentry *dentry,
		       struct actmem_ioctl_create *arg);
int actmem_create_for_file(struct file *file, struct actmem_ioctl_create *arg);

/* fs.c */
int actmem_fs_init(void);
void actmem_fs_exit(void);
struct file *actmem_fs_open(struct actmem_region *region);

/* file.c */
bool actmem_is_region(const struct file *file);
/* NULL of an empty file of a mount; otherwise it stays the same. */
static inline struct actmem_region *actmem_file_region(const struct file *file)
{
	/* Pairs with actmem_inode_attach(). */
	return smp_load_acquire(&file_inode(file)->i_private);
}

/* seal.c */
bool actmem_is_sealed(const struct actmem_region *region);
int actmem_begin_write(struct actmem_region *region);
void actmem_end_write(struct actmem_region *region);
int actmem_seal(struct file *file, void __user *user);

/* fdinfo.c */
void actmem_show_fdinfo(struct seq_file *seq, struct file *file);
const char *actmem_policy_name(u32 policy);

/* map.c */
int actmem_mmap(struct file *file, struct vm_area_struct *vma);
int actmem_map_anywhere(struct actmem_region *region, struct vm_area_struct *vma);
unsigned long actmem_get_unmapped_area(struct file *file, unsigned long address,
				       unsigned long length, unsigned long pgoff,
				       unsigned long flags);

/* sysfs.c */
int actmem_sysfs_init(void);
void actmem_sysfs_exit(void);
const struct attribute_group **actmem_sysfs_groups(void);
ssize_t actmem_sysfs_show_limit(char *buffer, unsigned long pages);
int actmem_sysfs_parse_limit(const char *text, unsigned long *pages);

/* sysfs_users.c */
extern const struct attribute_group actmem_sysfs_all_users;
extern const struct attribute_group actmem_sysfs_one_user;

/* region.c */
struct actmem_region *actmem_region_create(struct actmem_ioctl_create *arg,
					   struct actmem_mount *mount);
struct actmem_region *actmem_region_import(struct actmem_ioctl_import *arg, struct file *memory);
void actmem_region_retire(struct actmem_region *region);
struct actmem_region *actmem_region_find(u64 id);
struct actmem_region *actmem_region_next(u64 *id);
void actmem_region_put(struct actmem_region *region);
int actmem_regions_sweep(void);
void actmem_regions_exit(void);

/* copy.c */
int actmem_copy(struct actmem_region *to, u64 offset, struct actmem_region *from,
		u64 source_offset, u64 length, const struct actmem_caller *caller, u64 *done,
		struct actmem_why *why);

/* copy_dma.c */
void actmem_copy_dma_exit(void);
u64 actmem_dma_copied_bytes(void);
u64 actmem_dma_missed_bytes(void);

/* populate.c */
void actmem_populate_init(void);
int actmem_populate(struct actmem_region *region, unsigned long first, unsigned long count,
		    const struct actmem_caller *caller, unsigned long *done,
		    struct actmem_why *why);
struct folio *actmem_slot_demand(struct actmem_region *region, unsigned long index,
				 const struct actmem_caller *caller, struct actmem_why *why);
int actmem_extent_demand(struct actmem_region *region, u64 offset,
			 const struct actmem_caller *caller, struct actmem_why *why,
			 struct actmem_extent *extent);

/* slots.c */
struct folio *actmem_slot_get(struct actmem_region *region, unsigned long index);
/* To system calls: what the processor's exception is to those who have it mapped. */
static inline int actmem_slot_error(const struct folio *folio)
{
	return PTR_ERR(folio) == -EHWPOISON ? -EIO : PTR_ERR(folio);
}

int actmem_extent_of_slot(struct folio *folio, u64 offset, struct actmem_extent *extent);
int actmem_extent_get(struct actmem_region *region, u64 offset, struct actmem_extent *extent);
void actmem_slot_fill(struct actmem_region *region, unsigned long index, struct folio *folio);
bool actmem_slot_is_missing(const struct actmem_region *region, unsigned long index);
bool actmem_slot_is_poisoned(struct actmem_region *region, unsigned long index);
bool actmem_slot_poison(struct actmem_region *region, unsigned long index, struct folio *folio);
bool actmem_slots_unmap_poisoned(struct actmem_region *region);
unsigned long actmem_slots_missing(const struct actmem_region *region, unsigned long first,
				   unsigned long count);
int actmem_discard(struct actmem_region *region, unsigned long first, unsigned long count,
		   const struct actmem_caller *caller, unsigned long *done);
bool actmem_slots_give_back(struct actmem_region *region);
int actmem_slots_usage(struct actmem_region *region, struct actmem_usage *usage);

/* poison.c */
void actmem_poison_report(unsigned long pfn);
void actmem_poison_settle(void);
void actmem_poison_stop(void);
void actmem_poison_exit(void);
bool actmem_poison_is_suspected(void);
bool actmem_page_has_failed(struct folio *folio);
bool actmem_poison_check(struct actmem_region *region, unsigned long index);
void actmem_poison_explain(struct actmem_region *region, unsigned long index,
			   struct actmem_why *why);
void actmem_quarantine(struct folio *folio);

/* machine_check.c */
int actmem_machine_check_init(void);
void actmem_machine_check_exit(void);

/* place.c */
int actmem_place_check(struct actmem_region *region, struct actmem_ioctl_create *arg);
struct actmem_choice *actmem_choose(const struct actmem_region *region,
				    const struct actmem_caller *caller, unsigned long wanted);
int actmem_place_capacity(const struct actmem_region *region, const struct actmem_choice *choice,
			  struct actmem_why *why);
int actmem_place_limits(const struct actmem_region *region, const struct actmem_choice *choice,
			unsigned long wanted, struct actmem_why *why);
unsigned int actmem_place_current(const struct actmem_choice *choice);
unsigned int actmem_place_stride(const struct actmem_region *region,
				 const struct actmem_choice *choice);
int actmem_place_node(const struct actmem_region *region, unsigned long index,
		      const struct actmem_choice *choice);
struct folio *actmem_place_page(const struct actmem_region *region, unsigned long index,
				struct actmem_choice *choice, const struct actmem_caller *caller,
				enum actmem_effort effort, struct actmem_why *why);

/* caller.c */
void actmem_caller_init(struct actmem_caller *caller);
void actmem_caller_share(struct actmem_caller *caller);
void actmem_caller_unshare(struct actmem_caller *caller);
int actmem_caller_stopped(const struct actmem_caller *caller);

/* pool.c */
int actmem_pool_init(void);
void actmem_pool_exit(void);
struct folio *actmem_pool_take_ready(int node);
struct folio *actmem_pool_take(int node);
bool actmem_pool_has_lent(const struct folio *folio);
void actmem_pool_give(struct folio *folio);
int actmem_pool_set_target(int node, u64 bytes);
int actmem_pool_set_floor(int node, u64 bytes);
u64 actmem_pool_target(int node);
u64 actmem_pool_floor(int node);
u64 actmem_pool_ready(int node);
u64 actmem_pool_lent(int node);
unsigned long actmem_pool_held(int node);

/* pool_param.c */
int actmem_pool_param(void);

/* node.c */
int actmem_nearest_node(const nodemask_t *mask, int from);
unsigned long actmem_node_capacity(int node);
unsigned long actmem_node_free(int node);
bool actmem_node_has_room(int node);

/* parallel.c */
int actmem_parallel_init(void);
void actmem_parallel_exit(void);
int actmem_parallel(int node, unsigned long items, int (*work)(void *context, unsigned long item),
		    void *context);

/* failure.c */
void actmem_alloc_failed(const struct actmem_region *region, int err,
			 const struct actmem_why *why);
void actmem_fault_failed(const struct actmem_region *region, unsigned long index, int err,
			 const struct actmem_why *why);
void actmem_bounce_refused(const struct actmem_region *region, struct device *dev, bool forced);
void actmem_pool_stalled(int node, unsigned long held, unsigned long target);
void actmem_page_failed(const struct actmem_region *region, unsigned long index,
			struct folio *folio);

/* account.c */
int actmem_account_init(void);
void actmem_account_exit(void);
bool actmem_node_reserve(int node);
void actmem_node_unreserve(int node);
bool actmem_node_reserve_small(int node, unsigned long pages);
void actmem_node_unreserve_small(int node, unsigned long pages);
unsigned long actmem_node_left(int node);
unsigned long actmem_node_limit(int node);
void actmem_set_node_limit(int node, unsigned long pages);
void actmem_count_region(int change);
void actmem_count_lingering_region(int change);
void actmem_count_on_node(struct actmem_region *region, int node, long change);
void actmem_count_held(struct actmem_region *region, long change);
void actmem_count_page(struct actmem_region *region, const struct folio *folio);
void actmem_uncount_page(struct actmem_region *region, const struct folio *folio);
void actmem_count_as_lingering(struct actmem_region *region);
unsigned long actmem_regions_total(void);
unsigned long actmem_lingering_regions_total(void);
unsigned long actmem_node_regions(int node);
u64 actmem_node_bytes(int node);
u64 actmem_node_lingering_bytes(int node);
void actmem_count_poisoned_page(int node);
u64 actmem_node_poisoned_bytes(int node);

/* mount.c */
struct actmem_mount *actmem_mount_get(struct actmem_mount *mount);
void actmem_mount_put(struct actmem_mount *mount);
int actmem_mount_reserve(struct actmem_mount *mount, unsigned long pages, struct actmem_why *why);
void actmem_mount_unreserve(struct actmem_mount *mount, unsigned long pages);

/* user.c */
void actmem_users_init(struct miscdevice *misc, const struct attribute_group *all,
		       const struct attribute_group *each);
int actmem_users_show(void);
void actmem_users_exit(void);
int actmem_user_attach(struct actmem_region *region);
void actmem_user_detach(struct actmem_region *region);
int actmem_reserve(struct actmem_region *region, unsigned long pages, bool *charged,
		   struct actmem_why *why);
void actmem_unreserve(struct actmem_region *region, unsigned long pages, bool charged);
void actmem_keep_reserved(struct actmem_region *region, unsigned long pages, bool charged);
void actmem_release_reserved(struct actmem_region *region, unsigned long pages);
unsigned long actmem_underway(const struct actmem_region *region);
void actmem_user_count_pages(struct actmem_user *user, long change);
void actmem_user_count_lingering_pages(struct actmem_user *user, long change);
int actmem_user_usage(u32 uid, struct actmem_user_usage *usage);
int actmem_user_set_limit(u32 uid, unsigned long pages);
int actmem_user_add(u32 uid);
int actmem_user_remove(u32 uid);
unsigned long actmem_default_limit(void);
void actmem_set_default_limit(unsigned long pages);

#endif /* _ACTMEM_H */
