/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Opens sets of files for a queue.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "queue/inside.h"
#include "region/region.h"

#define FLAGS_KNOWN	(ACTMEM_FILE_CREATE | ACTMEM_FILE_TEMPORARY | ACTMEM_FILE_READ_ONLY | \
			 ACTMEM_FILE_ALLOW_BUFFERED | ACTMEM_FILE_NO_ATIME)
#define OWNER_ALONE	0600

/*
 * Suppose that file @stripe has @length bytes. Returns the offset, in the set, of the first byte
 * that this file lacks. The result is at most INT64_MAX, the largest offset.
 */
static uint64_t gap_behind(const struct actmem_file *file, unsigned int stripe, uint64_t length)
{
	__uint128_t number = (__uint128_t)(length / file->stripe_bytes) * file->count + stripe;
	__uint128_t gap = number * file->stripe_bytes + length % file->stripe_bytes;

	if (file->count == 1)
		return length;
	return gap < INT64_MAX ? (uint64_t)gap : INT64_MAX;
}

static int check_options(const struct actmem_file_options *options)
{
	uint32_t flags = options->flags;
	uint32_t i;

	if (!options->paths || !options->path_count || options->path_count > ACTMEM_FILE_PATHS_MAX)
		return fail(EINVAL, "a set must have 1 to %u files, not %u", ACTMEM_FILE_PATHS_MAX,
			    options->paths ? options->path_count : 0);
	for (i = 0; i < options->path_count; i++)
		if (!options->paths[i] || !*options->paths[i])
			return fail(EINVAL, "path %u of %u is empty", i + 1, options->path_count);
	if (flags & ~FLAGS_KNOWN)
		return fail(EINVAL, "file flags 0x%x are unknown", flags & ~FLAGS_KNOWN);
	if (flags & ACTMEM_FILE_CREATE && flags & ACTMEM_FILE_TEMPORARY)
		return fail(EINVAL, "CREATE (a file with a name) and TEMPORARY (a file without a name) cannot be combined");
	if (flags & ACTMEM_FILE_READ_ONLY &&
	    (options->length || flags & (ACTMEM_FILE_CREATE | ACTMEM_FILE_TEMPORARY)))
		return fail(EINVAL, "READ_ONLY cannot be combined with CREATE, TEMPORARY or a length");
	if (options->length > INT64_MAX)
		return fail(EINVAL, "length is %llu, which is too long for a file", (unsigned long long)options->length);
	return 0;
}

static int open_again(const char *path, int flags)
{
	int fd;

	do {
		fd = open(path, flags, OWNER_ALONE);
	} while (fd < 0 && errno == EINTR);
	return fd;
}

static int fail_open(const char *path, uint32_t flags, int error)
{
	const char *what = flags & ACTMEM_FILE_TEMPORARY ? "make a file without a name in" :
			   flags & ACTMEM_FILE_CREATE ? "make" : "open";

	if (flags & ACTMEM_FILE_TEMPORARY && (error == EOPNOTSUPP || error == EISDIR))
		return fail(EOPNOTSUPP, "cannot %s '%s': its file system does not support O_TMPFILE; use a directory on another file system",
			    what, path);
	if (flags & ACTMEM_FILE_NO_ATIME && error == EPERM)
		return fail(EPERM, "cannot %s '%s' with NO_ATIME, because another user owns the file",
			    what, path);
	return fail(error, "cannot %s '%s' (%s)", what, path, strerror(error));
}

/*
 * Opens one file of the set, and tries to enable direct I/O. A file system that does not support
 * direct I/O refuses O_DIRECT, in open() and in fcntl().
 */
static int open_one(struct actmem_file *file, const char *path, uint32_t flags, int *result)
{
	int how = O_CLOEXEC | (flags & ACTMEM_FILE_READ_ONLY ? O_RDONLY : O_RDWR) |
		  (flags & ACTMEM_FILE_CREATE ? O_CREAT | O_EXCL : 0) |
		  (flags & ACTMEM_FILE_TEMPORARY ? O_TMPFILE | O_NOATIME : 0) |
		  (flags & ACTMEM_FILE_NO_ATIME ? O_NOATIME : 0);
	int fd = open_again(path, how);
	int error;

	/*
	 * On some file systems, such as one that a virtual machine shares with its host, another
	 * user owns the new file. The kernel then refuses O_NOATIME.
	 */
	if (fd < 0 && errno == EPERM && flags & ACTMEM_FILE_TEMPORARY) {
		how &= ~O_NOATIME;
		fd = open_again(path, how);
	}
	if (fd < 0)
		return fail_open(path, flags, errno);
	if (file->direct && fcntl(fd, F_SETFL, how | O_DIRECT)) {
		if (errno != EINVAL || !(flags & ACTMEM_FILE_ALLOW_BUFFERED)) {
			error = fail(errno, "'%s' has no direct I/O (%s); allow the page cache with %s, or use another file system",
				     path, strerror(errno), KNOB(SPILL_ALLOW_BUFFERED));
			close(fd);
			if (flags & ACTMEM_FILE_CREATE)
				unlink(path);
			return error;
		}
		file->direct = false;
	}
	*result = fd;
	return 0;
}

