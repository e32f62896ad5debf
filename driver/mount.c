// SPDX-License-Identifier: GPL-2.0
/*
 * Mounts and their options: read, shown, and changed by a remount as far as they
 * can be. The context's log tells the mistake in one.
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
	OPTION_NR_INODES,
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
 * @inodes: the same of inodes
 * @mode: of the root directory
 * @uid: its owner
 * @gid: its group
 * @nodes: of all options node= together
 * @policy: ACTMEM_POLICY_*
 */
struct options {
	unsigned long given;
	unsigned long pages;
	unsigned long inodes;
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
	fsparam_string("nr_inodes", OPTION_NR_INODES),
	fsparam_u32oct("mode", OPTION_MODE),
	fsparam_u32("uid", OPTION_UID),
	fsparam_u32("gid", OPTION_GID),
	fsparam_string("node", OPTION_NODE),
	fsparam_enum("policy", OPTION_POLICY, policies),
	{}
};

/* A number of what @unit stands for: EINVAL, or ERANGE if there is no such number. */
static int number_parse(const char *digits, char unit, u64 *bytes)
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

/* With one of @units behind it. */
static int number_parse_with_unit(const char *text, const char *units, u64 *number)
{
	size_t length = strlen(text);
	char digits[24] = "", unit = 0;

	if (length && strchr(units, text[length - 1]))
		unit = text[--length];
	strscpy(digits, text, min(length + 1, sizeof(digits)));
	return length < sizeof(digits) ? number_parse(digits, unit, number) : -ERANGE;
}

