/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Files in memory that others made, as regions of the memfd backend, which has
 * nothing else: they are mapped, populated and pinned as they are.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "map.h"
#include "memfd.h"
#include "memfd_pages.h"
#include "node.h"
#include "why.h"

/* As the driver decides, with its words. */
static int check_seals(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	if (seals < 0)
		return fail(errno, "cannot ask for the seals of descriptor %d (fcntl: %s)", fd,
			    strerror(errno));
	if (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE) ||
	    !(seals & (F_SEAL_SHRINK | F_SEAL_SEAL)))
		return why_fail_import(EPERM, 0, 0);
	return 0;
}

static int check_range(const struct memory_request *memory, uint64_t file_bytes)
{
	if (memory->length > file_bytes || memory->offset > file_bytes - memory->length)
		return why_fail_import(EINVAL, memory->offset + memory->length, file_bytes);
	if (!memory->offset && memory->length == file_bytes)
		return 0;
	return fail(EINVAL, "%llu bytes at %llu of a file of %llu: the memfd backend imports whole files alone",
		    (unsigned long long)memory->length, (unsigned long long)memory->offset,
		    (unsigned long long)file_bytes);
}

/* Sets what does not depend on how much of the file is there. */
static int look_at_file(const struct memory_request *memory, struct backing *backing)
{
	int flags = fcntl(memory->fd, F_GETFL);
	struct statfs files;
	struct stat stat;
	int error;

	if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || flags & O_PATH)
		return fail(EBADF, "descriptor %d is not open for reading and writing",
			    memory->fd);
	if (fstat(memory->fd, &stat) || fstatfs(memory->fd, &files))
		return fail(errno, "cannot look at descriptor %d (%s)", memory->fd,
			    strerror(errno));
	if (!S_ISREG(stat.st_mode) ||
	    (files.f_type != TMPFS_MAGIC && files.f_type != HUGETLBFS_MAGIC))
		return why_fail_import(EINVAL, 0, 0);
	error = check_range(memory, (uint64_t)stat.st_size);
	if (!error)
		error = check_seals(memory->fd);
	if (error)
		return error;
	backing->length = memory->length;
	if (!memfd_take_pages(backing, &files))
		return fail(EINVAL, "the file has %llu bytes in pages of %s; whole ones of 4 KiB, 2 MiB or 1 GiB can be had",
			    (unsigned long long)stat.st_size, BYTES_TEXT(backing->page_bytes));
	return 0;
}

/* What is missing, as touching it would; what there is no room for is an error before. */
static int populate(const struct region_request *request, const struct backing *backing)
{
	struct region_request missing = *request;
	int error = 0;

	if (!pages_are_hugetlb(backing->pages)) {
		missing.length = pages_missing(backing, 0, backing->length);
		error = pages_check_room(&missing);
	}
	return error ? error : pages_place(request, backing, 0, backing->length);
}

int memfd_import(int device, const struct memory_request *memory, struct backing *backing)
{
	struct region_request request = { 0 };
	int error;

	*backing = (struct backing){ .imported = true };
	error = look_at_file(memory, backing);
	if (error)
		return error;
	memcpy(backing->name, memory->name, sizeof(backing->name));
	backing->fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 0);
	if (backing->fd < 0)
		return fail(errno, "cannot duplicate descriptor %d (%s)", memory->fd,
			    strerror(errno));
	request.length = backing->length;
	request.pages = backing->pages;
	error = map_region(backing);
	if (error) {
		/* Mapping reserves hugetlb pages. */
		if (error == -ENOMEM && pages_are_hugetlb(backing->pages))
			error = pages_fail_hugetlb(&request);
		close(backing->fd);
		return error;
	}
	error = memfd_identify(backing);
	if (!error)
		error = memfd_lock(backing, memory->allow);
	if (!error)
		error = populate(&request, backing);
	if (!error)
		error = memfd_look_for_thp(backing);
	if (error)
		memfd_release(backing);
	return error;
}
