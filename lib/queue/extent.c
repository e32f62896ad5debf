/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Finds parts of a set of files, and allocates and frees their disk space. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/base.h"
#include "machine/machine.h"
#include "queue/inside.h"

/* Unit of st_blocks, whatever the block size of the file system is. */
#define STAT_BLOCK	512
/* Metadata about written blocks takes less than 1/NOTES_PART of a file. */
#define NOTES_PART	1024

HOT uint64_t file_locate(const struct actmem_file *file, uint64_t offset, unsigned int *stripe,
			  uint64_t *file_offset)
{
	uint64_t number = offset / file->stripe_bytes, within = offset % file->stripe_bytes;

	if (file->count == 1) {
		*stripe = 0;
		*file_offset = offset;
		return INT64_MAX - offset;
	}
	*stripe = (unsigned int)(number % file->count);
	*file_offset = number / file->count * file->stripe_bytes + within;
	return file->stripe_bytes - within;
}

const char *file_place(const struct actmem_file *file, uint64_t offset, uint64_t *file_offset)
{
	unsigned int stripe;

	file_locate(file, offset, &stripe, file_offset);
	return file->stripes[stripe].path;
}

/* Returns how many of the first @length bytes of the set are in file @stripe. */
static uint64_t share_of(const struct actmem_file *file, unsigned int stripe, uint64_t length)
{
	uint64_t whole = length / file->stripe_bytes, rest = length % file->stripe_bytes;
	uint64_t last = whole % file->count;

	if (file->count == 1)
		return length;
	return (whole / file->count + (stripe < last)) * file->stripe_bytes +
	       (stripe == last ? rest : 0);
}

static int fail_no_room(const struct stripe *stripe, uint64_t length, const struct statvfs *room)
{
	return fail(ENOSPC, "no space for %s in '%s': its file system has %s free",
		    BYTES_TEXT(length), stripe->path,
		    BYTES_TEXT((uint64_t)room->f_bavail * room->f_frsize));
}

/*
 * Checks that the file system has enough space. Otherwise fallocate() would fill the file system
 * before it fails. Meanwhile no other writer would find space, not even the file system for its
 * metadata: Linux 7's ext4 then writes zeros over data that it cannot mark as written. So the check
 * leaves some space for metadata. Parts of the file may be allocated already, so the check counts
 * only bytes that are surely missing.
 */
static int check_room(const struct stripe *stripe, uint64_t offset, uint64_t length)
{
	uint64_t end = offset + length, has, missing;
	struct statvfs room;
	struct stat status;

	if (fstat(stripe->fd, &status) || fstatvfs(stripe->fd, &room) || !room.f_blocks)
		return 0;
	has = (uint64_t)status.st_blocks * STAT_BLOCK;
	missing = has < end ? end - has : 0;
	if (missing > length)
		missing = length;
	if (!missing || missing + end / NOTES_PART <= (uint64_t)room.f_bavail * room.f_frsize)
		return 0;
	return fail_no_room(stripe, length, &room);
}

static int allocate_one(const struct stripe *stripe, uint64_t offset, uint64_t length)
{
	struct device device;
	struct statvfs room;
	struct rlimit limit;
	int error = device_of(stripe->fd, stripe->path, &device);

	if (error)
		return error;
	if (device.is_block)
		return offset + length <= device.length ? 0 :
		       fail(ENOSPC, "%s are needed on '%s', which has only %s",
			    BYTES_TEXT(offset + length), stripe->path, BYTES_TEXT(device.length));
	/* Beyond this limit fallocate() would raise SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < offset + length)
		return fail(EFBIG, "%s are needed for '%s', but RLIMIT_FSIZE is %s; raise it with `ulimit -f`",
			    BYTES_TEXT(offset + length), stripe->path, BYTES_TEXT(limit.rlim_cur));
	error = check_room(stripe, offset, length);
	if (error)
		return error;
	while (fallocate(stripe->fd, 0, (off_t)offset, (off_t)length)) {
		error = errno;
		if (error == EINTR)
			continue;
		if (error == ENOSPC && !fstatvfs(stripe->fd, &room))
			return fail_no_room(stripe, length, &room);
		return fail(error, "cannot allocate %s for '%s' (fallocate: %s)",
			    BYTES_TEXT(length), stripe->path, strerror(error));
	}
	return 0;
}

static int punch_one(const struct stripe *stripe, uint64_t offset, uint64_t length)
{
	while (fallocate(stripe->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
			 (off_t)length))
		if (errno != EINTR)
			return fail(errno, "cannot free space in '%s' (fallocate: %s)", stripe->path,
				    strerror(errno));
	return 0;
}

/*
 * Calls @call for each file that contains bytes of this part of the set. In each file, these bytes
 * are contiguous.
 */
static int call_per_stripe(const struct actmem_file *file, uint64_t offset, uint64_t length,
			   int (*call)(const struct stripe *stripe, uint64_t offset,
				       uint64_t length))
{
	unsigned int i;
	int error = 0;

	for (i = 0; !error && i < file->count; i++) {
		uint64_t from = share_of(file, i, offset);
		uint64_t to = share_of(file, i, offset + length);

		if (to > from)
			error = call(&file->stripes[i], from, to - from);
	}
	return error;
}

int file_allocate(const struct actmem_file *file, uint64_t offset, uint64_t length)
{
	return call_per_stripe(file, offset, length, allocate_one);
}

int file_punch(const struct actmem_file *file, uint64_t offset, uint64_t length)
{
	return call_per_stripe(file, offset, length, punch_one);
}
