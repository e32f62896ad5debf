// SPDX-License-Identifier: GPL-2.0
/*
 * The file system of regions: superblocks and mount options. Each region is a file with its own
 * inode and size, because the kernel maps huge pages only below i_size.
 *
 * Unnamed regions are on an internal superblock, which exists while any unnamed region is open
 * (file.c). Each mount of the file system has its own superblock, with names (inode.c) and limits.
 *
 * A superblock holds a reference to the module (fs_type.owner). Each open file holds a reference to
 * its mount, and thus to the superblock. The file operations therefore need no owner, and the
 * module can be unloaded when nothing is mounted and the last region has ended.
 */
#include <linux/cred.h>
#include <linux/fs_context.h>
#include <linux/fs_parser.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/statfs.h>
#include <linux/string.h>

#include "compat/compat.h"
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

/* The initial value of @policy, until an option or mount_settle_policy() sets it. */
#define POLICY_BY_NODES	U32_MAX

static const struct constant_table policies[] = {
	[ACTMEM_POLICY_BIND] = { "bind", ACTMEM_POLICY_BIND },
	[ACTMEM_POLICY_PREFERRED] = { "preferred", ACTMEM_POLICY_PREFERRED },
	[ACTMEM_POLICY_INTERLEAVE] = { "interleave", ACTMEM_POLICY_INTERLEAVE },
	{}
};

static const struct fs_parameter_spec mount_parameters[] = {
	fsparam_string("size", OPTION_SIZE),
	fsparam_string("nr_inodes", OPTION_NR_INODES),
	fsparam_u32oct("mode", OPTION_MODE),
	fsparam_u32("uid", OPTION_UID),
	fsparam_u32("gid", OPTION_GID),
	fsparam_string("node", OPTION_NODE),
	fsparam_enum("policy", OPTION_POLICY, policies),
	{}
};

static int mount_parse_size(struct fs_context *context, struct actmem_mount *mount,
			    const char *text)
{
	u64 bytes;
	const char *rest = actmem_argument_number(text, &bytes);

	if (rest && *rest == '%' && bytes <= 100) {
		bytes = mult_frac((u64)totalram_pages() << PAGE_SHIFT, bytes, 100);
		bytes = round_down(bytes, ACTMEM_PAGE_BYTES);
		rest++;
	}
	if (!rest || *rest || !bytes || !IS_ALIGNED(bytes, ACTMEM_PAGE_BYTES))
		return invalfc(context, "size=%s: write a multiple of 2 MiB, such as 64G, or 50%%",
			       text);
	mount->pages.limit = bytes / ACTMEM_PAGE_BYTES;
	return 0;
}

/* Parses a list of nodes with colons instead of commas, because commas separate options. */
static int mount_parse_nodes(struct fs_context *context, struct actmem_mount *mount, char *text)
{
	strreplace(text, ':', ',');
	if (nodelist_parse(text, mount->nodes) || nodes_empty(mount->nodes) ||
	    !nodes_subset(mount->nodes, node_states[N_MEMORY]))
		return invalfc(context, "node= takes nodes that have memory, such as 0-1:3");
	return 0;
}

static int mount_parse(struct fs_context *context, struct fs_parameter *parameter)
{
	struct actmem_mount *mount = context->s_fs_info;
	struct fs_parse_result result;
	const char *rest;
	u64 number;
	kuid_t uid;
	kgid_t gid;
	int option;

	option = fs_parse(context, mount_parameters, parameter, &result);
	if (option < 0)
		return option;

	switch ((enum option)option) {
	case OPTION_SIZE:
		return mount_parse_size(context, mount, parameter->string);
	case OPTION_NR_INODES:
		rest = actmem_argument_number(parameter->string, &number);
		if (!rest || *rest)
			goto bad_value;
		/* 0 means no limit, as in tmpfs. */
		mount->inodes.limit = number ?: ACTMEM_NO_LIMIT;
		break;
	case OPTION_MODE:
		if (result.uint_32 & ~S_IALLUGO)
			goto bad_value;
		mount->mode = result.uint_32;
		break;
	case OPTION_UID:
		uid = make_kuid(current_user_ns(), result.uint_32);
		if (!uid_valid(uid))
			goto bad_value;
		mount->uid = uid;
		break;
	case OPTION_GID:
		gid = make_kgid(current_user_ns(), result.uint_32);
		if (!gid_valid(gid))
			goto bad_value;
		mount->gid = gid;
		break;
	case OPTION_NODE:
		return mount_parse_nodes(context, mount, parameter->string);
	case OPTION_POLICY:
		mount->policy = result.uint_32;
		break;
	}
	return 0;

bad_value:
	return invalfc(context, "Bad value for '%s'", parameter->key);
}

