// SPDX-License-Identifier: GPL-2.0
/*
 * What regions have and may have: on a node, of a user, and of a mount. A page counts
 * from before it is made until it is gone, and against all of them or none, so that
 * no limit is ever exceeded.
 *
 * The memory cgroup is charged by the page allocator, with __GFP_ACCOUNT; the dmem
 * cgroup, which may limit a pool's pages, too, in dmem.c.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include "actmem.h"
#include "mount.h"

/**
 * struct actmem_user - a user that has regions
 * @entry: in the table of users
 * @uid: what the user is known by
 * @regions: that count for it; with the last one it goes
 * @pages: that these have or are about to get
 */
struct actmem_user {
	struct hlist_node entry;
	kuid_t uid;
	unsigned long regions;
	unsigned long pages;
};

/*
 * Protects every quota, the users and their table, and actmem_region.charged; held for
 * an instant only.
 */
static DEFINE_SPINLOCK(account_lock);
static DEFINE_HASHTABLE(users, 6);

/* Of each user, but for regions whose maker had CAP_IPC_LOCK. */
unsigned long actmem_user_limit = ACTMEM_NO_LIMIT;

struct actmem_node *actmem_nodes;

int actmem_account_init(void)
{
	int node;

	actmem_nodes = kcalloc(nr_node_ids, sizeof(*actmem_nodes), GFP_KERNEL);
	if (!actmem_nodes)
		return -ENOMEM;
	for (node = 0; node < nr_node_ids; node++)
		actmem_nodes[node].pages.limit = ACTMEM_NO_LIMIT;
	return 0;
}

void actmem_account_exit(void)
{
	int node;

	for (node = 0; node < nr_node_ids; node++)
		WARN_ON_ONCE(actmem_nodes[node].pages.used ||
			     atomic_long_read(&actmem_nodes[node].lingering));
	WARN_ON_ONCE(!hash_empty(users));
	kfree(actmem_nodes);
}

/*
 * A user namespace has as many uids as /etc/subuid gives its owner. A limit of each uid
 * would not hold him: so regions made in one count for the owner of the outermost
 * below the initial one.
 */
static kuid_t user_accountable_uid(void)
{
	const struct user_namespace *namespace = current_user_ns();
	kuid_t uid = current_euid();

	for (; namespace != &init_user_ns; namespace = namespace->parent)
		uid = namespace->owner;
	return uid;
}

static struct actmem_user *user_find(kuid_t uid)
{
	struct actmem_user *user;

	lockdep_assert_held(&account_lock);
	hash_for_each_possible(users, user, entry, __kuid_val(uid))
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

/*
 * Counts the region to its user, and settles by what it is bound. RLIMIT_MEMLOCK may
 * turn out not to be asked, so that nobody is to be told that the right to pass over
 * it was missing.
 */
int actmem_user_attach(struct actmem_region *region)
{
	struct actmem_user *unused = kzalloc(sizeof(*unused), GFP_KERNEL);

	if (!unused)
		return -ENOMEM;
	unused->uid = user_accountable_uid();
	spin_lock(&account_lock);
	region->user = user_find(unused->uid);
	if (!region->user) {
		hash_add(users, &unused->entry, __kuid_val(unused->uid));
		swap(region->user, unused);
	}
	region->user->regions++;
	spin_unlock(&account_lock);
	kfree(unused);

	region->memlock_pages = ACTMEM_NO_LIMIT;
	if (!ns_capable_noaudit(&init_user_ns, CAP_IPC_LOCK))
		region->memlock_pages = rlimit(RLIMIT_MEMLOCK) / ACTMEM_PAGE_BYTES;
	return 0;
}

/* The region has no page any more. */
void actmem_user_detach(struct actmem_region *region)
{
	struct actmem_user *user = region->user;
	bool is_last;

	region->user = NULL;
	spin_lock(&account_lock);
	is_last = !--user->regions;
	if (is_last)
		hash_del(&user->entry);
	spin_unlock(&account_lock);
	if (!is_last)
		return;
	WARN_ON_ONCE(user->pages);
	kfree(user);
}

/* For one thing more; false if the limit does not let it be. */
bool actmem_quota_charge(struct actmem_quota *quota)
{
	bool fits;

	spin_lock(&account_lock);
	fits = actmem_quota_left(*quota);
	quota->used += fits;
	spin_unlock(&account_lock);
	return fits;
}

void actmem_quota_uncharge(struct actmem_quota *quota)
{
	spin_lock(&account_lock);
	quota->used--;
	spin_unlock(&account_lock);
}

/* Both of one moment. */
struct actmem_quota actmem_quota_read(const struct actmem_quota *quota)
{
	struct actmem_quota read;

