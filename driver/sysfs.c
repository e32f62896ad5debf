// SPDX-License-Identifier: GPL-2.0
/*
 * Files that show totals, and that set limits and the sizes of pools. These files are under
 * /sys/class/misc/actmem/, with a directory nodeN/ for each possible node.
 * docs/abi/sysfs-class-misc-actmem describes each file.
 */
#include <linux/device.h>
#include <linux/kernel.h>
#include <linux/miscdevice.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "actmem.h"

/* Prints a number of pages as bytes, or "max" for ACTMEM_NO_LIMIT. */
static ssize_t sysfs_show_pages(char *buffer, unsigned long pages)
{
	if (pages == ACTMEM_NO_LIMIT)
		return sysfs_emit(buffer, "max\n");
	return sysfs_emit(buffer, "%llu\n", pages * ACTMEM_PAGE_BYTES);
}

static int sysfs_parse_pages(const char *text, unsigned long *pages)
{
	u64 bytes;
	const char *rest = actmem_argument_number(text, &bytes);

	if (!rest || !sysfs_streq(rest, "") || !IS_ALIGNED(bytes, ACTMEM_PAGE_BYTES))
		return -EINVAL;
	*pages = bytes / ACTMEM_PAGE_BYTES;
	return 0;
}

/* Defines the show function of a file; @result is an expression that prints to @buffer. */
#define SHOW(name, result)								\
static ssize_t name##_show(struct device *device, struct device_attribute *attribute,	\
			   char *buffer)						\
{											\
	return result;									\
}

SHOW(regions, sysfs_emit(buffer, "%lu\n", atomic_long_read(&actmem_region_total)))
SHOW(lingering_regions, sysfs_emit(buffer, "%lu\n", actmem_lingering_regions_total()))
SHOW(user_limit_bytes, sysfs_show_pages(buffer, READ_ONCE(actmem_user_limit)))

static ssize_t sysfs_store_limit(const char *buffer, size_t count, unsigned long *limit)
{
	unsigned long pages = ACTMEM_NO_LIMIT;
	int err = sysfs_streq(buffer, "max") ? 0 : sysfs_parse_pages(buffer, &pages);

	if (!err)
		actmem_limit_set(limit, pages);
	return err ?: count;
}

static ssize_t user_limit_bytes_store(struct device *device, struct device_attribute *attribute,
				      const char *buffer, size_t count)
{
	return sysfs_store_limit(buffer, count, &actmem_user_limit);
}

static DEVICE_ATTR_RO(regions);
static DEVICE_ATTR_RO(lingering_regions);
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

/*
 * Like SHOW(), for a file of a node. The expression @pages may use NODE, the node's number.
 */
#define NODE	((long)container_of(attribute, struct dev_ext_attribute, attr)->var)
#define NODE_SHOW(name, pages)	SHOW(name, sysfs_show_pages(buffer, pages))

NODE_SHOW(region_bytes, actmem_quota_read(&actmem_nodes[NODE].pages).used)
NODE_SHOW(lingering_bytes, atomic_long_read(&actmem_nodes[NODE].lingering))
NODE_SHOW(poisoned_bytes, atomic_long_read(&actmem_nodes[NODE].poisoned))
NODE_SHOW(limit_bytes, actmem_quota_read(&actmem_nodes[NODE].pages).limit)
NODE_SHOW(pool_bytes, actmem_pool_target(NODE))
NODE_SHOW(pool_free_bytes, actmem_pool_ready(NODE))
NODE_SHOW(pool_lent_bytes, actmem_pool_lent(NODE))

static ssize_t limit_bytes_store(struct device *device, struct device_attribute *attribute,
				 const char *buffer, size_t count)
{
	return sysfs_store_limit(buffer, count, &actmem_nodes[NODE].pages.limit);
}

static ssize_t pool_bytes_store(struct device *device, struct device_attribute *attribute,
				const char *buffer, size_t count)
{
	unsigned long pages;
	int err = sysfs_parse_pages(buffer, &pages);

	if (!err)
		err = actmem_pool_set_target(NODE, pages);
	return err ?: count;
}

static const struct device_attribute node_files[] = {
	__ATTR_RO(region_bytes),
	__ATTR_RO(lingering_bytes),
	__ATTR_RO(poisoned_bytes),
	__ATTR_RW(limit_bytes),
	__ATTR_RW(pool_bytes),
	__ATTR_RO(pool_free_bytes),
	__ATTR_RO(pool_lent_bytes),
};

/* The directory nodeN/ with a copy of @node_files. */
struct node_directory {
	struct dev_ext_attribute files[ARRAY_SIZE(node_files)];
	struct attribute *attributes[ARRAY_SIZE(node_files) + 1];
	struct attribute_group group;
	char name[sizeof("node1234567890")];
};

static struct node_directory *node_directories;
static const struct attribute_group *groups[1 + MAX_NUMNODES + 1];

static void sysfs_node_init(struct node_directory *directory, int node)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(node_files); i++) {
		struct dev_ext_attribute *file = &directory->files[i];

		file->attr = node_files[i];
		file->var = (void *)(long)node;
		sysfs_attr_init(&file->attr.attr);
		directory->attributes[i] = &file->attr.attr;
	}
	snprintf(directory->name, sizeof(directory->name), "node%d", node);
	directory->group.name = directory->name;
	directory->group.attrs = directory->attributes;
}

/*
 * Called before the device is registered, so that the files exist when the device's uevent is sent.
 */
int actmem_sysfs_init(struct miscdevice *device)
{
	const struct attribute_group **group = groups;
	int node;

	node_directories = kcalloc(nr_node_ids, sizeof(*node_directories), GFP_KERNEL);
	if (!node_directories)
		return -ENOMEM;
	*group++ = &machine_group;
	for_each_node(node) {
		sysfs_node_init(&node_directories[node], node);
		*group++ = &node_directories[node].group;
	}
	device->groups = groups;
	return 0;
}

void actmem_sysfs_exit(void)
{
	kfree(node_directories);
}