static int mount_settle_policy(struct fs_context *context, struct actmem_mount *mount)
{
	unsigned int count = nodes_weight(mount->nodes);

	if (mount->policy == POLICY_BY_NODES)
		mount->policy = count ? ACTMEM_POLICY_BIND : ACTMEM_POLICY_PREFERRED;
	if ((mount->policy == ACTMEM_POLICY_BIND && !count) ||
	    (mount->policy == ACTMEM_POLICY_PREFERRED && count > 1))
		return invalfc(context, "policy=bind needs node=; preferred takes one node");
	return 0;
}

/* Prints the options for /proc/mounts, in the syntax of mount(8). */
static int mount_show(struct seq_file *seq, struct dentry *root)
{
	struct actmem_mount *mount = actmem_super_mount(root->d_sb);
	unsigned long limit = actmem_quota_read(&mount->pages).limit;
	char separator = '=';
	int node;

	if (limit != ACTMEM_NO_LIMIT)
		seq_printf(seq, ",size=%lluM", limit * ACTMEM_PAGE_BYTES >> 20);
	limit = actmem_quota_read(&mount->inodes).limit;
	if (limit != ACTMEM_INODES_DEFAULT)
		seq_printf(seq, ",nr_inodes=%lu", limit == ACTMEM_NO_LIMIT ? 0 : limit);
	seq_printf(seq, ",mode=%03o", mount->mode);
	seq_printf(seq, ",uid=%u", from_kuid_munged(&init_user_ns, mount->uid));
	seq_printf(seq, ",gid=%u", from_kgid_munged(&init_user_ns, mount->gid));
	if (!nodes_empty(mount->nodes))
		seq_puts(seq, ",node");
	for_each_node_mask(node, mount->nodes) {
		seq_printf(seq, "%c%d", separator, node);
		separator = ':';
	}
	seq_printf(seq, ",policy=%s", policies[mount->policy].name);
	return 0;
}

/* Refuses to change options other than limits. mount(8) also passes unchanged options. */
static int mount_reconfigure(struct fs_context *context)
{
	struct actmem_mount *mount = actmem_super_mount(context->root->d_sb);
	const struct actmem_mount *wanted = context->s_fs_info;

	if (wanted->mode != mount->mode || wanted->policy != mount->policy ||
	    !uid_eq(wanted->uid, mount->uid) || !gid_eq(wanted->gid, mount->gid) ||
	    !nodes_equal(wanted->nodes, mount->nodes))
		return invalfc(context, "a remount can change only size= and nr_inodes=");
	actmem_limit_set(&mount->inodes.limit, wanted->inodes.limit);
	actmem_limit_set(&mount->pages.limit, wanted->pages.limit);
	return 0;
}

/*
 * Reports the pages of the mount's regions, and the mount's limit. Without a limit, reports the
 * machine's memory instead of the limit.
 */
static int mount_statfs(struct dentry *dentry, struct kstatfs *stat)
{
	struct actmem_mount *mount = actmem_super_mount(dentry->d_sb);
	struct actmem_quota pages, inodes;
	int err = simple_statfs(dentry, stat);

	if (err || !mount)
		return err;
	pages = actmem_quota_read(&mount->pages);
	if (pages.limit == ACTMEM_NO_LIMIT)
		pages.limit = totalram_pages() >> ACTMEM_PAGE_ORDER;
	stat->f_bsize = ACTMEM_PAGE_BYTES;
	stat->f_blocks = max(pages.limit, pages.used);
	stat->f_bfree = stat->f_blocks - pages.used;
	stat->f_bavail = stat->f_bfree;
	stat->f_namelen = ACTMEM_NAME_BYTES - 1;
	inodes = actmem_quota_read(&mount->inodes);
	if (inodes.limit != ACTMEM_NO_LIMIT) {
		stat->f_files = inodes.limit;
		stat->f_ffree = inodes.limit - min(inodes.limit, inodes.used);
	}
	return 0;
}

