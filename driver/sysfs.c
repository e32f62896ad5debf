// SPDX-License-Identifier: GPL-2.0
/*
 * The machine's totals, under /sys/class/misc/actmem/:
 *
 *   regions                 all regions, those that linger included
 *   lingering_regions       those that linger
 *   nodeN/region_bytes      bytes on node N of all regions
 *   nodeN/lingering_bytes   bytes on node N of those that linger
 *   nodeN/pool_free_bytes   bytes that node N's pool has ready
 *
 * and the settings of the pools:
 *
 *   nodeN/pool_bytes        bytes to hold ready
 *   nodeN/pool_min_bytes    bytes of them that memory pressure leaves
 */
#include <linux/device.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "actmem.h"

struct node_attribute {
	struct device_attribute attribute;
	int node;
};

/* The directory of one node. */
struct node_directory {
	struct node_attribute region_bytes;
	struct node_attribute lingering_bytes;
	struct node_attribute pool_bytes;
	struct node_attribute pool_min_bytes;
	struct node_attribute pool_free_bytes;
	struct attribute *attributes[6];
	struct attribute_group group;
	char name[sizeof("node1234567890")];
};

static struct node_directory *node_directories;
static const struct attribute_group **groups;

static ssize_t regions_show(struct device *device, struct device_attribute *attribute, char *buffer)
{
	actmem_regions_sweep();
	return sysfs_emit(buffer, "%lu\n", actmem_regions_total());
}
static DEVICE_ATTR_RO(regions);

static ssize_t lingering_regions_show(struct device *device, struct device_attribute *attribute,
				      char *buffer)
{
	actmem_regions_sweep();
	return sysfs_emit(buffer, "%lu\n", actmem_lingering_regions_total());
}
static DEVICE_ATTR_RO(lingering_regions);

static struct attribute *machine_attributes[] = {
	&dev_attr_regions.attr,
	&dev_attr_lingering_regions.attr,
	NULL
};

static const struct attribute_group machine_group = {
	.attrs = machine_attributes,
};

static int node_of(struct device_attribute *attribute)
{
	return container_of(attribute, struct node_attribute, attribute)->node;
}

static ssize_t region_bytes_show(struct device *device, struct device_attribute *attribute,
				 char *buffer)
{
	actmem_regions_sweep();
	return sysfs_emit(buffer, "%llu\n", actmem_node_bytes(node_of(attribute)));
}

static ssize_t lingering_bytes_show(struct device *device, struct device_attribute *attribute,
				    char *buffer)
{
	actmem_regions_sweep();
	return sysfs_emit(buffer, "%llu\n", actmem_node_lingering_bytes(node_of(attribute)));
}

static ssize_t pool_bytes_show(struct device *device, struct device_attribute *attribute,
			       char *buffer)
{
	return sysfs_emit(buffer, "%llu\n", actmem_pool_target(node_of(attribute)));
}

static ssize_t pool_min_bytes_show(struct device *device, struct device_attribute *attribute,
				   char *buffer)
{
	return sysfs_emit(buffer, "%llu\n", actmem_pool_floor(node_of(attribute)));
}

static ssize_t pool_free_bytes_show(struct device *device, struct device_attribute *attribute,
				    char *buffer)
{
	actmem_regions_sweep();
	return sysfs_emit(buffer, "%llu\n", actmem_pool_ready(node_of(attribute)));
}

static ssize_t store_pool_setting(struct device_attribute *attribute, const char *buffer,
				  size_t count, int (*set)(int node, u64 bytes))
{
	u64 bytes;
	int err = kstrtou64(buffer, 10, &bytes);

	if (!err)
		err = set(node_of(attribute), bytes);
	return err ?: count;
}

static ssize_t pool_bytes_store(struct device *device, struct device_attribute *attribute,
				const char *buffer, size_t count)
{
	return store_pool_setting(attribute, buffer, count, actmem_pool_set_target);
}

static ssize_t pool_min_bytes_store(struct device *device, struct device_attribute *attribute,
				    const char *buffer, size_t count)
{
	return store_pool_setting(attribute, buffer, count, actmem_pool_set_floor);
}

static void init_node_attribute(struct node_attribute *attribute, int node,
				const struct device_attribute *template)
{
	attribute->attribute = *template;
	attribute->node = node;
	sysfs_attr_init(&attribute->attribute.attr);
}

static void init_node_directory(struct node_directory *directory, int node)
{
	static const struct device_attribute region_bytes = __ATTR_RO(region_bytes);
	static const struct device_attribute lingering_bytes = __ATTR_RO(lingering_bytes);
	static const struct device_attribute pool_bytes = __ATTR_RW(pool_bytes);
	static const struct device_attribute pool_min_bytes = __ATTR_RW(pool_min_bytes);
	static const struct device_attribute pool_free_bytes = __ATTR_RO(pool_free_bytes);

	init_node_attribute(&directory->region_bytes, node, &region_bytes);
	init_node_attribute(&directory->lingering_bytes, node, &lingering_bytes);
	init_node_attribute(&directory->pool_bytes, node, &pool_bytes);
	init_node_attribute(&directory->pool_min_bytes, node, &pool_min_bytes);
	init_node_attribute(&directory->pool_free_bytes, node, &pool_free_bytes);
	directory->attributes[0] = &directory->region_bytes.attribute.attr;
	directory->attributes[1] = &directory->lingering_bytes.attribute.attr;
	directory->attributes[2] = &directory->pool_bytes.attribute.attr;
	directory->attributes[3] = &directory->pool_min_bytes.attribute.attr;
	directory->attributes[4] = &directory->pool_free_bytes.attribute.attr;
	snprintf(directory->name, sizeof(directory->name), "node%d", node);
	directory->group.name = directory->name;
	directory->group.attrs = directory->attributes;
}

int actmem_sysfs_init(void)
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
		init_node_directory(&node_directories[count], node);
		groups[count + 1] = &node_directories[count].group;
		count++;
	}
	return 0;
}

void actmem_sysfs_exit(void)
{
	kfree(groups);
	kfree(node_directories);
}

const struct attribute_group **actmem_sysfs_groups(void)
{
	return groups;
}
