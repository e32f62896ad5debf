// SPDX-License-Identifier: GPL-2.0
/*
 * The options of a mount: read, shown, and changed by a remount as far as they
 * can be. What is wrong with one is told by the context's log.
 */
#include <linux/cred.h>
#include <linux/ctype.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "mount.h"

enum option {
	OPTION_SIZE,
	OPTION_MODE,
	OPTION_UID,
	OPTION_GID,
	OPTION_NODE,
	OPTION_POLICY,
};

/**
 * struct options - those of one mount or remount
 * @given: bits of enum option
 * @pages: that may be had
 * @mode: of the root directory
 * @uid: its owner
 * @gid: its group
 * @nodes: of all options node= together
 * @policy: ACTMEM_POLICY_*
 */
struct options {
	unsigned long given;
	unsigned long pages;
	umode_t mode;
	kuid_t uid;
	kgid_t gid;
	nodemask_t nodes;
	u32 policy;
};

static const struct constant_table policies[] = {
	{ "bind",	ACTMEM_POLICY_BIND },
	{ "preferred",	ACTMEM_POLICY_PREFERRED },
	{ "interleave",	ACTMEM_POLICY_INTERLEAVE },
	{}
};

const struct fs_parameter_spec actmem_mount_parameters[] = {
	fsparam_string("size", OPTION_SIZE),
	fsparam_u32oct("mode", OPTION_MODE),
	fsparam_u32("uid", OPTION_UID),
	fsparam_u32("gid", OPTION_GID),
	fsparam_string("node", OPTION_NODE),
	fsparam_enum("policy", OPTION_POLICY, policies),
	{}
};

static const char *policy_name(u32 policy)
{
	const struct constant_table *entry = policies;

	while (entry->value != policy)
		entry++;
	return entry->name;
}

/* A number of what @unit stands for: EINVAL, or ERANGE if there is no such number. */
static int parse_bytes(const char *digits, char unit, u64 *bytes)
{
	static const char units[] = "kmgtp";
	const char *found = unit ? strchr(units, tolower(unit)) : NULL;
	unsigned int shift = found ? 10 * (found - units + 1) : 0;
	u64 number;
	int err = kstrtou64(digits, 10, &number);

	if (err)
		return err;
	*bytes = number << shift;
	if (unit == '%') {
		if (number > 100)
			return -ERANGE;
		*bytes = mult_frac((u64)totalram_pages() << PAGE_SHIFT, number, 100);
		*bytes = ALIGN_DOWN(*bytes, ACTMEM_PAGE_BYTES);
	}
	return *bytes >> shift == number || unit == '%' ? 0 : -ERANGE;
}

static int parse_size(struct fs_context *context, struct options *options, const char *text)
{
	size_t length = strlen(text);
	char digits[24] = "", unit = 0;
	u64 bytes = 0;
	int err;

	if (length && strchr("kKmMgGtTpP%", text[length - 1]))
		unit = text[--length];
	strscpy(digits, text, min(length + 1, sizeof(digits)));
	err = length < sizeof(digits) ? parse_bytes(digits, unit, &bytes) : -ERANGE;
	if (err == -ERANGE)
		return invalfc(context, "size=%s is more than there can be", text);
	if (err)
		return invalfc(context, "size=%s is not a size; write 64G or 50%%", text);
	if (!bytes)
		return invalfc(context, "size=%s leaves no page of 2 MiB", text);
	if (!IS_ALIGNED(bytes, ACTMEM_PAGE_BYTES))
		return invalfc(context, "size=%s is not a multiple of 2 MiB", text);
	options->pages = bytes / ACTMEM_PAGE_BYTES;
	return 0;
}

static int parse_nodes(struct fs_context *context, struct options *options, const char *text)
{
	nodemask_t nodes = NODE_MASK_NONE;
	int node, err = nodelist_parse(text, nodes);

	if (err == -ERANGE)
		return invalfc(context, "node=%s: there is no node above %d", text,
			      MAX_NUMNODES - 1);
	if (err == -ENOMEM)
		return err;
	if (err || nodes_empty(nodes))
		return invalfc(context, "node=%s is not a list of nodes; write 0-1,3", text);
	for_each_node_mask(node, nodes)
		if (!node_state(node, N_MEMORY))
			return invalfc(context, "node=%s: node %d does not exist or has no memory",
				      text, node);
	nodes_or(options->nodes, options->nodes, nodes);
	return 0;
}

/*
 * Options are separated by commas, and so are nodes: what comes after a comma in
 * a list of nodes arrives as an option whose name is a number.
 */
static bool goes_on_with_nodes(const struct options *options, const struct fs_parameter *parameter)
{
	return test_bit(OPTION_NODE, &options->given) &&
	       parameter->type == fs_value_is_flag && isdigit(*parameter->key);
}

