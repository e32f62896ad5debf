/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Allocates the pages of a memfd on their nodes and verifies where they are. Writes the error
 * message if there are too few pages.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/memfd/pages.h"

/*
 * A process waits for pages that other processes free, in naps of NAP_NS. In all calls together,
 * the process takes at most NAPS_MAX naps. The limit is a count and not a time, so a process that
 * the scheduler delays makes as many checks for pages as any other process.
 */
#define NAP_NS		10000000
#define NAPS_MAX	200

/* A memory cgroup must have this many bytes left for other allocations of the kernel. */
#define SPARE_BYTES	(1 << 20)

const char *const page_names[] = {
	[ACTMEM_PAGES_2M] = "2 MiB hugetlb pages",
	[ACTMEM_PAGES_THP] = "transparent huge pages",
	[ACTMEM_PAGES_4K] = "4 KiB pages",
	[ACTMEM_PAGES_1G] = "1 GiB hugetlb pages",
};

#ifndef SYS_set_mempolicy_home_node
#define SYS_set_mempolicy_home_node	450
#endif

/* Returns the nodes that the pages may come from under the request's policy. */
static struct actmem_nodes source_nodes(const struct region_request *request)
{
	struct actmem_nodes nodes = request->nodes;

	if (request->policy == ACTMEM_PLACE_PREFERRED || nodes_empty(&nodes))
		nodes_allowed(&nodes);
	return nodes;
}

static const char *has_or_have(const struct actmem_nodes *nodes)
{
	return nodes_count(nodes) == 1 ? "has" : "have";
}

int pages_fail_hugetlb(const struct region_request *request)
{
	struct actmem_nodes nodes = source_nodes(request);
	bool giant = request->pages == ACTMEM_PAGES_1G;
	uint64_t page_bytes = pages_bytes(request->pages);
	uint64_t available = nodes_free_hugetlb_bytes(&nodes, page_bytes);
	uint64_t pages = (request->length + page_bytes - 1) / page_bytes;
	unsigned int node = nodes_next(&nodes, 0);
	struct cgroup_limit limit;

	if (hugetlb_limit_read(&limit, page_bytes, "/proc/self/cgroup", "/proc/self/mounts") &&
	    limit.available_bytes < request->length)
		return fail(ENOMEM, "the hugetlb cgroup has %s left, but %s are needed in %s; raise %s, or allow other pages with %s",
			    BYTES_TEXT(limit.available_bytes), BYTES_TEXT(request->length),
			    page_names[request->pages], limit.file,
			    giant ? KNOB(ALLOW_2M) : KNOB(ALLOW_THP_4K));
	if (available >= request->length)
		return fail(ENOMEM, "%s are needed in %s; %s %s %s free, but other processes have reserved them",
			    BYTES_TEXT(request->length), page_names[request->pages],
			    NODES_TEXT(&nodes), has_or_have(&nodes), BYTES_TEXT(available));
	pages -= available / page_bytes;
	fail(ENOMEM, "%s %s %s free, but %s are needed in %s; as root add %llu to /sys/devices/system/node/node%u/hugepages/hugepages-%llukB/nr_hugepages",
	     NODES_TEXT(&nodes), has_or_have(&nodes), BYTES_TEXT(available), BYTES_TEXT(request->length),
	     page_names[request->pages], (unsigned long long)pages, node,
	     (unsigned long long)page_bytes / 1024);
	if (giant)
		fail_more(" (if its memory is no longer in one piece, boot with hugepagesz=1G hugepages=%llu)",
			  (unsigned long long)pages);
	fail_more(", or allow other pages with %s",
		  giant ? KNOB(ALLOW_2M) : KNOB(ALLOW_THP_4K));
	if (nodes_all_hugetlb_bytes(&nodes, page_bytes) >= request->length)
		fail_more("; `actmem list` shows which processes use the other pages");
	return -ENOMEM;
}

/* Returns true if too few pages are free, but the nodes have enough pages in total. */
static bool is_short(const struct region_request *request, const struct actmem_nodes *nodes)
{
	uint64_t page_bytes = pages_bytes(request->pages);

	return nodes_free_hugetlb_bytes(nodes, page_bytes) < request->length &&
	       nodes_all_hugetlb_bytes(nodes, page_bytes) >= request->length;
}

bool pages_came_back(const struct region_request *request)
{
	static _Atomic unsigned int naps_left = NAPS_MAX;
	const struct timespec nap = { .tv_nsec = NAP_NS };
	struct actmem_nodes nodes = source_nodes(request);
	unsigned int left = naps_left;
	bool came = false;

	while (left && !came && is_short(request, &nodes)) {
		if (!atomic_compare_exchange_weak(&naps_left, &left, left - 1))
			continue;
		nanosleep(&nap, NULL);
		left = naps_left;
		came = !is_short(request, &nodes);
	}
	return came;
}

