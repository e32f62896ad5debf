/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The backend that needs no module and no root: a memfd of hugetlb pages, of
 * transparent huge pages or of base pages, placed by mbind(2), pinned by
 * mlock(2), sealed so that nobody can shrink it under its users.
 *
 * The mapping that makes the pages is kept until the region is closed, since
 * it carries the lock on them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "machine/node.h"
#include "machine/smaps.h"
#include "machine/sysfile.h"
#include "region/backend.h"
#include "region/map.h"
#include "region/memfd/memfd.h"
#include "region/memfd/pages.h"
#include "region/memfd/steps.h"
#include "region/options.h"
#include "watch/processes.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB	(21U << 26)
#endif
#ifndef MFD_HUGE_1GB
#define MFD_HUGE_1GB	(30U << 26)
#endif

#define SHMEM_ENABLED	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"

static int memfd_open(int *device)
{
	*device = -1;
	return 0;
}

/* Of no length yet. */
static int open_memfd(const struct region_request *request, int *fd)
{
	bool giant = request->pages == ACTMEM_PAGES_1G;
	bool hugetlb = pages_are_hugetlb(request->pages);
	char label[sizeof(REGION_LABEL) + ACTMEM_NAME_MAX];

	snprintf(label, sizeof(label), REGION_LABEL "%s", request->name);
	*fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING |
			   (giant ? MFD_HUGETLB | MFD_HUGE_1GB : 0) |
			   (hugetlb && !giant ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
	if (*fd < 0 && hugetlb && (errno == EINVAL || errno == ENODEV || errno == EOPNOTSUPP))
		return fail(EOPNOTSUPP, "this %s has no %s; allow other pages with ACTMEM_ALLOW=%s (actmem run --allow)",
			    giant ? "processor or kernel" : "kernel", page_names[request->pages],
			    giant ? "2m" : "thp,4k");
	if (*fd < 0)
		return fail(errno, "cannot make a memfd (memfd_create: %s)", strerror(errno));
	return 0;
}

static int make_file(const struct region_request *request, int *fd)
{
	struct rlimit limit;
	int error;

	/* ftruncate beyond this limit would raise SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < request->length)
		return fail(EFBIG, "RLIMIT_FSIZE is %s, %s wanted; raise it with `ulimit -f`",
			    BYTES_TEXT(limit.rlim_cur), BYTES_TEXT(request->length));
	error = request->path ? named_make(request, fd) : open_memfd(request, fd);
	if (error)
		return error;
	/* The kernel seals memfds alone. */
	if (ftruncate(*fd, (off_t)request->length) ||
	    (!request->path && fcntl(*fd, F_ADD_SEALS, MEMFD_SEALS))) {
		error = fail(errno, "cannot size a %s to %s (%s)",
			     request->path ? "file" : "memfd", BYTES_TEXT(request->length),
			     strerror(errno));
		close(*fd);
		return error;
	}
	return 0;
}

/* Hugetlb pages are never swapped: mlock(2) would only count them. */
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
	/* On fault, so that a limit is known before pages are made. */
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
	fail(ENOMEM, "RLIMIT_MEMLOCK is %s, of which %s are locked, and %s more wanted; raise it with `ulimit -l %llu`%s, or allow unpinned memory with ACTMEM_ALLOW=unlocked (actmem run --allow)",
	     BYTES_TEXT(limit.rlim_cur), BYTES_TEXT(locked), BYTES_TEXT(backing->length),
	     (unsigned long long)wanted / 1024,
	     wanted > limit.rlim_max ? ", for which root has to raise the hard limit first (of a container: docker run --ulimit memlock=-1)" : "");
	if (!(allow & ACTMEM_ALLOW_UNLOCKED))
		return -ENOMEM;
	fail_more("; went on unpinned");
	backing->fallbacks++;
	return 0;
}

