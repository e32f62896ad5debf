// SPDX-License-Identifier: GPL-2.0
/*
 * The machine's totals, under /sys/class/misc/actmem/:
 *
 *   regions                 all regions, those that linger included
 *   lingering_regions       those that linger
 *   nodeN/region_bytes      bytes on node N of all regions
 *   nodeN/lingering_bytes   bytes on node N of those that linger
 *   nodeN/poisoned_bytes    bytes on node N of pages in which the hardware has erred
 *   nodeN/pool_free_bytes   bytes that node N's pool has ready
 *   nodeN/pool_lent_bytes   bytes of node N's pool that regions have
 *
 * and the settings of limits and pools:
 *
 *   user_limit_bytes        bytes that each user's regions may have
 *   nodeN/limit_bytes       bytes that regions may have on node N
 *   nodeN/pool_bytes        bytes that belong to it, ready or lent
 *
 * and the users, by uids of the initial user namespace:
 *
 *   users/add, remove       take a uid: make it known, or forget about it
 *   users/UID/regions       the user's regions, those that linger included
 *   users/UID/region_bytes      bytes of all of them
 *   users/UID/lingering_bytes   bytes of those that linger
 *   users/UID/limit_bytes       bytes that they may have
 */
#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/miscdevice.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "actmem.h"

enum node_value {
	NODE_REGION_BYTES,
	NODE_LINGERING_BYTES,
	NODE_POISONED_BYTES,
	NODE_LIMIT_BYTES,
	NODE_POOL_BYTES,
	NODE_POOL_FREE_BYTES,
	NODE_POOL_LENT_BYTES,
	NODE_VALUES,
};

struct node_attribute {
	struct device_attribute attribute;
	int node;
	enum node_value value;
};

/* The directory of one node. */
struct node_directory {
	struct node_attribute values[NODE_VALUES];
	struct attribute *attributes[NODE_VALUES + 1];
	struct attribute_group group;
	char name[sizeof("node1234567890")];
};

static struct node_directory *node_directories;
static const struct attribute_group **groups;

static ssize_t regions_show(struct device *device, struct device_attribute *attribute, char *buffer)
{
	return sysfs_emit(buffer, "%lu\n", actmem_regions_total());
}
static DEVICE_ATTR_RO(regions);

static ssize_t lingering_regions_show(struct device *device, struct device_attribute *attribute,
				      char *buffer)
{
	return sysfs_emit(buffer, "%lu\n", actmem_lingering_regions_total());
}
static DEVICE_ATTR_RO(lingering_regions);

static ssize_t show_pages(char *buffer, unsigned long pages)
{
	return sysfs_emit(buffer, "%llu\n", pages * ACTMEM_PAGE_BYTES);
}

/* "max" is no limit. */
static ssize_t show_limit(char *buffer, unsigned long pages)
{
	if (pages == ACTMEM_NO_LIMIT)
		return sysfs_emit(buffer, "max\n");
	return show_pages(buffer, pages);
}

static int parse_limit(const char *text, unsigned long *pages)
{
	u64 bytes;
	int err;

	if (sysfs_streq(text, "max")) {
		*pages = ACTMEM_NO_LIMIT;
		return 0;
	}
	err = kstrtou64(text, 10, &bytes);
	if (err)
		return err;
	if (!IS_ALIGNED(bytes, ACTMEM_PAGE_BYTES))
		return -EINVAL;
	*pages = bytes / ACTMEM_PAGE_BYTES;
	return 0;
}

static ssize_t user_limit_bytes_show(struct device *device, struct device_attribute *attribute,
				     char *buffer)
{
	return show_limit(buffer, actmem_default_limit());
}

static ssize_t user_limit_bytes_store(struct device *device, struct device_attribute *attribute,
				      const char *buffer, size_t count)
{
	unsigned long pages;
	int err = parse_limit(buffer, &pages);

	if (err)
		return err;
	actmem_set_default_limit(pages);
	return count;
}
static DEVICE_ATTR_RW(user_limit_bytes);

static struct attribute *machine_attributes[] = {
	&dev_attr_regions.attr,
	&dev_attr_lingering_regions.attr,
	&dev_attr_user_limit_bytes.attr,
	NULL
};

static const struct attribute_group machine_group = {
	.attrs = machine_attributes,
};

static ssize_t node_show(struct device *device, struct device_attribute *attribute, char *buffer)
{
	struct node_attribute *asked = container_of(attribute, struct node_attribute, attribute);
	struct actmem_quota quota = actmem_quota_read(actmem_node_quota(asked->node));

	switch (asked->value) {
	case NODE_REGION_BYTES:
		return show_pages(buffer, quota.used);
	case NODE_LINGERING_BYTES:
		return show_pages(buffer, actmem_node_lingering(asked->node));
	case NODE_POISONED_BYTES:
		return show_pages(buffer, actmem_node_poisoned(asked->node));
	case NODE_LIMIT_BYTES:
		return show_limit(buffer, quota.limit);
	case NODE_POOL_BYTES:
		return show_pages(buffer, actmem_pool_target(asked->node));
	case NODE_POOL_FREE_BYTES:
		return show_pages(buffer, actmem_pool_ready(asked->node));
	case NODE_POOL_LENT_BYTES:
		return show_pages(buffer, actmem_pool_lent(asked->node));
	default:
		return -EIO;
	}
}

