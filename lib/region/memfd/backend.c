/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The backend that needs neither a module nor root. Its regions are shared memory. mbind(2) places
 * the memory, mlock(2) pins it, and seals keep other processes from shrinking it.
 *
 * Each region stays mapped from its creation until it is closed, because unmapping would unlock its
 * pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/backend.h"
#include "region/memfd/memfd.h"
#include "region/memfd/pages.h"
#include "watch/watch.h"

static int memfd_open(int *device)
{
	*device = -1;
	return 0;
}

/* Returns a request for @length bytes with the pages and the placement of an existing region. */
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
	return error ? error : memfd_make_pages(&request, backing, offset, length, false);
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

/* Does nothing: a region of this backend stays mapped until it is closed. */
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
	if (!info->node_bytes || backing->unplaced)
		return 0;
	error = pages_count_present(backing, info->node_bytes);
	/* On a machine with one node, pages_count_present() may also count missing pages. */
	if (!error && node_is_only_one(&node) && info->node_bytes[node] > info->allocated_bytes)
		info->node_bytes[node] = info->allocated_bytes;
	return error;
}

/*
 * Always fails. A dma-buf that udmabuf makes of a memfd would not help, because neither CUDA nor
 * VFIO can pin the pages of such a dma-buf through its mapping.
 */
static int memfd_export(const struct backing *backing, uint64_t offset, uint64_t length, int *fd)
{
	return fail(EOPNOTSUPP, "regions of the memfd backend cannot become dma-bufs; use the driver (as root `modprobe actmem`), or give the device the region's memory by address");
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
	/*
	 * Serialize calls: populating may change the mapping's policy for a moment; see
	 * pages_place().
	 */
	.in_turn = true,
	.populate = memfd_populate,
	.discard = memfd_discard,
	.export = memfd_export,
	.info = memfd_info,
	.release = memfd_release,
	.list = processes_list,
};