int memfd_advise(const struct region_request *request, const struct backing *backing)
{
	/* Fails on kernels without them, which is as good as not wanting them. */
	if (request->pages == ACTMEM_PAGES_4K)
		madvise(backing->address, backing->length, MADV_NOHUGEPAGE);
	if (request->pages == ACTMEM_PAGES_THP &&
	    madvise(backing->address, backing->length, MADV_HUGEPAGE))
		return fail(EOPNOTSUPP, "this kernel has no transparent huge pages (madvise: %s); allow 4 KiB pages with ACTMEM_ALLOW=4k (actmem run --allow)",
			    strerror(errno));
	return 0;
}

/* Asked before, so that a mode that cannot give any costs no populating. */
static int check_thp_mode(void)
{
	char mode[32];

	if (sysfile_choice(mode, sizeof(mode), SHMEM_ENABLED))
		return fail(EOPNOTSUPP, "this kernel has no transparent huge pages of shared memory (" SHMEM_ENABLED "); allow 4 KiB pages with ACTMEM_ALLOW=4k (actmem run --allow)");
	if (!strcmp(mode, "never") || !strcmp(mode, "deny"))
		return fail(EOPNOTSUPP, "no transparent huge pages of shared memory: " SHMEM_ENABLED " is '%s'; as root write 'advise' to it, or allow 4 KiB pages with ACTMEM_ALLOW=4k (actmem run --allow)",
			    mode);
	return 0;
}

/* Of the pages that are there. */
static int verify_thp(const struct backing *backing)
{
	uint64_t mapped, huge;
	int error = smaps_count(backing->address, backing->length, &mapped, &huge);

	if (error || huge == mapped)
		return error;
	return fail(ENOMEM, "%s of %s became transparent huge pages, since memory is fragmented; as root write 1 to /proc/sys/vm/compact_memory, or allow 4 KiB pages with ACTMEM_ALLOW=4k (actmem run --allow)",
		    BYTES_TEXT(huge), BYTES_TEXT(mapped));
}

/* All pages, or those of a range of a region that has been made already. */
static int make_pages(const struct region_request *request, const struct backing *backing,
		      uint64_t offset, uint64_t length, bool exact)
{
	int error = pages_place(request, backing, offset, length);

	if (!error)
		error = pages_verify(request, backing, offset, length, exact);
	if (!error && request->pages == ACTMEM_PAGES_THP)
		error = verify_thp(backing);
	return error;
}

void memfd_release(struct backing *backing)
{
	munmap(backing->address, backing->length);
	close(backing->fd);
}

int memfd_identify(struct backing *backing)
{
	struct stat stat;

	if (fstat(backing->fd, &stat))
		return fail(errno, "cannot identify a memfd (fstat: %s)", strerror(errno));
	backing->id = stat.st_ino;
	backing->device = stat.st_dev;
	return 0;
}

int memfd_allocated(const struct backing *backing, uint64_t *bytes)
{
	struct stat stat;

	if (fstat(backing->fd, &stat))
		return fail(errno, "cannot ask for the pages of a memfd (fstat: %s)",
			    strerror(errno));
	*bytes = (uint64_t)stat.st_blocks * 512;
	return 0;
}

/* One try, with the pages and the policy of the request or none. */
static int try_create(const struct region_request *request, struct backing *backing)
{
	int error;

	*backing = (struct backing){
		.length = request->length,
		.pages = request->pages,
		.page_bytes = pages_bytes(request->pages),
		.policy = request->policy,
		.nodes = request->nodes,
		.inherit = request->inherit,
	};
	memcpy(backing->name, request->name, sizeof(backing->name));

	error = request->pages == ACTMEM_PAGES_THP && !request->path ? check_thp_mode() : 0;
	if (!error && !pages_are_hugetlb(request->pages) && !request->lazy)
		error = pages_check_room(request);
	if (!error)
		error = make_file(request, &backing->fd);
	if (error)
		return error;
	error = map_region(backing);
	if (error) {
		/* Mapping reserves hugetlb pages. */
		if (error == -ENOMEM && pages_are_hugetlb(request->pages))
			error = pages_fail_hugetlb(request);
		close(backing->fd);
		return error;
	}
	error = memfd_identify(backing);
	if (!error)
		error = memfd_advise(request, backing);
	if (!error)
		error = memfd_lock(backing, request->allow);
	if (!error)
		error = pages_bind(request, backing);
	if (!error && !request->lazy)
		error = make_pages(request, backing, 0, backing->length, true);
	if (error)
		memfd_release(backing);
	return error;
}

