/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Receives descriptors of the memfd backend's regions from other processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/map.h"
#include "region/memfd/memfd.h"
#include "region/memfd/pages.h"
#include "region/names.h"
#include "region/options.h"
#include "watch/watch.h"

/*
 * Accepts only files that have a path, and memfds whose name has this library's prefix and that
 * have this library's seals. The file may have holes. Other processes that have the file open may
 * punch more holes, because they may discard pages.
 */
static int check_memfd(int fd, struct backing *backing)
{
	static const char prefix[] = "/memfd:" REGION_LABEL, suffix[] = " (deleted)";
	char path[64], label[512];
	struct stat stat;
	struct statfs files;
	ssize_t length;
	int seals;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	length = readlink(path, label, sizeof(label) - 1);
	if (length < 0 || fstat(fd, &stat) || fstatfs(fd, &files))
		return fail(errno == ENOENT ? EBADF : errno, "descriptor %d: %s", fd,
			    errno == ENOENT ? "not open" : strerror(errno));
	label[length] = '\0';
	if ((size_t)length >= sizeof(suffix) - 1 &&
	    !strcmp(label + length - (sizeof(suffix) - 1), suffix))
		label[(size_t)length - (sizeof(suffix) - 1)] = '\0';
	seals = fcntl(fd, F_GET_SEALS);
	backing->named = seals == F_SEAL_SEAL && strncmp(label, "/memfd:", 7);
	if (backing->named && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_WRONLY) {
		backing->read_only = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
		name_label(backing->name, label);
		return 0;
	}
	if (strncmp(label, prefix, sizeof(prefix) - 1) || seals < 0 ||
	    (files.f_type != TMPFS_MAGIC && files.f_type != HUGETLBFS_MAGIC))
		return fail(EINVAL, "descriptor %d is not a region of the memfd backend (%s)", fd, label);
	if ((seals & MEMFD_SEALS) != MEMFD_SEALS)
		return fail(EINVAL, "descriptor %d can still change its length, so this library did not create it", fd);
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return fail(EINVAL, "descriptor %d is not open for reading and writing", fd);
	backing->length = (uint64_t)stat.st_size;
	if (!memfd_take_pages(backing, &files))
		return fail(EINVAL, "the length of descriptor %d is not a multiple of the page size, so this library did not create it", fd);
	return take_name(backing->name, label + sizeof(prefix) - 1);
}

/* Sets the kind of pages to transparent huge pages if the whole file is mapped with them. */
static int look_for_thp(struct backing *backing)
{
	uint64_t mapped, huge;
	int error;

	if (backing->pages != ACTMEM_PAGES_4K)
		return 0;
	error = smaps_count(backing->address, backing->length, &mapped, &huge);
	if (!error && huge == backing->length) {
		backing->pages = ACTMEM_PAGES_THP;
		backing->page_bytes = HUGE_PAGE_BYTES;
	}
	return error;
}

int memfd_adopt(int device, int fd, const struct region_request *request,
		struct backing *backing)
{
	struct region_request whole = { 0 };
	uint64_t allocated = 0;
	int error;

	*backing = (struct backing){ .received = true };
	error = check_memfd(fd, backing);
	if (error)
		return error;
	backing->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (backing->fd < 0)
		return fail(errno, "cannot duplicate descriptor %d (%s)", fd, strerror(errno));
	request_tell_fd(request, backing->fd);
	if (backing->named)
		return named_receive(request, backing);
	error = map_region(backing);
	if (error) {
		request_close_fd(request, backing->fd);
		return error;
	}
	whole.pages = backing->pages;
	whole.length = backing->length;
	error = memfd_identify(backing);
	if (!error)
		error = memfd_lock(backing, request->allow);
	if (!error)
		error = memfd_allocated(backing, &allocated);
	if (!error && allocated == backing->length)
		error = pages_place(&whole, backing, 0, backing->length);
	if (!error)
		error = look_for_thp(backing);
	if (error)
		memfd_drop(request, backing);
	return error;
}
