/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions that are files of hugetlbfs or tmpfs, for the memfd backend.
 *
 * A process creates a region as a file without a name. If the process dies before the region is
 * complete, the kernel removes the file. Once the pages are allocated, the process links the file
 * to the region's path. Because linkat(2) fails if the path exists, only one of several creators
 * can link its file. Other processes find only complete regions. The creator then opens the file by
 * its path, as other processes do.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/map.h"
#include "region/memfd/memfd.h"
#include "region/memfd/pages.h"
#include "region/names.h"
#include "watch/watch.h"

#define REMOVE_OR	"; remove it, or "

/* Maps existing pages into this process, because mlock() keeps only mapped pages in memory. */
static int touch_pages(const struct backing *backing, uint64_t offset, uint64_t length)
{
	while (madvise((char *)backing->address + offset, length, MADV_POPULATE_READ)) {
		if (errno != EINTR && errno != EAGAIN)
			return fail(errno == EFAULT ? EIO : errno,
				    "cannot map %s of %s (madvise: %s)", BYTES_TEXT(length),
				    backing->name, strerror(errno));
	}
	return 0;
}

/*
 * Calls @see for each run of allocated pages. Because hugetlbfs does not report which pages are
 * allocated, the function calls @see for a file of hugetlbfs only if no page is missing.
 */
static int for_each_present(const struct region_request *request, const struct backing *backing,
			    int (*see)(const struct region_request *request,
				       const struct backing *backing, uint64_t offset,
				       uint64_t length))
{
	off_t end = (off_t)backing->length, at = 0, behind;
	uint64_t allocated;
	int error = memfd_allocated(backing, &allocated);

	if (error)
		return error;
	if (allocated >= backing->length)
		return see(request, backing, 0, backing->length);
	if (pages_are_hugetlb(backing->pages))
		return 0;
	for (; !error && pages_next_present(backing, end, &at, &behind); at = behind)
		error = see(request, backing, (uint64_t)at, (uint64_t)(behind - at));
	return error;
}

static int touch_present(const struct region_request *request, const struct backing *backing,
			 uint64_t offset, uint64_t length)
{
	return touch_pages(backing, offset, length);
}

static int verify_present(const struct region_request *request, const struct backing *backing,
			  uint64_t offset, uint64_t length)
{
	return pages_verify(request, backing, offset, length, false);
}

/*
 * Finds out if a tmpfs file has huge pages. If no page of the file is mapped, assumes that it has
 * huge pages, unless @request is for 4K pages or has no path.
 */
static int detect_pages(const struct region_request *request, struct backing *backing)
{
	uint64_t mapped, huge;
	int error;

	if (pages_are_hugetlb(backing->pages))
		return 0;
	error = smaps_count(backing->address, backing->length, &mapped, &huge);
	if (error || backing->length % HUGE_PAGE_BYTES)
		return error;
	if (mapped ? huge == mapped : request->pages != ACTMEM_PAGES_4K && request->path) {
		backing->pages = ACTMEM_PAGES_THP;
		backing->page_bytes = HUGE_PAGE_BYTES;
	}
	return 0;
}

/*
 * If a fallback is @allowed, counts it and returns 0. Otherwise returns -EEXIST. Appends to the
 * error message, whether or not the fallback is @allowed.
 */
static int count_fallback(struct backing *backing, bool allowed, const char *what, const char *knob)
{
	if (!allowed) {
		fail_more(REMOVE_OR "allow %s with %s", what, knob);
		return -EEXIST;
	}
	fail_more("; used it as it is");
	backing->fallbacks++;
	return 0;
}

static int check_pages(const struct region_request *request, struct backing *backing)
{
	enum actmem_pages got = backing->pages, wanted = request->pages;

	/* A request for 4K pages accepts transparent huge pages, too. */
	if (got == wanted || (wanted == ACTMEM_PAGES_4K && got == ACTMEM_PAGES_THP))
		return 0;
	if (pages_are_hugetlb(got) && !(got == ACTMEM_PAGES_2M && wanted == ACTMEM_PAGES_1G))
		return nameless_check_hugetlbfs(request, backing->page_bytes);
	fail(EEXIST, "%s exists in %s, but %s were requested", request->path, page_names[got],
	     page_names[wanted]);
	if (got == ACTMEM_PAGES_2M)
		return count_fallback(backing, request->allow & ACTMEM_ALLOW_2M,
				      "2 MiB pages", KNOB(ALLOW_2M));
	if (got == ACTMEM_PAGES_THP)
		return count_fallback(backing, request->allow & ACTMEM_ALLOW_THP,
				      "transparent huge pages", KNOB(ALLOW_THP));
	return count_fallback(backing, request->allow & ACTMEM_ALLOW_4K,
			      "4 KiB pages", KNOB(ALLOW_4K));
}