/*
 * Turns off direct I/O for all files of the set, because all files must use the same kind of I/O.
 */
static int make_buffered(struct actmem_file *file)
{
	unsigned int i;
	int flags;

	for (i = 0; i < file->count; i++) {
		flags = fcntl(file->stripes[i].fd, F_GETFL);
		if (flags < 0 || fcntl(file->stripes[i].fd, F_SETFL, flags & ~O_DIRECT))
			return fail(errno, "'%s': cannot leave direct I/O (%s)",
				    file->stripes[i].path, strerror(errno));
	}
	file->alignment = 1;
	file->memory_alignment = 1;
	return 0;
}

static bool is_among(const uint64_t *numbers, unsigned int count, uint64_t number)
{
	while (count--)
		if (numbers[count] == number)
			return true;
	return false;
}

/* Finds limits that all devices of the set accept. */
static int take_devices(struct actmem_file *file)
{
	const struct actmem_queue_options *options = &file->queue->options;
	uint64_t numbers[ACTMEM_FILE_PATHS_MAX];
	struct device device;
	unsigned int i;
	int error;

	for (i = 0; i < file->count; i++) {
		error = device_of(file->stripes[i].fd, file->stripes[i].path, &device);
		if (error)
			return error;
		numbers[i] = device.number;
		if (!is_among(numbers, i, device.number))
			file->depth += device.depth;
		if (device.alignment > file->alignment)
			file->alignment = device.alignment;
		if (device.memory_alignment > file->memory_alignment)
			file->memory_alignment = device.memory_alignment;
		if (device.block_bytes > file->block_bytes)
			file->block_bytes = device.block_bytes;
		if (device.request_bytes > file->request_bytes)
			file->request_bytes = device.request_bytes;
		file->rotational |= device.rotational;
	}
	if (options->block_bytes)
		file->block_bytes = options->block_bytes;
	if (options->depth)
		file->depth = options->depth;
	if (file->depth > ACTMEM_QUEUE_DEPTH_MAX)
		file->depth = ACTMEM_QUEUE_DEPTH_MAX;
	if (!file->stripe_bytes)
		file->stripe_bytes = file->block_bytes;
	return 0;
}

static int check_alignment(const struct actmem_file *file)
{
	if (file->stripe_bytes % file->alignment)
		return fail(EINVAL, "stripes have %llu bytes, but '%s' needs a multiple of %llu",
			    (unsigned long long)file->stripe_bytes, file->stripes[0].path,
			    (unsigned long long)file->alignment);
	if (file->block_bytes % file->alignment)
		return fail(EINVAL, "blocks have %llu bytes, but '%s' needs a multiple of %llu; set block_bytes of the queue",
			    (unsigned long long)file->block_bytes, file->stripes[0].path,
			    (unsigned long long)file->alignment);
	return 0;
}

/* Finds the length of the set: the offset of the first byte that one of the files lacks. */
static int file_length(const struct actmem_file *file, uint64_t *length)
{
	struct device device;
	unsigned int i;
	uint64_t gap;
	int error;

	*length = UINT64_MAX;
	for (i = 0; i < file->count; i++) {
		error = device_of(file->stripes[i].fd, file->stripes[i].path, &device);
		if (error)
			return error;
		gap = gap_behind(file, i, device.length);
		if (gap < *length)
			*length = gap;
	}
	return 0;
}

static void close_files(struct actmem_file *file, bool unmake)
{
	while (file->count) {
		struct stripe *stripe = &file->stripes[--file->count];

		if (unmake)
			unlink(stripe->path);
		close(stripe->fd);
		free(stripe->path);
	}
}