int pages_check_room(const struct region_request *request)
{
	struct actmem_nodes nodes = source_nodes(request);
	uint64_t available = nodes_available_bytes(&nodes);
	/* With 4 KiB pages, the page tables and the file's index add 1/240 of the length. */
	const uint64_t spare = request->length / 128 + SPARE_BYTES;
	char knob[CGROUP_FILE_MAX];

	if (request->policy == ACTMEM_PLACE_INTERLEAVE) {
		uint64_t share = request->length / nodes_count(&nodes);
		unsigned int node;

		for_each_node(node, &nodes) {
			struct actmem_nodes one = { { 0 } };

			node_set(&one, node);
			available = nodes_available_bytes(&one);
			if (available < share)
				return fail(ENOMEM, "node %u has %s free, but interleaving needs %s; free memory there, use other nodes with %s, or allow other nodes with %s",
					    node, BYTES_TEXT(available), BYTES_TEXT(share),
					    KNOB(NODES), KNOB(ALLOW_NODE));
		}
	} else if (available < request->length) {
		fail(ENOMEM, "%s %s %s free, but %s are needed; free memory there", NODES_TEXT(&nodes),
		     has_or_have(&nodes), BYTES_TEXT(available), BYTES_TEXT(request->length));
		if (request->policy == ACTMEM_PLACE_BIND)
			fail_more(" or allow other nodes with %s", KNOB(ALLOW_NODE));
		return -ENOMEM;
	}
	available = memory_cgroup_available(knob);
	if (available < request->length || available - request->length < spare)
		return fail(ENOMEM, "the memory cgroup has %s left, but %s are needed, and %s for page tables; raise %s",
			    BYTES_TEXT(available), BYTES_TEXT(request->length),
			    BYTES_TEXT(spare), knob);
	return 0;
}

/* Sets the policy for missing pages of the range. */
static int bind_range(const struct backing *backing, uint64_t offset, uint64_t length, int mode,
		      const struct actmem_nodes *nodes)
{
	char what[NODES_TEXT_MAX + 32];
	unsigned int node;

	if (!syscall(SYS_mbind, (char *)backing->address + offset, (unsigned long)length, mode,
		     nodes->word, (unsigned long)ACTMEM_NODES_MAX + 1, 0))
		return 0;
	/* A machine with one node needs no policy, so ignore that mbind() is forbidden. */
	if ((errno == EPERM || errno == ENOSYS) && node_is_only_one(&node))
		return 0;
	snprintf(what, sizeof(what), "cannot bind memory to %s", NODES_TEXT(nodes));
	return fail_numa_call(what, "mbind");
}

/* Allocates the missing pages of a range. Returns 0 or a positive errno. */
static int allocate_pages(const void *context, uint64_t offset, uint64_t length)
{
	const struct backing *backing = context;

	while (madvise((char *)backing->address + offset, length, MADV_POPULATE_WRITE)) {
		if (errno != EINTR && errno != EAGAIN)
			return errno;
	}
	return 0;
}

static int populate_pages(const struct region_request *request, const struct backing *backing,
			  uint64_t offset, uint64_t length)
{
	struct helpers helpers = { .help = allocate_pages, .context = backing };
	int error;

	helpers_begin(&helpers, offset, length, backing->page_bytes);
	error = allocate_pages(backing, offset, length);
	helpers_end(&helpers);
	if (!error)
		return 0;
	/* EFAULT: an access would have raised SIGBUS, because no page is available. */
	if (pages_are_hugetlb(request->pages) && (error == EFAULT || error == ENOMEM))
		return pages_fail_hugetlb(request);
	return fail(error == EFAULT ? ENOMEM : error, "cannot populate %s of %s (madvise: %s)",
		    BYTES_TEXT(length), page_names[request->pages], strerror(error));
}

/*
 * Makes the kernel prefer the nodes nearest to @home. Kernels before Linux 5.17 lack this system
 * call, and prefer the nodes nearest to the caller's CPU.
 */
static void prefer_home(const struct region_request *request, const struct backing *backing)
{
	if (request->policy == ACTMEM_PLACE_BIND && request->has_home)
		syscall(SYS_set_mempolicy_home_node, (unsigned long)backing->address,
			(unsigned long)backing->length, (unsigned long)request->home, 0UL);
}

int pages_bind(const struct region_request *request, struct backing *backing)
{
	struct actmem_nodes nodes = request->nodes;
	int mode = MPOL_PREFERRED, error;

	if (request->policy == ACTMEM_PLACE_INTERLEAVE) {
		nodes = source_nodes(request);
		mode = MPOL_INTERLEAVE;
	} else if (request->policy == ACTMEM_PLACE_BIND) {
		mode = MPOL_BIND;
	} else if (nodes_empty(&nodes)) {
		node_set(&nodes, node_of_caller());
	}
	error = bind_range(backing, 0, backing->length, mode, &nodes);
	if (!error)
		prefer_home(request, backing);
	if ((error == -EPERM || error == -ENOSYS) && request->any_place &&
	    request->allow & ACTMEM_ALLOW_NODE) {
		fail_more("; the kernel chose the nodes");
		backing->unplaced = true;
		backing->policy = ACTMEM_PLACE_DEFAULT;
		backing->fallbacks++;
		error = 0;
	}
	return error;
}