/*
 * The kernel takes a moment, after a process has ended, to let go of what io_uring had
 * pinned of it. A process restarted at once would find its pages missing.
 */
static int create(const struct region_request *request, struct backing *backing)
{
	int error = try_create(request, backing);

	while (error == -ENOMEM && pages_are_hugetlb(request->pages) &&
	       !steps_are_left(request) && pages_came_back(request))
		error = try_create(request, backing);
	return error;
}

int memfd_make(int device, const struct region_request *request, struct backing *backing)
{
	int error = nodes_check(&request->nodes);

	return error ? error : steps_make(create, request, backing);
}

/* The options that the region was made with, as far as they are known. */
static struct region_request request_of(const struct backing *backing, uint64_t length)
{
	return (struct region_request){
		.length = length,
		.pages = backing->pages,
		.policy = backing->policy,
		.nodes = backing->nodes,
	};
}

static int memfd_populate(const struct backing *backing, uint64_t offset, uint64_t length)
{
	struct region_request request = request_of(backing, length);
	int error = 0;

	if (!pages_are_hugetlb(backing->pages)) {
		request.length = pages_missing(backing, offset, length);
		error = pages_check_room(&request);
		request.length = length;
	}
	return error ? error : make_pages(&request, backing, offset, length, false);
}

static int memfd_discard(const struct backing *backing, uint64_t offset, uint64_t length)
{
	while (fallocate(backing->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)offset, (off_t)length)) {
		if (errno != EINTR)
			return fail(errno, "cannot discard %s of %s (fallocate: %s)",
				    BYTES_TEXT(length), page_names[backing->pages],
				    strerror(errno));
	}
	return 0;
}

/* It is mapped from the beginning to the end. */
static int memfd_map(struct backing *backing)
{
	return 0;
}

static void memfd_unmap(struct backing *backing)
{
}

static int memfd_info(const struct backing *backing, struct actmem_region_info *info)
{
	unsigned int node;
	int error = memfd_allocated(backing, &info->allocated_bytes);

	if (error)
		return error;
	info->page_bytes = backing->page_bytes;
	info->pages = backing->pages;
	info->pinned_bytes = backing->locked_bytes < info->allocated_bytes ?
			     backing->locked_bytes : info->allocated_bytes;
	info->uid = getuid();
	info->pid = getpid();
	error = pages_count_present(backing, info->node_bytes);
	/* A machine of one node need not tell which pages are missing. */
	if (!error && node_is_only_one(&node) && info->node_bytes[node] > info->allocated_bytes)
		info->node_bytes[node] = info->allocated_bytes;
	return error;
}

/* udmabuf would make one, of pages that neither CUDA nor VFIO can pin by its mapping. */
static int memfd_export(const struct backing *backing, uint64_t offset, uint64_t length, int *fd)
{
	return fail(EOPNOTSUPP, "regions of the memfd backend are no dma-bufs; use the driver (as root `modprobe actmem`), or give the device the region's memory by address");
}

const struct backend backend_memfd = {
	.kind = ACTMEM_BACKEND_MEMFD,
	.name = "memfd",
	.open = memfd_open,
	.create = memfd_make,
	.open_name = memfd_open_name,
	.adopt = memfd_adopt,
	.map = memfd_map,
	.unmap = memfd_unmap,
	/* Where a page goes is the mapping's policy while it is allocated. */
	.in_turn = true,
	.populate = memfd_populate,
	.discard = memfd_discard,
	.export = memfd_export,
	.info = memfd_info,
	.release = memfd_release,
	.list = processes_list,
};
