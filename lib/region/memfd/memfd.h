/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Things that regions in shared memory have in common, whether they are memfds or files
 * of hugetlbfs and tmpfs. Functions that can fail return 0 or -errno with words.
 */
#ifndef LIB_REGION_MEMFD_MEMFD_H
#define LIB_REGION_MEMFD_MEMFD_H

#include <fcntl.h>
#include <stdbool.h>
#include <sys/vfs.h>

#include "region/backend.h"

/* Attributes that a region's memfd bears; files with names can bear none. */
#define MEMFD_SEALS	(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)

/* file.c: files that are there. */

/* Sets @id and @device. */
int memfd_identify(struct backing *backing);

/*
 * Takes the pages that the file system has; false if they are not of a known size, or the
 * length of @backing is no multiple of theirs.
 */
bool memfd_take_pages(struct backing *backing, const struct statfs *files);

int memfd_allocated(const struct backing *backing, uint64_t *bytes);

/* Pins the pages of the mapping, those to come included, as far as @allow wants. */
int memfd_lock(struct backing *backing, uint32_t allow);

/* Tells the kernel whether pages that are made become huge ones. */
int memfd_advise(const struct region_request *request, const struct backing *backing);

void memfd_release(struct backing *backing);

/* nameless.c: files that are to have a name. */

/* A file without a name in the directory of the request's path, of no length yet. */
int nameless_make(const struct region_request *request, int *fd);

/* Checks that a hugetlbfs with pages of @page_bytes has those that are wanted. */
int nameless_check_hugetlbfs(const struct region_request *request, uint64_t page_bytes);

/* make.c: new regions. */

/* struct backend's create(): of a request with a path, a file that has no name yet. */
int memfd_make(int device, const struct region_request *request, struct backing *backing);

/* Makes all pages, or those of a range of a region that has been made already. */
int memfd_make_pages(const struct region_request *request, const struct backing *backing,
		     uint64_t offset, uint64_t length, bool exact);

/* named.c: files that have a name. */

/* See struct backend. */
int memfd_open_name(const struct region_request *request, struct backing *backing);

/* Reads the state of a named region's descriptor that came from elsewhere, or closes it. */
int named_receive(uint32_t allow, struct backing *backing);

/* receive.c: see struct backend. */
int memfd_adopt(int device, int fd, uint32_t allow, struct backing *backing);

#endif /* LIB_REGION_MEMFD_MEMFD_H */
