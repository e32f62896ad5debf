// SPDX-License-Identifier: GPL-2.0
/*
 * Usage and limits of regions: by node, by user and by mount. A page counts from before its
 * allocation until it leaves its region, so that an allocation never exceeds a limit. If one limit
 * refuses a page, the page does not count against any other limit.
 *
 * The page allocator charges the memory cgroup (__GFP_ACCOUNT). dmem.c charges the dmem cgroup.
 * Unlike the memory cgroup, the dmem cgroup is also charged for pages from a pool.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include "actmem.h"
#include "mount.h"

/**
 * struct actmem_user - a user that has regions, or a container that root created
 * @entry: entry in the table of users
 * @uid: the user, or the owner of the container
 * @container: the user namespace of a container, NULL for a user
 * @regions: number of regions that count for the user; the struct is freed when the last of these
 *	regions ends
 * @pages: pages that these regions have or are about to get
 */
struct actmem_user {
	struct hlist_node entry;
	kuid_t uid;
	struct user_namespace *container;
	unsigned long regions;
	unsigned long pages;
};

/* Protects all quotas, the users and their table, and actmem_region.charged. */
static DEFINE_SPINLOCK(account_lock);
static DEFINE_HASHTABLE(users, 6);

/* The limit of each user, including users with CAP_IPC_LOCK. */
unsigned long actmem_user_limit = ACTMEM_NO_LIMIT;

DECLARE_WAIT_QUEUE_HEAD(actmem_limit_changed);	/* woken when a limit is set */
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
 * Identifies the user whose limit applies to the current task. In a user namespace, the owner of
 * the namespace can use many uids (/etc/subuid), so a limit for each uid would not limit the owner.
 * Therefore regions that a task in a namespace creates count for the owner of the outermost
 * namespace below the initial one. If that owner is root, the namespace is a container of one of
 * root's tenants, and counts as a user of its own.
 */
static void account_user_identify(struct actmem_user *user)
{
	struct user_namespace *namespace = current_user_ns();

	user->uid = current_euid();
	for (; namespace != &init_user_ns; namespace = namespace->parent) {
		user->uid = namespace->owner;
		user->container = uid_eq(user->uid, GLOBAL_ROOT_UID) ? namespace : NULL;
	}
}

static struct actmem_user *account_user_find(const struct actmem_user *wanted)
{
	struct actmem_user *user;

	lockdep_assert_held(&account_lock);
	hash_for_each_possible(users, user, entry, __kuid_val(wanted->uid))
		if (uid_eq(user->uid, wanted->uid) && user->container == wanted->container)
			return user;
	return NULL;
}

/*
 * Counts the region for its user, and records the RLIMIT_MEMLOCK that applies to the region.
 * CAP_IPC_LOCK lifts RLIMIT_MEMLOCK, but no other limit. The check of this capability is not
 * audited, because many tasks do not need the capability: RLIMIT_MEMLOCK does not apply if the
 * administrator has set a limit for users.
 */
