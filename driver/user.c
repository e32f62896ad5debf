// SPDX-License-Identifier: GPL-2.0
/*
 * What each user holds and may hold. A user is a kuid, known as long as it has
 * a region, a limit of its own, or the administrator's word, and has a
 * directory in sysfs for as long.
 *
 * Limits are held against pages reserved, which are those that a region has
 * and those that it is about to get; what is shown is what it has. Everything
 * that decides is under one lock, so that what is granted never exceeds a
 * limit, and what is refused would have.
 *
 * Of a user bound by RLIMIT_MEMLOCK alone, pages are charged to locked_vm. A
 * limit of the administrator's stands in for it: pages that are reserved while
 * there is one are not charged. Who reserves is told which it was, and says so
 * when giving the reservation back. Of the pages that it has, a region knows how
 * many are charged; these go first.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/kobject.h>
#include <linux/miscdevice.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "actmem.h"

/*
 * Who makes and closes one region after the other keeps its directory, and a
 * reader of it may be who ends the last one: somebody else removes it, later.
 */
#define REAP_DELAY	HZ

/**
 * struct actmem_user - a user and what its regions have
 * @pages: of all regions
 * @lingering_pages: those of them that belong to lingering regions
 * @regions: all of them
 * @reserved: pages that they have or are about to get
 * @limit: of the user's own, in pages
 * @added: the administrator wants it to be known
 * @directory: NULL until it is complete
 */
struct actmem_user {
	atomic_long_t pages;
	atomic_long_t lingering_pages;
	unsigned long regions;
	unsigned long reserved;
	unsigned long limit;
	bool added;
	struct kobject *directory;
};

/* One who adds or removes a user and its directory at a time. */
static DEFINE_MUTEX(directories_lock);

/* Protects all that follows, and struct actmem_user; held for an instant only. */
static DEFINE_SPINLOCK(users_lock);
static DEFINE_XARRAY(users);
static unsigned long default_limit = ACTMEM_NO_LIMIT;

static struct miscdevice *device;
static const struct attribute_group *top_group, *user_group;
static struct kobject *top_directory;

static void reap_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(reaper, reap_work);

static bool is_idle(const struct actmem_user *user)
{
	lockdep_assert_held(&users_lock);
	return !user->regions && !user->added && user->limit == ACTMEM_NO_LIMIT;
}

static struct kobject *make_directory(const char *name, struct kobject *parent,
				      const struct attribute_group *group)
{
	struct kobject *directory = kobject_create_and_add(name, parent);

	if (directory && sysfs_create_group(directory, group)) {
		kobject_put(directory);
		directory = NULL;
	}
	return directory;
}

static int make_top_directory(void)
{
	lockdep_assert_held(&directories_lock);
	if (!top_directory)
		top_directory = make_directory("users", &device->this_device->kobj, top_group);
	return top_directory ? 0 : -ENOMEM;
}

static int make_user_directory(struct actmem_user *user, u32 uid)
{
	struct kobject *directory = NULL;
	char name[sizeof("4294967295")];

	snprintf(name, sizeof(name), "%u", uid);
	if (!make_top_directory())
		directory = make_directory(name, top_directory, user_group);
	if (!directory)
		return -ENOMEM;
	spin_lock(&users_lock);
	user->directory = directory;
	spin_unlock(&users_lock);
	return 0;
}

static void reap(struct actmem_user *user, u32 uid)
{
	bool idle;

	lockdep_assert_held(&directories_lock);
	spin_lock(&users_lock);
	idle = is_idle(user);
	if (idle)
		xa_erase(&users, uid);
	spin_unlock(&users_lock);
	if (!idle)
		return;
	/* Waits for those who read or write there. */
	kobject_del(user->directory);
	kobject_put(user->directory);
	kfree(user);
}

static void reap_work(struct work_struct *work)
{
	struct actmem_user *user;
	unsigned long uid;

	mutex_lock(&directories_lock);
	xa_for_each(&users, uid, user)
		reap(user, uid);
	mutex_unlock(&directories_lock);
}

/* The user, who stays until the lock is given up. */
static struct actmem_user *find_or_make(u32 uid)
{
	struct actmem_user *user = xa_load(&users, uid);
	int err;

	lockdep_assert_held(&directories_lock);
	if (user)
		return user;
	user = kzalloc(sizeof(*user), GFP_KERNEL);
	if (!user)
		return ERR_PTR(-ENOMEM);
	user->limit = ACTMEM_NO_LIMIT;
	err = xa_insert(&users, uid, user, GFP_KERNEL);
	if (!err) {
		err = make_user_directory(user, uid);
		if (!err)
			return user;
		/* Somebody may be looking at it, and see that it has no directory. */
		spin_lock(&users_lock);
		xa_erase(&users, uid);
		spin_unlock(&users_lock);
	}
	kfree(user);
	return ERR_PTR(err);
}

