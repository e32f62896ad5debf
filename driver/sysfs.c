// SPDX-License-Identifier: GPL-2.0
/*
 * The machine's totals, under /sys/class/misc/actmem/:
 *
 *   regions                 all regions, those that linger included
 *   lingering_regions       those that linger
 *   dma_copied_bytes        bytes that DMA engines have copied, ever
 *   dma_missed_bytes        bytes that they were to, but CPUs did
 *   nodeN/regions           regions that have bytes on node N
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
	struct node_attribute regions;
	struct node_attribute region_bytes;
	struct node_attribute lingering_bytes;
	struct node_attribute poisoned_bytes;
	struct node_attribute limit_bytes;
	struct node_attribute pool_bytes;
	struct node_attribute pool_min_bytes;
	struct node_attribute pool_free_bytes;
	struct node_attribute pool_lent_bytes;
	struct attribute *attributes[10];
	struct attribute_group group;
	char name[sizeof("node1234567890")];
};

static struct node_directory *node_directories;
static const struct attribute_group **groups;

static ssize_t regions_show(struct device *device, struct device_attribute *attribute, char *buffer)
{
	int err = actmem_regions_sweep();

	return err ?: sysfs_emit(buffer, "%lu\n", actmem_regions_total());
}
static DEVICE_ATTR_RO(regions);

static ssize_t lingering_regions_show(struct device *device, struct device_attribute *attribute,
				      char *buffer)
{
	int err = actmem_regions_sweep();

	return err ?: sysfs_emit(buffer, "%lu\n", actmem_lingering_regions_total());
}
static DEVICE_ATTR_RO(lingering_regions);

/* "max" is no limit. */
ssize_t actmem_sysfs_show_limit(char *buffer, unsigned long pages)
{
	if (pages == ACTMEM_NO_LIMIT)
		return sysfs_emit(buffer, "max\n");
	return sysfs_emit(buffer, "%llu\n", pages * ACTMEM_PAGE_BYTES);
}

int actmem_sysfs_parse_limit(const char *text, unsigned long *pages)
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
	return actmem_sysfs_show_limit(buffer, actmem_default_limit());
}

static ssize_t user_limit_bytes_store(struct device *device, struct device_attribute *attribute,
				      const char *buffer, size_t count)
{
	unsigned long pages;
	int err = actmem_sysfs_parse_limit(buffer, &pages);

	if (err)
		return err;
	actmem_set_default_limit(pages);
	return count;
}
static DEVICE_ATTR_RW(user_limit_bytes);

static ssize_t dma_copied_bytes_show(struct device *device, struct device_attribute *attribute,
				     char *buffer)
{
	return sysfs_emit(buffer, "%llu\n", actmem_dma_copied_bytes());
}
static DEVICE_ATTR_RO(dma_copied_bytes);

static ssize_t dma_missed_bytes_show(struct device *device, struct device_attribute *attribute,
				     char *buffer)
{
	return sysfs_emit(buffer, "%llu\n", actmem_dma_missed_bytes());
}
static DEVICE_ATTR_RO(dma_missed_bytes);

static struct attribute *machine_attributes[] = {
	&dev_attr_regions.attr,
	&dev_attr_lingering_regions.attr,
	&dev_attr_user_limit_bytes.attr,
	&dev_attr_dma_copied_bytes.attr,
	&dev_attr_dma_missed_bytes.attr,
	NULL
};

static const struct attribute_group machine_group = {
	.attrs = machine_attributes,
};

static int node_of(struct device_attribute *attribute)
{
	return container_of(attribute, struct node_attribute, attribute)->node;
}

static ssize_t node_regions_show(struct device *device, struct device_attribute *attribute,
				 char *buffer)
{
	int err = actmem_regions_sweep();

	return err ?: sysfs_emit(buffer, "%lu\n", actmem_node_regions(node_of(attribute)));
}