static int check_places(const struct region_request *request, struct backing *backing)
{
	int error;

	if (request->any_place)
		return 0;
	error = for_each_present(request, backing, verify_present);
	if (error == -EIO) {
		fail(EEXIST, "%s exists, but %s", request->path, fail_words());
		error = count_fallback(backing, request->allow & ACTMEM_ALLOW_NODE,
				       "other nodes", KNOB(ALLOW_NODE));
		backing->elsewhere = true;
	}
	if (!error && !backing->read_only)
		error = pages_bind(request, backing);
	if (!error) {
		backing->policy = request->policy;
		backing->nodes = request->nodes;
	}
	return error;
}

/* Sets the length of the backing, and its kind of pages, from the file. */
static int read_file_status(const char *name, struct backing *backing)
{
	struct statfs files;
	struct stat stat;

	if (fstat(backing->fd, &stat) || fstatfs(backing->fd, &files))
		return fail(errno, "cannot check %s (%s)", name, strerror(errno));
	if (files.f_type != HUGETLBFS_MAGIC && files.f_type != TMPFS_MAGIC)
		return fail(EINVAL, "%s is neither on hugetlbfs nor on tmpfs any more", name);
	backing->length = (uint64_t)stat.st_size;
	if (!memfd_take_pages(backing, &files))
		return fail(EINVAL, "%s has %llu bytes in pages of %s, so this library did not create it; remove it",
			    name, (unsigned long long)backing->length,
			    BYTES_TEXT(backing->page_bytes));
	return 0;
}

/* Maps and locks the file, and finds out which kind of pages it has. */
static int map_found(const struct region_request *request, struct backing *backing)
{
	struct region_request kind = *request;
	int error = map_region(backing);

	if (error)
		return error;
	error = memfd_identify(backing);
	if (!error)
		error = memfd_lock(backing, request->allow);
	if (!error)
		error = for_each_present(request, backing, touch_present);
	if (!error)
		error = detect_pages(request, backing);
	kind.pages = backing->pages;
	if (!error)
		error = memfd_advise(&kind, backing);
	if (error)
		munmap(backing->address, backing->length);
	return error;
}

/* Checks an existing file against the request, and maps it. Closes the descriptor on failure. */
static int map_existing(const struct region_request *request, struct backing *backing)
{
	int error = read_file_status(request->path, backing);

	if (!error && request->open & ACTMEM_OPEN_LOCK)
		error = name_lock(backing->fd, request->path);
	if (!error && request->length && backing->length != request->length &&
	    !(request->open & ACTMEM_OPEN_ANY_LENGTH))
		error = fail(EEXIST, "%s exists with %s, but %s were requested; remove it, or request length 0 to accept any",
			     request->path, BYTES_TEXT(backing->length),
			     BYTES_TEXT(request->length));
	if (!error)
		error = map_found(request, backing);
	if (error) {
		request_close_fd(request, backing->fd);
		return error;
	}
	error = check_pages(request, backing);
	if (!error)
		error = check_places(request, backing);
	if (error)
		memfd_drop(request, backing);
	return error;
}

int named_receive(const struct region_request *request, struct backing *backing)
{
	int error = read_file_status(backing->name, backing);

	if (!error)
		error = map_found(request, backing);
	if (error)
		request_close_fd(request, backing->fd);
	return error;
}

static int open_existing(const struct region_request *request, struct backing *backing)
{
	struct stat stat;
	int error;

	*backing = (struct backing){
		.inherit = request->inherit,
		.received = true,
		.named = true,
		.read_only = request->open & ACTMEM_OPEN_READ,
	};
	error = name_open(request, 0, &backing->fd, &stat);
	if (error)
		return error;
	name_label(backing->name, request->path);
	return map_existing(request, backing);
}

/*
 * Links the file to its path, and sets *@made. If another file has that path, clears *@made and
 * returns 0.
 */
static int link_file(const struct region_request *request, const struct backing *backing,
		     bool *made)
{
	struct stat stat;
	int error = name_link(backing->fd, request->path);

	*made = !error;
	if (!error)
		return 0;
	if (error == -EEXIST && !lstat(request->path, &stat) && S_ISLNK(stat.st_mode) &&
	    access(request->path, F_OK))
		return fail(EEXIST, "%s is a link to a file that does not exist", request->path);
	if (error == -EEXIST)
		return 0;
	return fail(-error, "cannot name a file %s (linkat: %s)%s", request->path,
		    strerror(-error), error == -ENOENT ? " (is /proc mounted?)" : "");
}