static int parse_option(struct fs_context *context, struct fs_parameter *parameter)
{
	struct options *options = context->fs_private;
	struct fs_parse_result result;
	int option, err = 0;

	if (goes_on_with_nodes(options, parameter))
		return parse_nodes(context, options, parameter->key);
	option = fs_parse(context, actmem_mount_parameters, parameter, &result);
	if (option < 0)
		return option;

	switch ((enum option)option) {
	case OPTION_SIZE:
		err = parse_size(context, options, parameter->string);
		break;
	case OPTION_MODE:
		if (result.uint_32 & ~S_IALLUGO)
			return invalfc(context, "mode=%o is no mode of a directory",
				      result.uint_32);
		options->mode = result.uint_32;
		break;
	case OPTION_UID:
		options->uid = make_kuid(current_user_ns(), result.uint_32);
		if (!uid_valid(options->uid))
			return invalfc(context, "uid=%u is no user", result.uint_32);
		break;
	case OPTION_GID:
		options->gid = make_kgid(current_user_ns(), result.uint_32);
		if (!gid_valid(options->gid))
			return invalfc(context, "gid=%u is no group", result.uint_32);
		break;
	case OPTION_NODE:
		err = parse_nodes(context, options, parameter->string);
		break;
	case OPTION_POLICY:
		options->policy = result.uint_32;
		break;
	}
	if (!err)
		__set_bit(option, &options->given);
	return err;
}

static int check_policy(struct fs_context *context, struct options *options)
{
	unsigned int count = nodes_weight(options->nodes);

	if (!test_bit(OPTION_POLICY, &options->given))
		options->policy = count ? ACTMEM_POLICY_BIND : ACTMEM_POLICY_PREFERRED;
	if (options->policy == ACTMEM_POLICY_BIND && !count)
		return invalfc(context, "policy=bind needs node=");
	if (options->policy == ACTMEM_POLICY_PREFERRED && count > 1)
		return invalfc(context, "policy=preferred takes one node, not %u", count);
	return 0;
}

static int get_tree(struct fs_context *context)
{
	return check_policy(context, context->fs_private) ?: actmem_get_tree(context);
}

struct actmem_mount *actmem_mount_alloc(struct fs_context *context)
{
	const struct options *options = context->fs_private;
	struct actmem_mount *mount = kzalloc(sizeof(*mount), GFP_KERNEL_ACCOUNT);

	if (!mount)
		return NULL;
	kref_init(&mount->ref);
	spin_lock_init(&mount->lock);
	mount->limit = options->pages;
	mount->mode = options->mode;
	mount->uid = options->uid;
	mount->gid = options->gid;
	mount->nodes = options->nodes;
	mount->policy = options->policy;
	return mount;
}

static int refuse_change(struct fs_context *context, const char *name)
{
	return invalfc(context, "%s= cannot be changed by a remount; size= can", name);
}

static bool is_other(const struct options *options, enum option option, bool differs)
{
	return test_bit(option, &options->given) && differs;
}

/* What mount(8) repeats of the options is as it was. */
static int reconfigure(struct fs_context *context)
{
	struct actmem_mount *mount = actmem_super_mount(context->root->d_sb);
	const struct options *options = context->fs_private;
	unsigned long reserved;
	int err;

	if (is_other(options, OPTION_MODE, options->mode != mount->mode))
		return refuse_change(context, "mode");
	if (is_other(options, OPTION_UID, !uid_eq(options->uid, mount->uid)))
		return refuse_change(context, "uid");
	if (is_other(options, OPTION_GID, !gid_eq(options->gid, mount->gid)))
		return refuse_change(context, "gid");
	if (is_other(options, OPTION_NODE, !nodes_equal(options->nodes, mount->nodes)))
		return refuse_change(context, "node");
	if (is_other(options, OPTION_POLICY, options->policy != mount->policy))
		return refuse_change(context, "policy");
	if (!test_bit(OPTION_SIZE, &options->given))
		return 0;
	/* What has been let go of by now is not to count. */
	actmem_regions_sweep();
	err = actmem_mount_set_limit(mount, options->pages, &reserved);
	if (err)
		errorfc(context, "size=%lluM is less than the %lluM that regions have",
			options->pages * ACTMEM_PAGE_BYTES >> 20,
			reserved * ACTMEM_PAGE_BYTES >> 20);
	return err;
}

static void free_context(struct fs_context *context)
{
	kfree(context->fs_private);
}

static const struct fs_context_operations mount_context_operations = {
	.free = free_context,
	.parse_param = parse_option,
	.get_tree = get_tree,
	.reconfigure = reconfigure,
};

int actmem_init_mount_context(struct fs_context *context)
{
	struct options *options = kzalloc(sizeof(*options), GFP_KERNEL_ACCOUNT);

	if (!options)
		return -ENOMEM;
	options->pages = ACTMEM_NO_LIMIT;
	options->mode = 0755;
	options->uid = current_fsuid();
	options->gid = current_fsgid();
	context->fs_private = options;
	context->ops = &mount_context_operations;
	return 0;
}

/* In /proc/mounts, in the form in which they are given. */
void actmem_mount_show(struct seq_file *seq, struct actmem_mount *mount)
{
	unsigned long limit, reserved;

	actmem_mount_usage(mount, &limit, &reserved);
	if (limit != ACTMEM_NO_LIMIT)
		seq_printf(seq, ",size=%lluM", limit * ACTMEM_PAGE_BYTES >> 20);
	seq_printf(seq, ",mode=%03o", mount->mode);
	seq_printf(seq, ",uid=%u", from_kuid_munged(&init_user_ns, mount->uid));
	seq_printf(seq, ",gid=%u", from_kgid_munged(&init_user_ns, mount->gid));
	if (!nodes_empty(mount->nodes))
		seq_printf(seq, ",node=%*pbl", nodemask_pr_args(&mount->nodes));
	seq_printf(seq, ",policy=%s", policy_name(mount->policy));
}
