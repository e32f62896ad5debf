/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Functions for regions in shared memory, which are memfds, or files on hugetlbfs or tmpfs.
 * Functions that can fail return 0, or -errno with an error message.
 */
#ifndef LIB_REGION_MEMFD_MEMFD_H
#define LIB_REGION_MEMFD_MEMFD_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/vfs.h>

#include "region/backend.h"

/* The seals of a region's memfd. Files with names cannot be sealed. */
#define MEMFD_SEALS	(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

/* file.c: existing files. */

/* Sets @id and @device of the backing. */
int memfd_identify(struct backing *backing);

/*
 * Sets the kind and the size of @backing's pages from the file system @files. Returns false if the
 * page size is unknown, or if the length of @backing is 0 or not a multiple of the page size.
 */
bool memfd_take_pages(struct backing *backing, const struct statfs *files);

int memfd_allocated(const struct backing *backing, uint64_t *bytes);

/*
 * Locks the pages of the mapping, including pages that are allocated later. If the kernel refuses
 * to lock the pages, and @allow permits unlocked memory, counts a fallback and returns 0.
 */
int memfd_lock(struct backing *backing, uint32_t allow);

/* Advises the kernel whether to allocate huge pages for the mapping. */
int memfd_advise(const struct region_request *request, const struct backing *backing);

void memfd_release(struct backing *backing);

/* Unmaps a region that is not complete, and closes its descriptor. */
void memfd_drop(const struct region_request *request, struct backing *backing);

/* nameless.c: files that have no name yet. */

/* Creates a file without a name, of length 0, in the directory of the request's path. */
int nameless_make(const struct region_request *request, int *fd);

/* Checks that the request wants hugetlb pages of @page_bytes, the page size of a hugetlbfs. */
int nameless_check_hugetlbfs(const struct region_request *request, uint64_t page_bytes);

/* make.c: new regions. */

/* See create() in struct backend. If the request has a path, creates a file without a name. */
int memfd_make(int device, const struct region_request *request, struct backing *backing);

/* Populates a range and verifies its pages. @exact: see pages_verify(). */
int memfd_make_pages(const struct region_request *request, const struct backing *backing,
		     uint64_t offset, uint64_t length, bool exact);

/* named.c: files that have a name. */

/* See struct backend. */
int memfd_open_name(const struct region_request *request, struct backing *backing);

/* Maps a received named region, and completes @backing. On failure, closes @backing->fd. */
int named_receive(const struct region_request *request, struct backing *backing);

/* receive.c: see struct backend. */
int memfd_adopt(int device, int fd, const struct region_request *request,
		struct backing *backing);

#endif /* LIB_REGION_MEMFD_MEMFD_H */
