/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Allocates the pages of a memfd on their nodes and verifies where they are. Functions that can
 * fail return 0, or -errno with an error message.
 */
#ifndef LIB_REGION_MEMFD_PAGES_H
#define LIB_REGION_MEMFD_PAGES_H

#include "region/backend.h"

/* Names such as "4 KiB pages", indexed by enum actmem_pages. */
extern const char *const page_names[];

/* Returns -ENOMEM, with an error message that says why there are too few hugetlb pages. */
int pages_fail_hugetlb(const struct region_request *request);

/*
 * Waits while too few hugetlb pages are free for the request, but enough exist in total. All calls
 * of a process together wait for at most two seconds. Returns true if it waited and enough pages
 * are free now.
 */
bool pages_came_back(const struct region_request *request);

/*
 * Checks that enough memory is available for a request that does not want hugetlb pages. A page
 * fault that finds no memory on the bound nodes or in the memory cgroup does not fail: it invokes
 * the OOM killer. The library therefore checks before it allocates.
 */
int pages_check_room(const struct region_request *request);

/*
 * Sets the memory policy of the mapping. Page faults also follow this policy, but with
 * interleaving, the kernel chooses which of the nodes gets the first page. mbind() may be forbidden
 * on a machine with several nodes. The call then succeeds only if the request sets no policy and no
 * nodes, and permits other nodes. The kernel then chooses the nodes, which counts as a fallback.
 */
int pages_bind(const struct region_request *request, struct backing *backing);

/*
 * Allocates the missing pages of a range as the policy says. Returns an error instead of raising
 * SIGBUS. The caller serializes calls for the same backing.
 */
int pages_place(const struct region_request *request, const struct backing *backing,
		uint64_t offset, uint64_t length);

/*
 * Returns -EIO if a page of the range is not on a node that the request wants. If @exact is true,
 * also returns -EIO if an interleaved page is not on the node that pages_place() chooses.
 */
int pages_verify(const struct region_request *request, const struct backing *backing,
		 uint64_t offset, uint64_t length, bool exact);

/*
 * Finds the next run of allocated pages of a tmpfs file between *@at and @end. Sets *@at and
 * *@behind to the start and the end of the run. Returns false if there is no such run. Other
 * processes may allocate or discard pages meanwhile.
 */
bool pages_next_present(const struct backing *backing, off_t end, off_t *at, off_t *behind);

/* Returns how many bytes of a range of a tmpfs file have no pages. */
uint64_t pages_missing(const struct backing *backing, uint64_t offset, uint64_t length);

/* Adds the bytes of the backing's pages on each node to @node_bytes. */
int pages_count_present(const struct backing *backing, uint64_t node_bytes[ACTMEM_NODES_MAX]);

#endif /* LIB_REGION_MEMFD_PAGES_H */