static int options_parse_size(struct fs_context *context, struct options *options, const char *text)
{
	u64 bytes = 0;
	int err = number_parse_with_unit(text, "kKmMgGtTpP%", &bytes);

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

/* As in tmpfs 0 is no limit. */
static int options_parse_inodes(struct fs_context *context, struct options *options,
				const char *text)
{
	u64 inodes = 0;
	int err = number_parse_with_unit(text, "kKmMgG", &inodes);

	if (err == -ERANGE)
		return invalfc(context, "nr_inodes=%s is more than there can be", text);
	if (err)
		return invalfc(context, "nr_inodes=%s is no number; write 64k or 0", text);
	options->inodes = inodes ?: ACTMEM_NO_LIMIT;
	return 0;
}

static int options_parse_nodes(struct fs_context *context, struct options *options,
			       const char *text)
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
static bool options_go_on_with_nodes(const struct options *options,
				     const struct fs_parameter *parameter)
{
	return test_bit(OPTION_NODE, &options->given) &&
	       parameter->type == fs_value_is_flag && isdigit(*parameter->key);
}

static int options_parse(struct fs_context *context, struct fs_parameter *parameter)
{
	struct options *options = context->fs_private;
	struct fs_parse_result result;
	int option, err = 0;

	if (options_go_on_with_nodes(options, parameter))
		return options_parse_nodes(context, options, parameter->key);
	option = fs_parse(context, actmem_mount_parameters, parameter, &result);
	if (option < 0)
		return option;

	switch ((enum option)option) {
	case OPTION_SIZE:
		err = options_parse_size(context, options, parameter->string);
		break;
	case OPTION_NR_INODES:
		err = options_parse_inodes(context, options, parameter->string);
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
		err = options_parse_nodes(context, options, parameter->string);
		break;
	case OPTION_POLICY:
		options->policy = result.uint_32;
		break;
	}
	if (!err)
		__set_bit(option, &options->given);
	return err;
}

static int options_check_policy(struct fs_context *context, struct options *options)
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

static int mount_get_tree(struct fs_context *context)
{
	return options_check_policy(context, context->fs_private) ?: actmem_get_tree(context);
}

struct actmem_mount *actmem_mount_alloc(struct fs_context *context)
{
	const struct options *options = context->fs_private;
	struct actmem_mount *mount = kzalloc(sizeof(*mount), GFP_KERNEL_ACCOUNT);

	if (!mount)
		return NULL;
	kref_init(&mount->ref);
	mount->pages.limit = options->pages;
	mount->inodes.limit = options->inodes;
	mount->mode = options->mode;
	mount->uid = options->uid;
	mount->gid = options->gid;
	mount->nodes = options->nodes;
	mount->policy = options->policy;
	return mount;
}

static void mount_free(struct kref *ref)
{
	kfree(container_of(ref, struct actmem_mount, ref));
}

void actmem_mount_put(struct actmem_mount *mount)
{
	kref_put(&mount->ref, mount_free);
}

/* Pages of the nodes that its regions come from, if they have no policy of their own. */
unsigned long actmem_mount_capacity(const struct actmem_mount *mount)
{
	bool some = mount->policy != ACTMEM_POLICY_PREFERRED && !nodes_empty(mount->nodes);
	unsigned long pages = 0;
	int node;

	for_each_node_state(node, N_MEMORY)
		if (!some || node_isset(node, mount->nodes))
			pages += actmem_node_capacity(node);
	return pages;
}

static int mount_refuse_change(struct fs_context *context, const char *name)
{
	return invalfc(context, "%s= cannot be changed by a remount; size= and nr_inodes= can",
		       name);
}

static bool options_differ(const struct options *options, enum option option, bool differs)
{
	return test_bit(option, &options->given) && differs;
}

static int mount_change_size(struct fs_context *context, struct actmem_mount *mount,
			     unsigned long pages)
{
	unsigned long used;
	int err = actmem_quota_try_limit(&mount->pages, pages, &used);

	/* Pages that have been let go of by now are not to count. */
	if (err && actmem_regions_sweep())
		err = actmem_quota_try_limit(&mount->pages, pages, &used);
	if (err)
		errorfc(context, "size=%lluM is less than the %lluM that regions have",
			pages * ACTMEM_PAGE_BYTES >> 20, used * ACTMEM_PAGE_BYTES >> 20);
	return err;
}

static int mount_change_inodes(struct fs_context *context, struct actmem_mount *mount,
			       unsigned long limit)
{
	unsigned long inodes;
	int err = actmem_quota_try_limit(&mount->inodes, limit, &inodes);

	if (err)
		errorfc(context, "nr_inodes=%lu is less than the %lu that there are", limit,
			inodes);
	return err;
}

/* All of it or nothing. mount(8) repeats the options that stay as they were. */
static int mount_reconfigure(struct fs_context *context)
{
	struct actmem_mount *mount = actmem_super_mount(context->root->d_sb);
	const struct options *options = context->fs_private;
	unsigned long inodes = actmem_quota_read(&mount->inodes).limit;
	int err = 0;

	if (options_differ(options, OPTION_MODE, options->mode != mount->mode))
		return mount_refuse_change(context, "mode");
	if (options_differ(options, OPTION_UID, !uid_eq(options->uid, mount->uid)))
		return mount_refuse_change(context, "uid");
	if (options_differ(options, OPTION_GID, !gid_eq(options->gid, mount->gid)))
		return mount_refuse_change(context, "gid");
	if (options_differ(options, OPTION_NODE, !nodes_equal(options->nodes, mount->nodes)))
		return mount_refuse_change(context, "node");
	if (options_differ(options, OPTION_POLICY, options->policy != mount->policy))
		return mount_refuse_change(context, "policy");
	if (test_bit(OPTION_NR_INODES, &options->given))
		err = mount_change_inodes(context, mount, options->inodes);
	if (!err && test_bit(OPTION_SIZE, &options->given))
		err = mount_change_size(context, mount, options->pages);
	if (err)
		actmem_quota_set_limit(&mount->inodes, inodes);
	return err;
}

static void options_free(struct fs_context *context)
{
	kfree(context->fs_private);
}

static const struct fs_context_operations mount_context_operations = {
	.free = options_free,
	.parse_param = options_parse,
	.get_tree = mount_get_tree,
	.reconfigure = mount_reconfigure,
};

int actmem_init_mount_context(struct fs_context *context)
{
	struct options *options = kzalloc(sizeof(*options), GFP_KERNEL_ACCOUNT);

	if (!options)
		return -ENOMEM;
	options->pages = ACTMEM_NO_LIMIT;
	options->inodes = ACTMEM_INODES_DEFAULT;
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
	unsigned long limit = actmem_quota_read(&mount->pages).limit;

	if (limit != ACTMEM_NO_LIMIT)
		seq_printf(seq, ",size=%lluM", limit * ACTMEM_PAGE_BYTES >> 20);
	limit = actmem_quota_read(&mount->inodes).limit;
	if (limit != ACTMEM_INODES_DEFAULT)
		seq_printf(seq, ",nr_inodes=%lu", limit == ACTMEM_NO_LIMIT ? 0 : limit);
	seq_printf(seq, ",mode=%03o", mount->mode);
	seq_printf(seq, ",uid=%u", from_kuid_munged(&init_user_ns, mount->uid));
	seq_printf(seq, ",gid=%u", from_kgid_munged(&init_user_ns, mount->gid));
	if (!nodes_empty(mount->nodes))
		seq_printf(seq, ",node=%*pbl", nodemask_pr_args(&mount->nodes));
	seq_printf(seq, ",policy=%s", actmem_policy_name(mount->policy));
}
