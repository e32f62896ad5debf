/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the driver know of each other. The layers, from the top:
 * main and command, fs, map and sysfs, region, place, pool, account and node.
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
 * @page_count: pages, as created
 * @owner: user who created it
 * @pid: process that created it
 * @charged: user whose locked_vm counts the pages held, NULL if none does
 * @lock: see there
 * @pages_held: slots of @folios that are not NULL
 * @node_pages_held: the same for each node
 * @lingering: the inode is gone, what is held is pinned from outside
 * @folios: page i of the region. Nothing changes here as long as the inode
 *	lives, so that the fault handler needs no lock.
 * @linger: entry in the list of lingering regions
 * @rcu: readers of the table look at regions without a reference
 * @name: label for people
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
	struct user_struct *charged;
	/* Protects what follows, once the region is visible to others. */
	struct mutex lock;
	unsigned long pages_held;
	unsigned long *node_pages_held;
	bool lingering;
	struct folio **folios;
	struct list_head linger;
	struct rcu_head rcu;
	char name[ACTMEM_NAME_BYTES];
};

/**
 * struct actmem_usage - who uses the pages of a region at this moment
 * @mapped_pages: mapped by some process
 * @pinned_pages: referenced by somebody who has not mapped them
 */
struct actmem_usage {
	unsigned long mapped_pages;
	unsigned long pinned_pages;
};

/* command.c */
long actmem_device_ioctl(struct file *file, unsigned int request, unsigned long arg);
long actmem_region_ioctl(struct file *file, unsigned int request, unsigned long arg);

/* fs.c */
struct file *actmem_fs_open(struct actmem_region *region);
static inline struct actmem_region *actmem_file_region(const struct file *file)
{
	return file_inode(file)->i_private;
}

/* fdinfo.c */
void actmem_show_fdinfo(struct seq_file *seq, struct file *file);

/* map.c */
int actmem_mmap(struct file *file, struct vm_area_struct *vma);
unsigned long actmem_get_unmapped_area(struct file *file, unsigned long address,
				       unsigned long length, unsigned long pgoff,
				       unsigned long flags);

/* sysfs.c */
int actmem_sysfs_init(void);
void actmem_sysfs_exit(void);
const struct attribute_group **actmem_sysfs_groups(void);

/* region.c */
struct actmem_region *actmem_region_create(struct actmem_ioctl_create *arg);
void actmem_region_retire(struct actmem_region *region);
struct actmem_region *actmem_region_find(u64 id);
struct actmem_region *actmem_region_next(u64 *id);
void actmem_region_put(struct actmem_region *region);
void actmem_region_usage(struct actmem_region *region, struct actmem_usage *usage);
void actmem_regions_sweep(void);
void actmem_regions_exit(void);

/* place.c */
int actmem_place_check(struct actmem_region *region, struct actmem_ioctl_create *arg);
int actmem_place(struct actmem_region *region, struct actmem_ioctl_create *arg);

/* pool.c */
int actmem_pool_init(void);
void actmem_pool_exit(void);
struct folio *actmem_pool_take(int node);
void actmem_pool_give(struct folio *folio);
int actmem_pool_set_target(int node, u64 bytes);
int actmem_pool_set_floor(int node, u64 bytes);
u64 actmem_pool_target(int node);
u64 actmem_pool_floor(int node);
u64 actmem_pool_ready(int node);
unsigned long actmem_pool_held(int node);

/* pool_param.c */
int actmem_pool_param(void);

/* node.c */
int actmem_nearest_node(const nodemask_t *mask, int from);
unsigned long actmem_node_capacity(int node);
unsigned long actmem_node_free(int node);
bool actmem_node_has_room(int node);

/* account.c */
int actmem_account_init(void);
void actmem_account_exit(void);
int actmem_charge(struct actmem_region *region, struct actmem_ioctl_create *arg);
void actmem_uncharge(struct actmem_region *region, unsigned long pages);
void actmem_count_region(int change);
void actmem_count_lingering_region(int change);
void actmem_count_pages(int node, long change);
void actmem_count_lingering_pages(int node, long change);
unsigned long actmem_regions_total(void);
unsigned long actmem_lingering_regions_total(void);
u64 actmem_node_bytes(int node);
u64 actmem_node_lingering_bytes(int node);

#endif /* _ACTMEM_H */
