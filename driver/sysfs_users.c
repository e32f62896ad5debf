// SPDX-License-Identifier: GPL-2.0
/*
 * The users, under /sys/class/misc/actmem/users/:
 *
 *   add, remove             take a uid: make it known, or forget about it
 *   UID/regions             the user's regions, those that linger included
 *   UID/region_bytes        bytes of all of them
 *   UID/lingering_bytes     bytes of those that linger
 *   UID/limit_bytes         bytes that they may have
 *
 * A uid is one of the initial user namespace. It is a directory's name, and by
 * that its files find the user.
 */
#include <linux/kobject.h>
#include <linux/sysfs.h>

#include "actmem.h"

/* -1 is nobody's. */
static int parse_uid(const char *text, u32 *uid)
{
	int err = kstrtou32(text, 10, uid);

	return err ?: *uid == U32_MAX ? -EINVAL : 0;
}

static u32 uid_of(const struct kobject *directory)
{
	u32 uid = U32_MAX;

	WARN_ON_ONCE(parse_uid(kobject_name(directory), &uid));
	return uid;
}

static ssize_t store_uid(const char *buffer, size_t count, int (*change)(u32 uid))
{
	u32 uid;
	int err = parse_uid(buffer, &uid);

	if (!err)
		err = change(uid);
	return err ?: count;
}

static ssize_t add_store(struct kobject *directory, struct kobj_attribute *attribute,
			 const char *buffer, size_t count)
{
	return store_uid(buffer, count, actmem_user_add);
}

static struct kobj_attribute add_attribute = __ATTR_WO(add);

static ssize_t remove_store(struct kobject *directory, struct kobj_attribute *attribute,
			    const char *buffer, size_t count)
{
	return store_uid(buffer, count, actmem_user_remove);
}

static struct kobj_attribute remove_attribute = __ATTR_WO(remove);

static struct attribute *all_users_attributes[] = {
	&add_attribute.attr,
	&remove_attribute.attr,
	NULL
};

const struct attribute_group actmem_sysfs_all_users = {
	.attrs = all_users_attributes,
};

static int usage_of(const struct kobject *directory, struct actmem_user_usage *usage)
{
	int err = actmem_regions_sweep();

	return err ?: actmem_user_usage(uid_of(directory), usage);
}

static ssize_t regions_show(struct kobject *directory, struct kobj_attribute *attribute,
			    char *buffer)
{
	struct actmem_user_usage usage;
	int err = usage_of(directory, &usage);

	return err ?: sysfs_emit(buffer, "%lu\n", usage.regions);
}

static struct kobj_attribute regions_attribute = __ATTR_RO(regions);

static ssize_t region_bytes_show(struct kobject *directory, struct kobj_attribute *attribute,
				 char *buffer)
{
	struct actmem_user_usage usage;
	int err = usage_of(directory, &usage);

	return err ?: sysfs_emit(buffer, "%llu\n", usage.pages * ACTMEM_PAGE_BYTES);
}

static struct kobj_attribute region_bytes_attribute = __ATTR_RO(region_bytes);

static ssize_t lingering_bytes_show(struct kobject *directory, struct kobj_attribute *attribute,
				    char *buffer)
{
	struct actmem_user_usage usage;
	int err = usage_of(directory, &usage);

	return err ?: sysfs_emit(buffer, "%llu\n", usage.lingering_pages * ACTMEM_PAGE_BYTES);
}

static struct kobj_attribute lingering_bytes_attribute = __ATTR_RO(lingering_bytes);

static ssize_t limit_bytes_show(struct kobject *directory, struct kobj_attribute *attribute,
				char *buffer)
{
	struct actmem_user_usage usage;
	int err = actmem_user_usage(uid_of(directory), &usage);

	return err ?: actmem_sysfs_show_limit(buffer, usage.limit);
}

static ssize_t limit_bytes_store(struct kobject *directory, struct kobj_attribute *attribute,
				 const char *buffer, size_t count)
{
	unsigned long pages;
	int err = actmem_sysfs_parse_limit(buffer, &pages);

	if (!err)
		err = actmem_user_set_limit(uid_of(directory), pages);
	return err ?: count;
}

static struct kobj_attribute limit_bytes_attribute = __ATTR_RW(limit_bytes);

static struct attribute *one_user_attributes[] = {
	&regions_attribute.attr,
	&region_bytes_attribute.attr,
	&lingering_bytes_attribute.attr,
	&limit_bytes_attribute.attr,
	NULL
};

const struct attribute_group actmem_sysfs_one_user = {
	.attrs = one_user_attributes,
};