int actmem_user_attach(struct actmem_region *region)
{
	struct actmem_user *unused = kzalloc(sizeof(*unused), GFP_KERNEL);

	if (!unused)
		return -ENOMEM;
	account_user_identify(unused);
	spin_lock(&account_lock);
	region->user = account_user_find(unused);
	if (!region->user) {
		/* Hold the namespace, so that no other namespace gets the same address. */
		get_user_ns(unused->container);
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

/* Stops counting the region for its user. The region must have no pages left. */
void actmem_user_detach(struct actmem_region *region)
{
	struct actmem_user *user = region->user;
	bool is_last;

	spin_lock(&account_lock);
	region->user = NULL;
	is_last = !--user->regions;
	if (is_last)
		hash_del(&user->entry);
	spin_unlock(&account_lock);
	if (!is_last)
		return;
	WARN_ON_ONCE(user->pages);
	put_user_ns(user->container);
	kfree(user);
}

/*
 * Counts one more object against @quota. Returns false, and counts nothing, if the limit is
 * reached.
 */
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

/* Reads limit and usage together. */
struct actmem_quota actmem_quota_read(const struct actmem_quota *quota)
{
	struct actmem_quota read;

	spin_lock(&account_lock);
	read = *quota;
	spin_unlock(&account_lock);
	return read;
}

/*
 * Sets a limit. While the usage exceeds the limit, charges fail, and regions have a surplus (pages
 * to give back).
 */
void actmem_limit_set(unsigned long *limit, unsigned long value)
{
	spin_lock(&account_lock);
	WRITE_ONCE(*limit, value);
	spin_unlock(&account_lock);
	wake_up_poll(&actmem_limit_changed, EPOLLPRI);
}

/* Fills in @why: the task needs @wanted pages, but can get only @available. Returns @err. */
int actmem_why_fail(struct actmem_why *why, int err, u32 reason, int node, unsigned long wanted,
		    unsigned long available)
{
	actmem_why_clear(why);
	why->reason = reason;
	why->node = node;
	why->wanted = wanted * ACTMEM_PAGE_BYTES;
	why->available = available * ACTMEM_PAGE_BYTES;
	return err;
}

static int account_quota_check(struct actmem_quota quota, unsigned long pages, int err, u32 reason,
			       struct actmem_why *why)
{
	unsigned long left = actmem_quota_left(quota);

	return pages <= left ? 0 : actmem_why_fail(why, err, reason, NUMA_NO_NODE, pages, left);
}

/*
 * Checks the limit that the administrator set for users. Without such a limit, checks the
 * RLIMIT_MEMLOCK of the process that created the region.
 */
static int account_check_user(const struct actmem_region *region, unsigned long pages,
			      struct actmem_why *why)
{
	struct actmem_quota quota = { READ_ONCE(actmem_user_limit), region->user->pages };

	if (quota.limit != ACTMEM_NO_LIMIT)
		return account_quota_check(quota, pages, -EDQUOT, ACTMEM_WHY_USER_LIMIT, why);
	quota.limit = region->memlock_pages;
	return account_quota_check(quota, pages, -ENOMEM, ACTMEM_WHY_MEMLOCK, why);
}

static int account_check_locked(const struct actmem_region *region, unsigned long pages,
				struct actmem_why *why)
{
	int err = 0;

	lockdep_assert_held(&account_lock);
	if (region->mount)
		err = account_quota_check(region->mount->pages, pages, -ENOSPC,
					  ACTMEM_WHY_MOUNT_LIMIT, why);
	return err ?: account_check_user(region, pages, why);
}

/*
 * Checks that the limits of the user and the mount allow the region to have @pages pages in total.
 * Returns 0, -EDQUOT, -ENOMEM or -ENOSPC.
 */
int actmem_account_check(const struct actmem_region *region, unsigned long pages,
			 struct actmem_why *why)
{
	int err;

	spin_lock(&account_lock);
	err = account_check_locked(region, pages - min(pages, region->charged), why);
	spin_unlock(&account_lock);
	return err;
}

static void account_charge_locked(struct actmem_region *region, long pages)
{
	lockdep_assert_held(&account_lock);
	region->charged += pages;
	region->user->pages += pages;
	if (region->mount)
		region->mount->pages.used += pages;
}

/* Charges a page that the region is about to get. Errors are those of actmem_account_check(). */
int actmem_account_charge(struct actmem_region *region, struct actmem_why *why)
{
	int err;

	spin_lock(&account_lock);
	err = account_check_locked(region, 1, why);
	if (!err)
		account_charge_locked(region, 1);
	spin_unlock(&account_lock);
	return err;
}

/* Uncharges a page that the region gave back or failed to get. */
void actmem_account_uncharge(struct actmem_region *region)
{
	spin_lock(&account_lock);
	account_charge_locked(region, -1);
	spin_unlock(&account_lock);
}

/*
 * Divides the excess over the limit equally among all used pages. Returns the sum of the shares of
 * @pages pages, rounded up.
 */
static unsigned long account_share(struct actmem_quota quota, unsigned long pages)
{
	return quota.used <= quota.limit ? 0 :
	       DIV_ROUND_UP((quota.used - quota.limit) * pages, quota.used);
}

/*
 * Returns how many pages the region should give back because a usage exceeds its limit. If several
 * limits are exceeded, the limit with the largest surplus decides. Stores that limit's ACTMEM_WHY_*
 * in *@reason.
 */
unsigned long actmem_account_surplus(struct actmem_region *region, u32 *reason)
{
	struct actmem_quota user_pages = { .limit = READ_ONCE(actmem_user_limit) };
	unsigned long nodes = 0, user, mount = 0, dmem, most;
	int i;

	spin_lock(&region->lock);
	spin_lock(&account_lock);
	for_each_node(i)
		nodes += account_share(actmem_nodes[i].pages, region->node_pages_held[i]);
	user_pages.used = region->user ? region->user->pages : 0;
	user = account_share(user_pages, region->charged);
	if (region->mount)
		mount = account_share(region->mount->pages, region->charged);
	spin_unlock(&account_lock);
	dmem = time_before(jiffies, region->asked_until) ? region->asked_pages : 0;
	spin_unlock(&region->lock);
	most = max(max3(nodes, user, mount), dmem);
	*reason = !most ? ACTMEM_WHY_NONE : nodes == most ? ACTMEM_WHY_NODE_LIMIT :
		  user == most ? ACTMEM_WHY_USER_LIMIT :
		  mount == most ? ACTMEM_WHY_MOUNT_LIMIT : ACTMEM_WHY_DMEM;
	return most;
}

/*
 * Counts a page of the region on @node: @change is 1 if a page was added, -1 if a page was removed.
 */
void actmem_account_count(struct actmem_region *region, int node, int change)
{
	lockdep_assert_held(&region->lock);
	region->pages_held += change;
	region->node_pages_held[node] += change;
	if (change < 0 && region->asked_pages)
		region->asked_pages--;
	if (region->lingering)
		atomic_long_add(change, &actmem_nodes[node].lingering);
}

/* Counts the region's pages as lingering: the region is closed, but its pages are still pinned. */
void actmem_account_linger(struct actmem_region *region)
{
	int node;

	spin_lock(&region->lock);
	region->lingering = true;
	for_each_node(node)
		atomic_long_add(region->node_pages_held[node], &actmem_nodes[node].lingering);
	spin_unlock(&region->lock);
}