	spin_lock(&account_lock);
	read = *quota;
	spin_unlock(&account_lock);
	return read;
}

/* Below what is used, nothing more is granted until enough has gone. */
void actmem_quota_set_limit(struct actmem_quota *quota, unsigned long limit)
{
	spin_lock(&account_lock);
	quota->limit = limit;
	spin_unlock(&account_lock);
}

/* EBUSY if more is used; @used tells how much in any case. */
int actmem_quota_try_limit(struct actmem_quota *quota, unsigned long limit, unsigned long *used)
{
	int err = 0;

	spin_lock(&account_lock);
	*used = quota->used;
	if (limit < quota->used)
		err = -EBUSY;
	else
		quota->limit = limit;
	spin_unlock(&account_lock);
	return err;
}

static int quota_check(struct actmem_quota quota, unsigned long pages, int err, u32 reason,
		       struct actmem_why *why)
{
	unsigned long left = actmem_quota_left(quota);

	if (pages <= left)
		return 0;
	why->reason = reason;
	why->node = NUMA_NO_NODE;
	why->wanted = pages * ACTMEM_PAGE_BYTES;
	why->available = left * ACTMEM_PAGE_BYTES;
	return err;
}

/*
 * The administrator's limit holds if there is one, and stands in for RLIMIT_MEMLOCK of
 * the process that made the region.
 */
static int region_check_user(const struct actmem_region *region, unsigned long pages,
			     struct actmem_why *why)
{
	struct actmem_quota quota = { READ_ONCE(actmem_user_limit), region->user->pages };

	if (region->memlock_pages == ACTMEM_NO_LIMIT)
		return 0;
	if (quota.limit != ACTMEM_NO_LIMIT)
		return quota_check(quota, pages, -EDQUOT, ACTMEM_WHY_USER_LIMIT, why);
	quota.limit = region->memlock_pages;
	return quota_check(quota, pages, -ENOMEM, ACTMEM_WHY_MEMLOCK, why);
}

static int region_check_room(const struct actmem_region *region, unsigned long pages,
			     struct actmem_why *why)
{
	int err = 0;

	lockdep_assert_held(&account_lock);
	if (region->mount)
		err = quota_check(region->mount->pages, pages, -ENOSPC, ACTMEM_WHY_MOUNT_LIMIT,
				  why);
	return err ?: region_check_user(region, pages, why);
}

/*
 * Whether the user and the mount could have so many pages, but for those that the region
 * has or is about to get: EDQUOT, ENOMEM or ENOSPC.
 */
int actmem_check_room(const struct actmem_region *region, unsigned long pages,
		      struct actmem_why *why)
{
	int err;

	spin_lock(&account_lock);
	err = region_check_room(region, pages - min(pages, region->charged), why);
	spin_unlock(&account_lock);
	return err;
}

static void region_charge(struct actmem_region *region, long pages)
{
	lockdep_assert_held(&account_lock);
	region->charged += pages;
	region->user->pages += pages;
	if (region->mount)
		region->mount->pages.used += pages;
}

/* For a page that the region is about to get; the errors of actmem_check_room(). */
int actmem_charge_page(struct actmem_region *region, struct actmem_why *why)
{
	int err;

	spin_lock(&account_lock);
	err = region_check_room(region, 1, why);
	if (!err)
		region_charge(region, 1);
	spin_unlock(&account_lock);
	return err;
}

/* A page that the region has no more, or has not got after all. */
void actmem_uncharge_page(struct actmem_region *region)
{
	spin_lock(&account_lock);
	region_charge(region, -1);
	spin_unlock(&account_lock);
}

/* A page of the region has come to be on a node, or has gone from there. */
void actmem_count_page(struct actmem_region *region, int node, int change)
{
	lockdep_assert_held(&region->lock);
	region->pages_held += change;
	region->node_pages_held[node] += change;
	if (region->lingering)
		atomic_long_add(change, &actmem_nodes[node].lingering);
}

/* From now on its pages are lingering ones. */
void actmem_count_as_lingering(struct actmem_region *region)
{
	int node;

	lockdep_assert_held(&region->lock);
	region->lingering = true;
	for_each_node(node)
		atomic_long_add(region->node_pages_held[node], &actmem_nodes[node].lingering);
}