static ssize_t node_store(struct device *device, struct device_attribute *attribute,
			  const char *buffer, size_t count)
{
	struct node_attribute *asked = container_of(attribute, struct node_attribute, attribute);
	unsigned long pages;
	int err = parse_limit(buffer, &pages);

	if (!err && asked->value == NODE_LIMIT_BYTES)
		actmem_quota_set_limit(actmem_node_quota(asked->node), pages);
	else if (!err)
		err = pages == ACTMEM_NO_LIMIT ? -EINVAL :
						 actmem_pool_set_target(asked->node, pages);
	return err ?: count;
}

static const struct device_attribute node_templates[NODE_VALUES] = {
	[NODE_REGION_BYTES] = __ATTR(region_bytes, 0444, node_show, NULL),
	[NODE_LINGERING_BYTES] = __ATTR(lingering_bytes, 0444, node_show, NULL),
	[NODE_POISONED_BYTES] = __ATTR(poisoned_bytes, 0444, node_show, NULL),
	[NODE_LIMIT_BYTES] = __ATTR(limit_bytes, 0644, node_show, node_store),
	[NODE_POOL_BYTES] = __ATTR(pool_bytes, 0644, node_show, node_store),
	[NODE_POOL_FREE_BYTES] = __ATTR(pool_free_bytes, 0444, node_show, NULL),
	[NODE_POOL_LENT_BYTES] = __ATTR(pool_lent_bytes, 0444, node_show, NULL),
};

static void node_directory_init(struct node_directory *directory, int node)
{
	enum node_value value;

	for (value = 0; value < NODE_VALUES; value++) {
		directory->values[value] = (struct node_attribute){
			.attribute = node_templates[value],
			.node = node,
			.value = value,
		};
		sysfs_attr_init(&directory->values[value].attribute.attr);
		directory->attributes[value] = &directory->values[value].attribute.attr;
	}
	snprintf(directory->name, sizeof(directory->name), "node%d", node);
	directory->group.name = directory->name;
	directory->group.attrs = directory->attributes;
}

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

static const struct attribute_group all_users_group = {
	.attrs = all_users_attributes,
};

static ssize_t user_show(struct kobject *directory, struct kobj_attribute *attribute,
			 char *buffer);
static ssize_t user_store(struct kobject *directory, struct kobj_attribute *attribute,
			  const char *buffer, size_t count);

static struct kobj_attribute user_regions = __ATTR(regions, 0444, user_show, NULL);
static struct kobj_attribute user_bytes = __ATTR(region_bytes, 0444, user_show, NULL);
static struct kobj_attribute user_lingering = __ATTR(lingering_bytes, 0444, user_show, NULL);
static struct kobj_attribute user_limit = __ATTR(limit_bytes, 0644, user_show, user_store);

static ssize_t user_show(struct kobject *directory, struct kobj_attribute *attribute, char *buffer)
{
	struct actmem_user_usage usage;
	int err = actmem_user_usage(uid_of(directory), &usage);

	if (err)
		return err;
	if (attribute == &user_regions)
		return sysfs_emit(buffer, "%lu\n", usage.regions);
	if (attribute == &user_limit)
		return show_limit(buffer, usage.pages.limit);
	return show_pages(buffer, attribute == &user_bytes ? usage.pages.used :
							     usage.lingering_pages);
}

static ssize_t user_store(struct kobject *directory, struct kobj_attribute *attribute,
			  const char *buffer, size_t count)
{
	unsigned long pages;
	int err = parse_limit(buffer, &pages);

	if (!err)
		err = actmem_user_set_limit(uid_of(directory), pages);
	return err ?: count;
}

static struct attribute *one_user_attributes[] = {
	&user_regions.attr,
	&user_bytes.attr,
	&user_lingering.attr,
	&user_limit.attr,
	NULL
};

static const struct attribute_group one_user_group = {
	.attrs = one_user_attributes,
};

/* Before the device is registered, which is given the groups. */
int actmem_sysfs_init(struct miscdevice *device)
{
	unsigned int count = 0;
	int node;

	node_directories = kcalloc(num_possible_nodes(), sizeof(*node_directories), GFP_KERNEL);
	groups = kcalloc(num_possible_nodes() + 2, sizeof(*groups), GFP_KERNEL);
	if (!node_directories || !groups) {
		actmem_sysfs_exit();
		return -ENOMEM;
	}
	groups[0] = &machine_group;
	for_each_node(node) {
		node_directory_init(&node_directories[count], node);
		groups[count + 1] = &node_directories[count].group;
		count++;
	}
	device->groups = groups;
	actmem_users_init(device, &all_users_group, &one_user_group);
	return 0;
}

void actmem_sysfs_exit(void)
{
	kfree(groups);
	kfree(node_directories);
}