/* Counts a region to the user; NULL if the user is not known, or not yet. */
static struct actmem_user *enter_known(u32 uid)
{
	struct actmem_user *user;

	spin_lock(&users_lock);
	user = xa_load(&users, uid);
	if (user && user->directory)
		user->regions++;
	else
		user = NULL;
	spin_unlock(&users_lock);
	return user;
}

static struct actmem_user *enter_new(u32 uid)
{
	struct actmem_user *user;

	mutex_lock(&directories_lock);
	user = find_or_make(uid);
	if (!IS_ERR(user)) {
		spin_lock(&users_lock);
		user->regions++;
		spin_unlock(&users_lock);
	}
	mutex_unlock(&directories_lock);
	return user;
}

/*
 * Counts the region to its owner, and settles by what it is bound.
 * RLIMIT_MEMLOCK may turn out not to be asked, so that nobody is to be told that
 * the right to pass over it was missing.
 */
int actmem_user_attach(struct actmem_region *region)
{
	u32 uid = from_kuid(&init_user_ns, region->owner);
	struct actmem_user *user;

	user = enter_known(uid) ?: enter_new(uid);
	if (IS_ERR(user))
		return PTR_ERR(user);
	region->user = user;
	if (!ns_capable_noaudit(&init_user_ns, CAP_IPC_LOCK)) {
		region->memlock_pages = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
		region->charged = get_uid(current_user());
	}
	return 0;
}

/* The region has no page any more. */
void actmem_user_detach(struct actmem_region *region)
{
	bool idle;

	spin_lock(&users_lock);
	region->user->regions--;
	idle = is_idle(region->user);
	spin_unlock(&users_lock);
	region->user = NULL;
	if (idle)
		schedule_delayed_work(&reaper, REAP_DELAY);
	if (region->charged)
		free_uid(region->charged);
}

static int fail_limit(struct actmem_why *why, int err, u32 reason, u64 wanted, u64 available)
{
	why->reason = reason;
	why->node = NUMA_NO_NODE;
	why->wanted = wanted;
	why->available = available;
	return err;
}

/* io_uring, AF_XDP and perf charge the same counter. */
static int charge_memlock(struct actmem_region *region, unsigned long pages, struct actmem_why *why)
{
	atomic_long_t *locked = &region->charged->locked_vm;
	unsigned long wanted = ACTMEM_SMALL_PAGES(pages);
	unsigned long limit = region->memlock_pages;
	long old = atomic_long_read(locked);

	do {
		unsigned long left = limit - min_t(unsigned long, limit, old);

		if (wanted > left)
			return fail_limit(why, -ENOMEM, ACTMEM_WHY_MEMLOCK,
					  (u64)wanted << PAGE_SHIFT, (u64)left << PAGE_SHIFT);
	} while (!atomic_long_try_cmpxchg(locked, &old, old + wanted));
	return 0;
}

static void uncharge_memlock(struct actmem_region *region, unsigned long pages)
{
	if (pages)
		atomic_long_sub(ACTMEM_SMALL_PAGES(pages), &region->charged->locked_vm);
}

/* The administrator's limit that holds for the region now. */
static unsigned long limit_of(const struct actmem_region *region)
{
	if (region->user->limit != ACTMEM_NO_LIMIT)
		return region->user->limit;
	return region->charged ? default_limit : ACTMEM_NO_LIMIT;
}

static int reserve_for_user(struct actmem_region *region, unsigned long pages, bool *charged,
			    struct actmem_why *why)
{
	struct actmem_user *user = region->user;
	unsigned long limit = limit_of(region);
	unsigned long left = limit - min(limit, user->reserved);
	int err = 0;

	*charged = limit == ACTMEM_NO_LIMIT && region->charged;
	if (*charged)
		err = charge_memlock(region, pages, why);
	else if (limit != ACTMEM_NO_LIMIT && pages > left)
		err = fail_limit(why, -EDQUOT, ACTMEM_WHY_USER_LIMIT, pages * ACTMEM_PAGE_BYTES,
				 left * ACTMEM_PAGE_BYTES);
	if (!err) {
		user->reserved += pages;
		region->reserved += pages;
	}
	return err;
}

static int reserve(struct actmem_region *region, unsigned long pages, bool *charged,
		   struct actmem_why *why)
{
	int err = region->mount ? actmem_mount_reserve(region->mount, pages, why) : 0;

	if (err)
		return err;
	err = reserve_for_user(region, pages, charged, why);
	if (err && region->mount)
		actmem_mount_unreserve(region->mount, pages);
	return err;
}

/*
 * For pages that the region is about to get: all of them or none, and all of
 * them @charged or none.
 */
int actmem_reserve(struct actmem_region *region, unsigned long pages, bool *charged,
		   struct actmem_why *why)
{
	int err;

