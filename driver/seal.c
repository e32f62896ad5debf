// SPDX-License-Identifier: GPL-2.0
/*
 * Making a region read-only for good. Who could still write is known: by mapping,
 * as the kernel counts mappings that are or may become writable and lets that be
 * forbidden; from outside, as whoever holds a page without having mapped it may
 * have got it through a mapping that was writable; and by a command, as these say
 * when they begin to write and when they have ended.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/fs.h>

#include "actmem.h"
#include "import.h"

/* References of GUP-fast and of unmappings not yet flushed last for an instant. */
#define SEAL_TRIES	5
#define SEAL_PAUSE	1000	/* microseconds */

/* What the count of those who write is then. */
#define SEALED		-1

bool actmem_is_sealed(const struct actmem_region *region)
{
	return atomic_read(&region->writers) < 0;
}

/* EPERM once it is sealed; otherwise it is not until actmem_end_write(). */
int actmem_begin_write(struct actmem_region *region)
{
	if (actmem_import_is_sealed(region))
		return -EPERM;
	return atomic_inc_unless_negative(&region->writers) ? 0 : -EPERM;
}

void actmem_end_write(struct actmem_region *region)
{
	atomic_dec(&region->writers);
}

static bool somebody_holds_pages(struct actmem_region *region)
{
	struct actmem_usage usage;
	int tries = 0;

	for (;;) {
		if (actmem_slots_usage(region, &usage))
			return true;	/* and nobody is left to be told */
		if (!usage.pinned_bytes || ++tries == SEAL_TRIES)
			return usage.pinned_bytes;
		usleep_range(SEAL_PAUSE, 2 * SEAL_PAUSE);
	}
}

/* In this order: who held pages without a writable mapping has got them before. */
static int seal(struct actmem_region *region, struct address_space *mapping)
{
	int err;

	if (actmem_is_sealed(region))
		return 0;
	err = mapping_deny_writable(mapping);
	if (err)
		return err;
	if (!somebody_holds_pages(region) && !atomic_cmpxchg(&region->writers, 0, SEALED))
		return 0;
	mapping_allow_writable(mapping);
	return -EBUSY;
}

static bool may_seal(const struct actmem_region *region, const struct inode *inode)
{
	return uid_eq(region->owner, current_euid()) || uid_eq(inode->i_uid, current_fsuid()) ||
	       capable(CAP_FOWNER);
}

int actmem_seal(struct file *file, void __user *user)
{
	struct actmem_region *region = actmem_file_region(file);
	struct inode *inode = file_inode(file);
	struct actmem_ioctl_seal arg;
	int err;

	err = actmem_fetch(&arg, sizeof(arg), sizeof(arg), user);
	if (err)
		return err;
	if (arg.flags)
		return -EINVAL;
	if (!(file->f_mode & FMODE_WRITE))
		return -EBADF;
	if (!region)
		return -ENODATA;
	/* Its file has seals of its own, and those who map that. */
	if (region->import)
		return -EOPNOTSUPP;
	if (!may_seal(region, inode))
		return -EPERM;
	/* Whoever seals at the same time has it forbidden already. */
	inode_lock(inode);
	err = seal(region, file->f_mapping);
	inode_unlock(inode);
	return err;
}
