/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Puts the pages of a memfd on their nodes and looks where they are. Functions that
 * can fail return 0 or -errno with words.
 */
#ifndef LIB_REGION_MEMFD_PAGES_H
#define LIB_REGION_MEMFD_PAGES_H

#include "region/backend.h"

/* "4 KiB pages", by enum actmem_pages. */
extern const char *const page_names[];

/* -ENOMEM with the words that there are too few hugetlb pages of the request's size. */
int pages_fail_hugetlb(const struct region_request *request);

/*
 * Waits while there are too few hugetlb pages for the request and others have enough, up to
 * two seconds of a process in all. True: there are enough, as pages have come back.
 */
bool pages_came_back(const struct region_request *request);

/*
 * Checks that there is room for the request's length in pages that are not hugetlb. A page
 * fault that finds none on the bound nodes or in the memory cgroup does not fail: it
 * wakes the OOM killer. So what is there is asked before.
 */
int pages_check_room(const struct region_request *request);

/*
 * Settles where pages come from, those that a touch allocates too: all of them,
 * but that the kernel's interleaving need not begin with the first node.
 */
int pages_bind(const struct region_request *request, const struct backing *backing);

/*
 * Allocates the pages of a range that are missing where the policy wants them;
 * an error, never a SIGBUS. Nobody else may do so to the same backing.
 */
int pages_place(const struct region_request *request, const struct backing *backing,
		uint64_t offset, uint64_t length);

/*
 * -EIO if a page of the range is not where the request wants it. @exact: also
 * if it is interleaved in another order.
 */
int pages_verify(const struct region_request *request, const struct backing *backing,
		 uint64_t offset, uint64_t length, bool exact);

/* Bytes of a range for which there is no page; hugetlb's do not tell, and count as there. */
uint64_t pages_missing(const struct backing *backing, uint64_t offset, uint64_t length);

/* Adds the bytes of its pages on each node to @node_bytes. */
int pages_count_present(const struct backing *backing, uint64_t node_bytes[ACTMEM_NODES_MAX]);

#endif /* LIB_REGION_MEMFD_PAGES_H */
