// SPDX-License-Identifier: GPL-2.0
/*
 * Users. A user is a kuid, known as long as it has a region, a limit of its own, or
 * the administrator's word, and has a directory in sysfs for as long.
 *
 * A user namespace has uids as many as /etc/subuid gives its owner. Limits by uid
 * would not hold him: so regions made in one count for the owner of the outermost
 * below the initial one.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/kobject.h>
#include <linux/miscdevice.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/user_namespace.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include "actmem.h"

/*
 * A user that makes and closes one region after the other keeps the directory, and a
 * reader of it may be who ends the last one: somebody else removes it, later.
 */
#define REAP_DELAY	HZ

/* Held to add or remove a user and its directory. */
static DEFINE_MUTEX(directories_lock);

/* Protects what follows, and struct actmem_user but for its pages; an instant only. */
static DEFINE_SPINLOCK(users_lock);
static DEFINE_XARRAY(users);

static struct miscdevice *device;
static const struct attribute_group *top_group, *user_group;
static struct kobject *top_directory;

static void users_reap_work(struct work_struct *work);
static DECLARE_DELAYED_WORK(reaper, users_reap_work);

static bool user_is_idle(const struct actmem_user *user)
{
	lockdep_assert_held(&users_lock);
	return !user->regions && !user->added && user->pages.limit == ACTMEM_NO_LIMIT;
}

static struct kobject *directory_make(const char *name, struct kobject *parent,
				      const struct attribute_group *group)
{
	struct kobject *directory = kobject_create_and_add(name, parent);

	if (directory && sysfs_create_group(directory, group)) {
		kobject_put(directory);
		directory = NULL;
	}
	return directory;
}

static int directory_make_top(void)
{
	lockdep_assert_held(&directories_lock);
	if (!top_directory)
		top_directory = directory_make("users", &device->this_device->kobj, top_group);
	return top_directory ? 0 : -ENOMEM;
}

static int user_make_directory(struct actmem_user *user, u32 uid)
{
	struct kobject *directory = NULL;
	char name[sizeof("4294967295")];

	snprintf(name, sizeof(name), "%u", uid);
	if (!directory_make_top())
		directory = directory_make(name, top_directory, user_group);
	if (!directory)
		return -ENOMEM;
	spin_lock(&users_lock);
	user->directory = directory;
	spin_unlock(&users_lock);
	return 0;
}

static void user_reap(struct actmem_user *user, u32 uid)
{
	bool idle;

	lockdep_assert_held(&directories_lock);
	spin_lock(&users_lock);
	idle = user_is_idle(user);
	if (idle)
		xa_erase(&users, uid);
	spin_unlock(&users_lock);
	if (!idle)
		return;
	/* Waits for those who read or write there. */
	kobject_del(user->directory);
	kobject_put(user->directory);
	WARN_ON_ONCE(user->pages.used || atomic_long_read(&user->lingering_pages));
	kfree(user);
}

static void users_reap_work(struct work_struct *work)
{
	struct actmem_user *user;
	unsigned long uid;

	mutex_lock(&directories_lock);
	xa_for_each(&users, uid, user)
		user_reap(user, uid);
	mutex_unlock(&directories_lock);
}

/* The user, who stays until the lock is given up. */
static struct actmem_user *user_find_or_make(u32 uid)
{
	struct actmem_user *user = xa_load(&users, uid);
	int err;

	lockdep_assert_held(&directories_lock);
	if (user)
		return user;
	user = kzalloc(sizeof(*user), GFP_KERNEL);
	if (!user)
		return ERR_PTR(-ENOMEM);
	user->pages.limit = ACTMEM_NO_LIMIT;
	err = xa_insert(&users, uid, user, GFP_KERNEL);
	if (!err) {
		err = user_make_directory(user, uid);
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
static struct actmem_user *user_enter_known(u32 uid)
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

static struct actmem_user *user_enter_new(u32 uid)
{
	struct actmem_user *user;

	mutex_lock(&directories_lock);
	user = user_find_or_make(uid);
	if (!IS_ERR(user)) {
		spin_lock(&users_lock);
		user->regions++;
		spin_unlock(&users_lock);
	}
	mutex_unlock(&directories_lock);
	return user;
}

/* The uid, of the initial user namespace, that what the current task makes counts for. */
static u32 user_accountable_uid(void)
{
	const struct user_namespace *namespace = current_user_ns();
	kuid_t uid = current_euid();

	for (; namespace != &init_user_ns; namespace = namespace->parent)
		uid = namespace->owner;
	return from_kuid(&init_user_ns, uid);
}

/*
 * Counts the region to its user, and settles by what it is bound. RLIMIT_MEMLOCK may
 * turn out not to be asked, so that nobody is to be told that the right to pass over
 * it was missing.
 */
int actmem_user_attach(struct actmem_region *region)
{
	u32 uid = user_accountable_uid();
	struct actmem_user *user;

	user = user_enter_known(uid) ?: user_enter_new(uid);
	if (IS_ERR(user))
		return PTR_ERR(user);
	region->user = user;
	region->memlock_pages = ACTMEM_NO_LIMIT;
	if (!ns_capable_noaudit(&init_user_ns, CAP_IPC_LOCK))
		region->memlock_pages = rlimit(RLIMIT_MEMLOCK) / ACTMEM_PAGE_BYTES;
	return 0;
}

/* The region has no page any more. */
void actmem_user_detach(struct actmem_region *region)
{
	bool idle;

	spin_lock(&users_lock);
	region->user->regions--;
	idle = user_is_idle(region->user);
	spin_unlock(&users_lock);
	region->user = NULL;
	if (idle)
		schedule_delayed_work(&reaper, REAP_DELAY);
}

/* ENODEV if the user has gone. */
int actmem_user_usage(u32 uid, struct actmem_user_usage *usage)
{
	struct actmem_user *user;

	spin_lock(&users_lock);
	user = xa_load(&users, uid);
	if (user) {
		usage->regions = user->regions;
		usage->pages = actmem_quota_read(&user->pages);
		usage->lingering_pages = atomic_long_read(&user->lingering_pages);
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
		actmem_quota_set_limit(&user->pages, pages);
		if (user_is_idle(user))
			schedule_delayed_work(&reaper, REAP_DELAY);
	}
	spin_unlock(&users_lock);
	return user ? 0 : -ENODEV;
}

/* Makes the user known until it is removed. */
int actmem_user_add(u32 uid)
{
	struct actmem_user *user;

	mutex_lock(&directories_lock);
	user = user_find_or_make(uid);
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
		actmem_quota_set_limit(&user->pages, ACTMEM_NO_LIMIT);
		spin_unlock(&users_lock);
		user_reap(user, uid);
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
	err = directory_make_top();
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