/*
 * Opens request->path, after this process has linked a new file to this path. @made is the backing
 * with which this process created the file.
 */
static int open_created(const struct region_request *request, const struct backing *made,
			const char *words, struct backing *backing)
{
	struct region_request again = *request;
	struct stat there;
	int error;

	/* Fallbacks were checked and counted when the file was created, so allow all of them. */
	again.allow |= ACTMEM_ALLOW_2M | ACTMEM_ALLOW_THP | ACTMEM_ALLOW_4K | ACTMEM_ALLOW_NODE;
	error = open_existing(&again, backing);
	if (error) {
		if (!lstat(request->path, &there) && there.st_dev == made->device &&
		    there.st_ino == made->id && error != -EBUSY)
			unlink(request->path);
		return error;
	}
	if (backing->id == made->id && backing->device == made->device) {
		backing->received = false;
		backing->fallbacks = made->fallbacks;
		backing->policy = made->policy;
		backing->nodes = made->nodes;
		if (made->fallbacks)
			fail(0, "%s", words);
	} else if (request->open & ACTMEM_OPEN_EXCLUSIVE) {
		memfd_drop(request, backing);
		return fail(EEXIST, "%s was replaced by another file as soon as it was made",
			    request->path);
	}
	return 0;
}

static int create_and_link(const struct region_request *request, struct backing *backing, bool *linked)
{
	struct region_request file = *request;
	struct backing made = { 0 };
	char words[ERROR_TEXT_MAX];
	int error;

	*linked = false;
	error = memfd_make(-1, &file, &made);
	if (error)
		return error;
	snprintf(words, sizeof(words), "%s", fail_words());
	error = link_file(request, &made, linked);
	memfd_drop(request, &made);
	if (!error && *linked)
		error = open_created(request, &made, words, backing);
	return error;
}

/*
 * Locks the directory of a path. If several processes create the same region at once, each may get
 * a part of the memory, so that none can finish. Each process therefore holds a shared lock on the
 * directory while it creates the region. A process that gets too little memory frees its part and
 * waits for the exclusive lock. While it holds this lock, no other process creates the region.
 * Then, either the region is complete, or this process can create it. Any user who can open a
 * directory can lock it, and so delay this process. Therefore, the library does not lock
 * directories that all users can open (/dev/shm).
 */
static int lock_parent(const struct region_request *request, const char *folder, int how, int *lock)
{
	struct stat stat;

	*lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*lock < 0)
		return fail(errno, "cannot open %s (%s)", folder, strerror(errno));
	request_tell_lock(request, *lock);
	if (fstat(*lock, &stat) || stat.st_mode & (S_IROTH | S_IWOTH))
		return 0;
	while (flock(*lock, how))
		if (errno != EINTR)
			break;
	return 0;
}

/*
 * Unlocks explicitly: a child that was forked meanwhile may still have the descriptor, and would
 * keep the lock.
 */
static void unlock_parent(const struct region_request *request, int lock)
{
	flock(lock, LOCK_UN);
	request_tell_lock(request, -1);
	close(lock);
}

int memfd_open_name(const struct region_request *request, struct backing *backing)
{
	bool exclusive = request->open & ACTMEM_OPEN_EXCLUSIVE, linked;
	char folder[PATH_MAX];
	int how = LOCK_SH;
	int error, lock;

	parent_of(folder, request->path);
	for (;;) {
		if (exclusive && !access(request->path, F_OK))
			return fail(EEXIST, "%s exists already", request->path);
		/*
		 * With EXCLUSIVE, never open an existing file: if such a file has just appeared,
		 * the next iteration fails.
		 */
		error = exclusive ? -ENOENT : open_existing(request, backing);
		if (error != -ENOENT || !(request->open & ACTMEM_OPEN_CREATE))
			return error;
		error = lock_parent(request, folder, how, &lock);
		if (error)
			return error;
		linked = false;
		/* Another process may have created the region while this one waited. */
		if (access(request->path, F_OK))
			error = create_and_link(request, backing, &linked);
		unlock_parent(request, lock);
		if (linked)
			return error;
		if (error && access(request->path, F_OK)) {
			if (how == LOCK_EX || (error != -ENOMEM && error != -ENOSPC))
				return error;
			how = LOCK_EX;
		}
	}
}
