/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Handles existing files of regions in shared memory: identifies the files, finds out their kind of
 * pages, and locks the pages in memory.
 */
#include <errno.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/memfd/memfd.h"

int memfd_identify(struct backing *backing)
{
	struct stat stat;

	if (fstat(backing->fd, &stat))
		return fail(errno, "cannot identify a memfd (fstat: %s)", strerror(errno));
	backing->id = stat.st_ino;
	backing->device = stat.st_dev;
	return 0;
}

bool memfd_take_pages(struct backing *backing, const struct statfs *files)
{
	bool hugetlb = files->f_type == HUGETLBFS_MAGIC;

	backing->page_bytes = hugetlb ? (uint64_t)files->f_bsize : BASE_PAGE_BYTES;
	backing->pages = pages_of_bytes(backing->page_bytes);
	return backing->length && !(backing->length % backing->page_bytes) &&
	       backing->page_bytes == pages_bytes(backing->pages);
}

int memfd_allocated(const struct backing *backing, uint64_t *bytes)
{
	struct stat stat;

	if (fstat(backing->fd, &stat))
		return fail(errno, "cannot get the size of a memfd's memory (fstat: %s)",
			    strerror(errno));
	*bytes = (uint64_t)stat.st_blocks * 512;
	return 0;
}

/*
 * Counts a fallback and returns 0 if @allow permits unlocked memory. The caller has set the error
 * message.
 */
static int lock_failed(struct backing *backing, uint32_t allow, int error)
{
	if (!(allow & ACTMEM_ALLOW_UNLOCKED))
		return -error;
	fail_more("; continued without pinning");
	backing->fallbacks++;
	return 0;
}

/*
 * Does not lock hugetlb pages: they are never swapped, and mlock(2) would count them against
 * RLIMIT_MEMLOCK.
 */
int memfd_lock(struct backing *backing, uint32_t allow)
{
	struct rlimit limit = { 0 };
	uint64_t locked = 0, wanted;
	char text[4096];
	int error;

	if (pages_are_hugetlb(backing->pages)) {
		backing->locked_bytes = backing->length;
		return 0;
	}
	/*
	 * MLOCK_ONFAULT allocates no pages, so a limit that is too low is found before the
	 * allocation.
	 */
	if (!mlock2(backing->address, backing->length, MLOCK_ONFAULT)) {
		backing->locked_bytes = backing->length;
		return 0;
	}
	error = errno;
	if (error != ENOMEM && error != EPERM && error != EAGAIN)
		return fail(error, "cannot lock %s (mlock: %s)", BYTES_TEXT(backing->length),
			    strerror(error));
	if (!getrlimit(RLIMIT_MEMLOCK, &limit) &&
	    !sysfile_read("/proc/self/status", text, sizeof(text)))
		locked = sysfile_number(text, "\nVmLck:") * 1024;
	wanted = locked + backing->length;
	if (error == EPERM && limit.rlim_cur) {
		fail(EPERM, "cannot lock %s (mlock2: Operation not permitted), although RLIMIT_MEMLOCK is not 0: a seccomp filter or a security module forbids mlock2(); permit it, or allow unpinned memory with %s",
		     BYTES_TEXT(backing->length), KNOB(ALLOW_UNLOCKED));
		return lock_failed(backing, allow, EPERM);
	}
	fail(ENOMEM, "RLIMIT_MEMLOCK is %s, of which %s are locked, but %s more are needed; raise it with `ulimit -l %llu`%s, or allow unpinned memory with %s",
	     BYTES_TEXT(limit.rlim_cur), BYTES_TEXT(locked), BYTES_TEXT(backing->length),
	     (unsigned long long)wanted / 1024,
	     wanted > limit.rlim_max ? "; root must raise the hard limit first (in a container: docker run --ulimit memlock=-1)" : "",
	     KNOB(ALLOW_UNLOCKED));
	return lock_failed(backing, allow, ENOMEM);
}

int memfd_advise(const struct region_request *request, const struct backing *backing)
{
	/* On kernels without huge pages, this call fails, but is not needed. */
	if (request->pages == ACTMEM_PAGES_4K)
		madvise(backing->address, backing->length, MADV_NOHUGEPAGE);
	if (request->pages == ACTMEM_PAGES_THP &&
	    madvise(backing->address, backing->length, MADV_HUGEPAGE))
		return fail(EOPNOTSUPP, "this kernel has no transparent huge pages (madvise: %s); allow 4 KiB pages with %s",
			    strerror(errno), KNOB(ALLOW_4K));
	return 0;
}

void memfd_drop(const struct region_request *request, struct backing *backing)
{
	/* munmap() can take long: a child that is forked meanwhile closes the descriptor. */
	munmap(backing->address, backing->length);
	request_close_fd(request, backing->fd);
}

void memfd_release(struct backing *backing)
{
	munmap(backing->address, backing->length);
	if (backing->fd >= 0)
		close(backing->fd);
}
