/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Puts the pages of a memfd on their nodes and looks where they are. What can
 * fail returns 0 or -errno with words.
 */
#ifndef LIB_MEMFD_PAGES_H
#define LIB_MEMFD_PAGES_H

#include "backend.h"

/* "4 KiB pages", by enum actmem_pages. */
extern const char *const page_names[];

/* -ENOMEM with the words that there are too few hugetlb pages. */
int pages_fail_hugetlb(const struct region_request *request);

/*
 * Whether there is room for pages that are not hugetlb. A page fault that
 * finds none on the bound nodes or in the memory cgroup does not fail: it
 * wakes the OOM killer. So what is there is asked before.
 */
int pages_check_room(const struct region_request *request);

/* Allocates all pages of the mapping where the policy wants them. */
int pages_place(const struct region_request *request, const struct backing *backing);

/* Maps pages, made where the policy has them; an error, never a SIGBUS. */
int pages_populate(const struct region_request *request, char *address, uint64_t length);

/* -EIO if a page is not where the request wants it. */
int pages_verify(const struct region_request *request, const struct backing *backing);

#endif /* LIB_MEMFD_PAGES_H */
