// SPDX-License-Identifier: GPL-2.0
/*
 * The module's parameter pool=NODE:SIZE[,NODE:SIZE]..., as pool=0:64G,1:64G:
 * what the pools are to hold from the start. Anything that is not exactly that
 * keeps the module from being loaded, and says why in the kernel's log.
 */
#include <linux/ctype.h>
#include <linux/kstrtox.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "actmem.h"

static char *pool;
module_param(pool, charp, 0);
MODULE_PARM_DESC(pool, "bytes that each node holds ready, as 0:64G,1:64G");

/* Digits with K, M, G or T, which memparse() would not check for overflow. */
static int parse_size(char *text, u64 *bytes)
{
	static const char units[] = "KMGT";
	size_t length = strlen(text);
	const char *unit = length ? strchr(units, text[length - 1]) : NULL;
	unsigned int shift = 0;

	if (unit) {
		shift = 10 * (unit - units + 1);
		text[length - 1] = 0;
	}
	if (!isdigit(text[0]) || kstrtou64(text, 10, bytes) || *bytes > U64_MAX >> shift)
		return -EINVAL;
	*bytes <<= shift;
	return 0;
}

static int set_pool(unsigned int node, u64 bytes, nodemask_t *seen)
{
	int err;

	if (node >= MAX_NUMNODES || !node_state(node, N_MEMORY)) {
		pr_err("actmem: pool=%s: node %u has no memory\n", pool, node);
		return -ENODEV;
	}
	if (node_test_and_set(node, *seen)) {
		pr_err("actmem: pool=%s: node %u is named twice\n", pool, node);
		return -EINVAL;
	}
	err = actmem_pool_set_target(node, bytes);
	if (err == -EINVAL)
		pr_err("actmem: pool=%s: %llu bytes for node %u are no multiple of %llu\n",
		       pool, bytes, node, ACTMEM_PAGE_BYTES);
	else if (err == -ERANGE)
		pr_err("actmem: pool=%s: node %u has %llu bytes, less than %llu\n",
		       pool, node, actmem_node_capacity(node) * ACTMEM_PAGE_BYTES, bytes);
	else if (err)
		pr_err("actmem: pool=%s: cannot start the worker of node %u: %d\n",
		       pool, node, err);
	return err;
}

static int take_entry(char *entry, nodemask_t *seen)
{
	char *size = strchr(entry, ':');
	unsigned int node;
	u64 bytes;

	if (size)
		*size++ = 0;
	if (!size || !isdigit(entry[0]) || kstrtouint(entry, 10, &node) ||
	    parse_size(size, &bytes)) {
		pr_err("actmem: pool=%s is not NODE:SIZE[,NODE:SIZE]..., as 0:64G,1:512M\n",
		       pool);
		return -EINVAL;
	}
	return set_pool(node, bytes, seen);
}

/* Sets up the pools as the parameter says, if it is given. */
int actmem_pool_param(void)
{
	nodemask_t seen = NODE_MASK_NONE;
	char *copy, *rest, *entry;
	int err = 0;

	if (!pool)
		return 0;
	copy = kstrdup(pool, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	rest = copy;
	while (!err && (entry = strsep(&rest, ",")))
		err = take_entry(entry, &seen);
	kfree(copy);
	return err;
}