static ssize_t region_bytes_show(struct device *device, struct device_attribute *attribute,
				 char *buffer)
{
	int err = actmem_regions_sweep();

	return err ?: sysfs_emit(buffer, "%llu\n", actmem_node_bytes(node_of(attribute)));
}

static ssize_t lingering_bytes_show(struct device *device, struct device_attribute *attribute,
				    char *buffer)
{
	int err = actmem_regions_sweep();
	int node = node_of(attribute);

	return err ?: sysfs_emit(buffer, "%llu\n", actmem_node_lingering_bytes(node));
}

static ssize_t poisoned_bytes_show(struct device *device, struct device_attribute *attribute,
				   char *buffer)
{
	actmem_poison_settle();
	return sysfs_emit(buffer, "%llu\n", actmem_node_poisoned_bytes(node_of(attribute)));
}

static ssize_t limit_bytes_show(struct device *device, struct device_attribute *attribute,
				char *buffer)
{
	return actmem_sysfs_show_limit(buffer, actmem_node_limit(node_of(attribute)));
}

static ssize_t limit_bytes_store(struct device *device, struct device_attribute *attribute,
				 const char *buffer, size_t count)
{
	unsigned long pages;
	int err = actmem_sysfs_parse_limit(buffer, &pages);

	if (err)
		return err;
	actmem_set_node_limit(node_of(attribute), pages);
	return count;
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
	int err = actmem_regions_sweep();

	return err ?: sysfs_emit(buffer, "%llu\n", actmem_pool_ready(node_of(attribute)));
}

static ssize_t pool_lent_bytes_show(struct device *device, struct device_attribute *attribute,
				    char *buffer)
{
	int err = actmem_regions_sweep();

	return err ?: sysfs_emit(buffer, "%llu\n", actmem_pool_lent(node_of(attribute)));
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
	static const struct device_attribute regions = __ATTR(regions, 0444, node_regions_show,
							      NULL);
	static const struct device_attribute region_bytes = __ATTR_RO(region_bytes);
	static const struct device_attribute lingering_bytes = __ATTR_RO(lingering_bytes);
	static const struct device_attribute poisoned_bytes = __ATTR_RO(poisoned_bytes);
	static const struct device_attribute limit_bytes = __ATTR_RW(limit_bytes);
	static const struct device_attribute pool_bytes = __ATTR_RW(pool_bytes);
	static const struct device_attribute pool_min_bytes = __ATTR_RW(pool_min_bytes);
	static const struct device_attribute pool_free_bytes = __ATTR_RO(pool_free_bytes);
	static const struct device_attribute pool_lent_bytes = __ATTR_RO(pool_lent_bytes);

	init_node_attribute(&directory->regions, node, &regions);
	init_node_attribute(&directory->region_bytes, node, &region_bytes);
	init_node_attribute(&directory->lingering_bytes, node, &lingering_bytes);
	init_node_attribute(&directory->poisoned_bytes, node, &poisoned_bytes);
	init_node_attribute(&directory->limit_bytes, node, &limit_bytes);
	init_node_attribute(&directory->pool_bytes, node, &pool_bytes);
	init_node_attribute(&directory->pool_min_bytes, node, &pool_min_bytes);
	init_node_attribute(&directory->pool_free_bytes, node, &pool_free_bytes);
	init_node_attribute(&directory->pool_lent_bytes, node, &pool_lent_bytes);
	directory->attributes[0] = &directory->regions.attribute.attr;
	directory->attributes[1] = &directory->region_bytes.attribute.attr;
	directory->attributes[2] = &directory->lingering_bytes.attribute.attr;
	directory->attributes[3] = &directory->limit_bytes.attribute.attr;
	directory->attributes[4] = &directory->pool_bytes.attribute.attr;
	directory->attributes[5] = &directory->pool_min_bytes.attribute.attr;
	directory->attributes[6] = &directory->pool_free_bytes.attribute.attr;
	directory->attributes[7] = &directory->pool_lent_bytes.attribute.attr;
	directory->attributes[8] = &directory->poisoned_bytes.attribute.attr;
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