static int open_files(struct actmem_file *file, const struct actmem_file_options *options)
{
	uint32_t i;
	int error;

	file->direct = true;
	for (i = 0; i < options->path_count; i++) {
		struct stripe *stripe = &file->stripes[i];

		stripe->path = strdup(options->paths[i]);
		if (!stripe->path)
			return fail(ENOMEM, "no memory for a path");
		error = open_one(file, options->paths[i], options->flags, &stripe->fd);
		if (error) {
			free(stripe->path);
			return error;
		}
		file->descriptors[i] = stripe->fd;
		file->count++;
	}
	/*
	 * A child that is forked from now on closes the files. Do this before the allocation below,
	 * which can take seconds.
	 */
	file->held.descriptors = file->descriptors;
	file->held.count = file->count;
	held_add(file->queue->am, &file->held);
	file->alignment = 1;
	file->memory_alignment = 1;
	error = take_devices(file);
	if (!error && !file->direct)
		error = make_buffered(file);
	if (!error)
		error = check_alignment(file);
	if (!error && options->length)
		error = file_allocate(file, 0, options->length);
	return error;
}

static int enlist(struct actmem_file *file)
{
	struct actmem_queue *queue = file->queue;
	int error = queue->engine->add_file(queue, file);

	if (error)
		return error;
	pthread_mutex_lock(&queue->lock);
	link_append(&queue->files, &file->link);
	queue->file_count++;
	pthread_mutex_unlock(&queue->lock);
	return 0;
}

int actmem_file_open(struct actmem_queue *queue, const struct actmem_file_options *options,
		     struct actmem_file **result)
{
	struct actmem_file_options taken;
	struct actmem_file *file;
	int error = queue_check(queue, "actmem_file_open");

	if (error)
		return error;
	if (!options || !result)
		return fail(EINVAL, "actmem_file_open: options or file is NULL");
	error = take_struct(&taken, sizeof(taken), options, "file options");
	if (!error)
		error = check_options(&taken);
	if (error)
		return error;
	file = calloc(1, sizeof(*file) + taken.path_count * sizeof(file->stripes[0]));
	if (!file)
		return fail(ENOMEM, "no memory for a set of files");
	file->queue = queue;
	file->read_only = taken.flags & ACTMEM_FILE_READ_ONLY;
	file->stripe_bytes = taken.stripe_bytes;
	link_init(&file->pending);
	link_init(&file->held.link);
	thread_hold_cancellation();
	error = open_files(file, &taken);
	if (!error)
		error = enlist(file);
	if (error) {
		held_drop(&file->held);
		close_files(file, taken.flags & ACTMEM_FILE_CREATE);
		free(file);
	} else {
		fail_clear();
		*result = file;
	}
	thread_let_cancellation();
	return error;
}

int actmem_file_close(struct actmem_file *file)
{
	struct actmem_queue *queue;
	unsigned int requests;
	int error;

	if (!file)
		return fail(EINVAL, "actmem_file_close: no file");
	queue = file->queue;
	error = queue_check(queue, "actmem_file_close");
	if (error)
		return error;
	pthread_mutex_lock(&queue->lock);
	requests = file->requests;
	if (!requests) {
		link_remove(&file->link);
		queue->file_count--;
		/*
		 * If another set of files gets the same address later, `actmem waits` must show
		 * that set's own name.
		 */
		if (queue->published_file == file)
			queue->published_file = NULL;
	}
	pthread_mutex_unlock(&queue->lock);
	if (requests)
		return fail(EBUSY, "%u requests of '%s' are in progress", requests,
			    file->stripes[0].path);
	queue->engine->remove_file(queue, file);
	held_drop(&file->held);
	close_files(file, false);
	free(file);
	return 0;
}

int actmem_file_get_info(struct actmem_file *file, struct actmem_file_info *info)
{
	struct actmem_file_info now;
	int error;

	if (!file || !info)
		return fail(EINVAL, "actmem_file_get_info: file or info is NULL");
	error = check_owner(file->queue->am);
	if (error)
		return error;
	ACTMEM_INIT(&now);
	now.alignment = file->alignment;
	now.memory_alignment = file->memory_alignment;
	now.block_bytes = file->block_bytes;
	now.stripe_bytes = file->stripe_bytes;
	now.depth = file->depth;
	now.direct = file->direct;
	now.rotational = file->rotational;
	error = file_length(file, &now.length);
	return error ? error : give_struct(info, &now, sizeof(now), "file info");
}