	spin_lock(&users_lock);
	err = reserve(region, pages, charged, why);
	spin_unlock(&users_lock);
	return err;
}

static void unreserve(struct actmem_region *region, unsigned long pages)
{
	region->user->reserved -= pages;
	region->reserved -= pages;
	if (region->mount)
		actmem_mount_unreserve(region->mount, pages);
}

/* Pages that the region has not got after all. */
void actmem_unreserve(struct actmem_region *region, unsigned long pages, bool charged)
{
	spin_lock(&users_lock);
	unreserve(region, pages);
	spin_unlock(&users_lock);
	uncharge_memlock(region, charged ? pages : 0);
}

/* Pages that the region is going to have now: nothing fails any more. */
void actmem_keep_reserved(struct actmem_region *region, unsigned long pages, bool charged)
{
	spin_lock(&users_lock);
	region->charged_pages += charged ? pages : 0;
	spin_unlock(&users_lock);
}

/* Pages that the region has no more. */
void actmem_release_reserved(struct actmem_region *region, unsigned long pages)
{
	unsigned long charged;

	spin_lock(&users_lock);
	unreserve(region, pages);
	charged = min(pages, region->charged_pages);
	region->charged_pages -= charged;
	spin_unlock(&users_lock);
	uncharge_memlock(region, charged);
}

/* Pages that the region is about to get. */
unsigned long actmem_underway(const struct actmem_region *region)
{
	unsigned long pages;

	spin_lock(&users_lock);
	pages = region->reserved - READ_ONCE(region->pages_held);
	spin_unlock(&users_lock);
	return pages;
}

void actmem_user_count_pages(struct actmem_user *user, long change)
{
	atomic_long_add(change, &user->pages);
}

void actmem_user_count_lingering_pages(struct actmem_user *user, long change)
{
	atomic_long_add(change, &user->lingering_pages);
}

/* ENODEV if the user has gone. */
int actmem_user_usage(u32 uid, struct actmem_user_usage *usage)
{
	struct actmem_user *user;

	spin_lock(&users_lock);
	user = xa_load(&users, uid);
	if (user) {
		usage->regions = user->regions;
		usage->pages = atomic_long_read(&user->pages);
		usage->lingering_pages = atomic_long_read(&user->lingering_pages);
		usage->limit = user->limit;
	}
	spin_unlock(&users_lock);
	return user ? 0 : -ENODEV;
}

int actmem_user_set_limit(u32 uid, unsigned long pages)
{
	struct actmem_user *user;

	spin_lock(&users_lock);
	user = xa_load(&users, uid);
	if (user) {
		user->limit = pages;
		if (is_idle(user))
			schedule_delayed_work(&reaper, REAP_DELAY);
	}
	spin_unlock(&users_lock);
	return user ? 0 : -ENODEV;
}

unsigned long actmem_default_limit(void)
{
	return READ_ONCE(default_limit);
}

void actmem_set_default_limit(unsigned long pages)
{
	spin_lock(&users_lock);
	WRITE_ONCE(default_limit, pages);
	spin_unlock(&users_lock);
}

/* Makes the user known until it is removed. */
int actmem_user_add(u32 uid)
{
	struct actmem_user *user;

	mutex_lock(&directories_lock);
	user = find_or_make(uid);
	if (!IS_ERR(user)) {
		spin_lock(&users_lock);
		user->added = true;
		spin_unlock(&users_lock);
	}
	mutex_unlock(&directories_lock);
	return PTR_ERR_OR_ZERO(user);
}

/* Takes back what the administrator has said of the user. ENOENT if it is not known. */
int actmem_user_remove(u32 uid)
{
	struct actmem_user *user;

	mutex_lock(&directories_lock);
	user = xa_load(&users, uid);
	if (user) {
		spin_lock(&users_lock);
		user->added = false;
		user->limit = ACTMEM_NO_LIMIT;
		spin_unlock(&users_lock);
		reap(user, uid);
	}
	mutex_unlock(&directories_lock);
	return user ? 0 : -ENOENT;
}

/*
 * Before the device is registered: from then on, whoever makes a region makes
 * the directory of all users if there is none.
 */
void actmem_users_init(struct miscdevice *misc, const struct attribute_group *all,
		       const struct attribute_group *each)
{
	device = misc;
	top_group = all;
	user_group = each;
}

int actmem_users_show(void)
{
	int err;

	mutex_lock(&directories_lock);
	err = make_top_directory();
	mutex_unlock(&directories_lock);
	return err;
}

/* The device has gone, and with it whoever could have used all this. */
void actmem_users_exit(void)
{
	struct actmem_user *user;
	unsigned long uid;

	cancel_delayed_work_sync(&reaper);
	xa_for_each(&users, uid, user) {
		kobject_put(user->directory);
		kfree(user);
	}
	xa_destroy(&users);
	kobject_put(top_directory);
}