/*
 * Allocates page i on the (i mod n)-th node. MPOL_INTERLEAVE alone would start at a node that
 * depends on the inode. Therefore, the function binds the range to each node in turn, and sets
 * MPOL_INTERLEAVE only at the end, for pages that are allocated later.
 */
static int interleave_pages(const struct region_request *request, const struct backing *backing,
			    uint64_t offset, uint64_t length)
{
	struct actmem_nodes nodes = source_nodes(request);
	uint64_t stride = backing->page_bytes * nodes_count(&nodes);
	uint64_t first = 0, at;
	int error = 0, restored;
	unsigned int node;

	for_each_node(node, &nodes) {
		struct actmem_nodes one = { { 0 } };

		if (error)
			break;
		node_set(&one, node);
		error = bind_range(backing, offset, length, MPOL_BIND, &one);
		/* The first page of the range that belongs on this node. */
		at = offset - offset % stride + first;
		if (at < offset)
			at += stride;
		for (; !error && at < offset + length; at += stride)
			error = populate_pages(request, backing, at, backing->page_bytes);
		first += backing->page_bytes;
	}
	restored = bind_range(backing, offset, length, MPOL_INTERLEAVE, &nodes);
	return error ? error : restored;
}

int pages_place(const struct region_request *request, const struct backing *backing,
		uint64_t offset, uint64_t length)
{
	if (request->policy == ACTMEM_PLACE_INTERLEAVE)
		return interleave_pages(request, backing, offset, length);
	return populate_pages(request, backing, offset, length);
}

struct placement {
	const struct region_request *request;
	struct actmem_nodes nodes;
	unsigned int order[ACTMEM_NODES_MAX];
	unsigned int count;
	uint64_t first;			/* number of the first page that is checked */
	bool locked;
	bool exact;
};

static int verify_page(void *context, uint64_t page, int node)
{
	struct placement *placement = context;
	bool right = true;

	page += placement->first;
	/* A page that is not locked may have been swapped out already. */
	if (node == -ENOENT && !placement->locked)
		return 0;
	if (node < 0)
		return fail(EIO, "page %llu has no node (move_pages: %s)",
			    (unsigned long long)page, strerror(-node));
	if (placement->request->policy == ACTMEM_PLACE_INTERLEAVE && placement->exact)
		right = (unsigned int)node == placement->order[page % placement->count];
	else if (placement->request->policy == ACTMEM_PLACE_BIND ||
		 placement->request->policy == ACTMEM_PLACE_INTERLEAVE)
		right = node < ACTMEM_NODES_MAX &&
			node_is_set(&placement->nodes, (unsigned int)node);
	return right ? 0 : fail(EIO, "page %llu is on node %d, not on %s as requested",
				(unsigned long long)page, node, NODES_TEXT(&placement->nodes));
}

int pages_verify(const struct region_request *request, const struct backing *backing,
		 uint64_t offset, uint64_t length, bool exact)
{
	struct placement placement = {
		.request = request,
		.nodes = source_nodes(request),
		.first = offset / backing->page_bytes,
		.locked = backing->locked_bytes,
		.exact = exact,
	};
	unsigned int node;

	/*
	 * If mbind() was forbidden (@unplaced), check nothing: a container that forbids mbind()
	 * also forbids move_pages().
	 */
	if (backing->unplaced)
		return 0;
	for_each_node(node, &placement.nodes)
		placement.order[placement.count++] = node;
	return pages_walk((char *)backing->address + offset, length, backing->page_bytes,
			  verify_page, &placement);
}

bool pages_next_present(const struct backing *backing, off_t end, off_t *at, off_t *behind)
{
	/* ENXIO: no page is allocated up to the end of the file. */
	*at = lseek(backing->fd, *at, SEEK_DATA);
	if (*at < 0 || *at >= end)
		return false;
	*behind = lseek(backing->fd, *at, SEEK_HOLE);
	if (*behind < 0 || *behind > end)
		*behind = end;
	return *behind > *at;
}

uint64_t pages_missing(const struct backing *backing, uint64_t offset, uint64_t length)
{
	off_t at = (off_t)offset, end = (off_t)(offset + length), behind;
	uint64_t missing = length;

	for (; pages_next_present(backing, end, &at, &behind); at = behind)
		missing -= (uint64_t)(behind - at);
	return missing;
}

/* Counts only allocated pages: a region may be much longer than its allocated part. */
int pages_count_present(const struct backing *backing, uint64_t node_bytes[ACTMEM_NODES_MAX])
{
	off_t page = (off_t)backing->page_bytes, end = (off_t)backing->length, at = 0, behind;
	int error = 0;

	if (pages_are_hugetlb(backing->pages))
		return pages_count(backing->address, backing->length, backing->page_bytes,
				   node_bytes);
	for (; !error && at < end && pages_next_present(backing, end, &at, &behind); at = behind) {
		at -= at % page;
		behind = (behind + page - 1) / page * page;
		if (behind > end)
			behind = end;
		error = pages_count((char *)backing->address + at, (uint64_t)(behind - at),
				    backing->page_bytes, node_bytes);
	}
	return error;
}