static const struct super_operations mount_super_operations = {
	.statfs = mount_statfs,
	.evict_inode = actmem_inode_evict,
	.show_options = mount_show,
};

static int mount_fill_super(struct super_block *super, struct fs_context *context)
{
	super->s_magic = ACTMEM_SUPER_MAGIC;
	super->s_op = &mount_super_operations;
	super->s_maxbytes = ACTMEM_MAX_PAGES * ACTMEM_PAGE_BYTES;
	super->s_blocksize = ACTMEM_PAGE_BYTES;
	super->s_blocksize_bits = HPAGE_PMD_SHIFT;
	super->s_time_gran = 1;
	super->s_iflags |= SB_I_NOEXEC | SB_I_NODEV;
	super->s_root = d_make_root(actmem_inode_root(super));
	return super->s_root ? 0 : -ENOMEM;
}

static int mount_get_tree(struct fs_context *context)
{
	int err = context->s_fs_info ? mount_settle_policy(context, context->s_fs_info) : 0;

	return err ?: get_tree_nodev(context, mount_fill_super);
}

/* Frees the actmem_mount, unless a new superblock owns it: s_fs_info is then NULL. */
static void mount_free(struct fs_context *context)
{
	kfree(context->s_fs_info);
}

static const struct fs_context_operations mount_context_operations = {
	.free = mount_free,
	.parse_param = mount_parse,
	.get_tree = mount_get_tree,
	.reconfigure = mount_reconfigure,
};

static struct actmem_mount *mount_alloc(void)
{
	struct actmem_mount *mount = kzalloc(sizeof(*mount), GFP_KERNEL_ACCOUNT);

	if (!mount)
		return NULL;
	refcount_set(&mount->ref, 1);
	mount->policy = POLICY_BY_NODES;
	mount->pages.limit = ACTMEM_NO_LIMIT;
	mount->inodes.limit = ACTMEM_INODES_DEFAULT;
	mount->mode = 0755;
	mount->uid = current_fsuid();
	mount->gid = current_fsgid();
	return mount;
}

static int mount_init_context(struct fs_context *context)
{
	context->ops = &mount_context_operations;
	/* Only the kernel's own mounts, such as the mount of unnamed regions, have SB_KERNMOUNT. */
	if (context->sb_flags & SB_KERNMOUNT) {
		context->sb_flags |= SB_NOUSER;
		context->global = true;
		return 0;
	}
	/* A remount starts with the current options, so that omitted options do not change. */
	if (context->purpose == FS_CONTEXT_FOR_RECONFIGURE)
		context->s_fs_info = kmemdup(actmem_super_mount(context->root->d_sb),
					     sizeof(struct actmem_mount), GFP_KERNEL_ACCOUNT);
	else
		context->s_fs_info = mount_alloc();
	return context->s_fs_info ? 0 : -ENOMEM;
}

static void mount_kill_super(struct super_block *super)
{
	struct actmem_mount *mount = actmem_super_mount(super);

	kill_anon_super(super);
	if (mount)
		actmem_mount_put(mount);
}

/*
 * FS_USERNS_MOUNT is not set, so that root of a user namespace cannot mount this file system. The
 * reason is that the regions of a mount use memory as long as the mount exists, even if the
 * regions' user has no process left.
 */
struct file_system_type actmem_fs_type = {
	.owner = THIS_MODULE,
	.name = "actmem",
	.init_fs_context = mount_init_context,
	.parameters = mount_parameters,
	.kill_sb = mount_kill_super,
};

MODULE_ALIAS_FS("actmem");

int actmem_mount_init(void)
{
	return register_filesystem(&actmem_fs_type);
}

void actmem_mount_exit(void)
{
	unregister_filesystem(&actmem_fs_type);
}
