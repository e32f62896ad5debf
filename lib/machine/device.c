/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the best parameters of transfers between memory and the device that stores a file. If
 * statx() does not report the alignment, it is the size of the device's logical block. The number
 * of concurrent transfers (depth) and their length follow from the limits that the block layer
 * reports under /sys.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/base.h"
#include "machine/device.h"
#include "machine/sysfile.h"

/* An alignment that every file system and device accepts, used if none is reported. */
#define ALIGNMENT_USUAL	4096ULL

/*
 * Transfers are long enough to make the cost of a system call, an interrupt and a wakeup
 * negligible. The number of concurrent transfers is high enough that each queue of a drive has
 * work. A rotational disk gets fewer transfers, but still several, because many virtual disks claim
 * to be rotational.
 */
#define BLOCK_USUAL	(4ULL << 20)
#define DEPTH_USUAL	32
#define DEPTH_ROTATIONAL	16

/* Reads a limit of a device's queue. A partition uses the queue of its disk. */
static int read_queue_value(dev_t number, const char *name, uint64_t *value)
{
	int error = sysfile_value(value, "/sys/dev/block/%u:%u/queue/%s", major(number),
				  minor(number), name);

	return error ? sysfile_value(value, "/sys/dev/block/%u:%u/../queue/%s", major(number),
				     minor(number), name) : 0;
}

static void take_queue_limits(dev_t number, struct device *device)
{
	uint64_t value;

	device->depth = DEPTH_USUAL;
	device->block_bytes = BLOCK_USUAL;
	device->alignment = ALIGNMENT_USUAL;
	if (!read_queue_value(number, "logical_block_size", &value) && value)
		device->alignment = value;
	device->memory_alignment = device->alignment;
	if (!read_queue_value(number, "rotational", &value) && value) {
		device->rotational = true;
		device->depth = DEPTH_ROTATIONAL;
	}
	/*
	 * The block layer splits transfers that are longer than request_bytes. If block_bytes is
	 * longer, make it a multiple of request_bytes.
	 */
	if (!read_queue_value(number, "max_sectors_kb", &value))
		device->request_bytes = value << 10;
	if (device->request_bytes && device->request_bytes < BLOCK_USUAL)
		device->block_bytes -= BLOCK_USUAL % device->request_bytes;
	if (!read_queue_value(number, "nr_requests", &value) && value && value < device->depth)
		device->depth = (unsigned int)value;
	device->block_bytes -= device->block_bytes % ALIGNMENT_USUAL;
}

int device_of(int fd, const char *path, struct device *device)
{
	struct statx extended;
	struct stat stat;
	int sector;

	memset(device, 0, sizeof(*device));
	if (fstat(fd, &stat))
		return fail(errno, "'%s': %s", path, strerror(errno));
	if (!S_ISREG(stat.st_mode) && !S_ISBLK(stat.st_mode))
		return fail(EINVAL, "'%s' is neither a file nor a block device", path);
	device->is_block = S_ISBLK(stat.st_mode);
	device->number = device->is_block ? stat.st_rdev : stat.st_dev;
	device->length = (uint64_t)stat.st_size;
	take_queue_limits((dev_t)device->number, device);
	if (device->is_block) {
		if (ioctl(fd, BLKGETSIZE64, &device->length) || ioctl(fd, BLKSSZGET, &sector))
			return fail(errno, "cannot get the length of '%s' (%s)", path,
				    strerror(errno));
		device->alignment = (uint64_t)sector;
		device->memory_alignment = device->alignment;
	}
	/* Since Linux 6.1, statx() reports the alignment on some file systems. */
	if (!statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &extended) &&
	    extended.stx_mask & STATX_DIOALIGN && extended.stx_dio_offset_align) {
		device->alignment = extended.stx_dio_offset_align;
		device->memory_alignment = extended.stx_dio_mem_align ?: 1;
	}
	return 0;
}
