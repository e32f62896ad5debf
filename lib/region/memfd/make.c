/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Creates regions in shared memory: a memfd of hugetlb pages, of transparent huge pages or of
 * base pages, or a file without a name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/map.h"
#include "region/memfd/memfd.h"
#include "region/memfd/pages.h"
#include "region/memfd/steps.h"
#include "watch/watch.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB	(21U << 26)
#endif
#ifndef MFD_HUGE_1GB
#define MFD_HUGE_1GB	(30U << 26)
#endif

#define SHMEM_ENABLED	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"

/* Creates a memfd, whose length is 0. */
static int create_memfd(const struct region_request *request, int *fd)
{
	bool giant = request->pages == ACTMEM_PAGES_1G;
	bool hugetlb = pages_are_hugetlb(request->pages);
	char label[sizeof(REGION_LABEL) + ACTMEM_NAME_MAX];

	snprintf(label, sizeof(label), REGION_LABEL "%s", request->name);
	*fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING |
			   (giant ? MFD_HUGETLB | MFD_HUGE_1GB : 0) |
			   (hugetlb && !giant ? MFD_HUGETLB | MFD_HUGE_2MB : 0));
	if (*fd < 0 && hugetlb && (errno == EINVAL || errno == ENODEV || errno == EOPNOTSUPP))
		return fail(EOPNOTSUPP, "this %s has no %s; allow other pages with %s",
			    giant ? "processor or kernel" : "kernel", page_names[request->pages],
			    giant ? KNOB(ALLOW_2M) : KNOB(ALLOW_THP_4K));
	if (*fd < 0)
		return fail(errno, "cannot make a memfd (memfd_create: %s)", strerror(errno));
	request_tell_fd(request, *fd);
	return 0;
}

static int create_file(const struct region_request *request, int *fd)
{
	struct rlimit limit;
	int error;

	/* ftruncate beyond this limit would raise SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur < request->length)
		return fail(EFBIG, "%s are needed, but RLIMIT_FSIZE is %s; raise it with `ulimit -f`",
			    BYTES_TEXT(request->length), BYTES_TEXT(limit.rlim_cur));
	error = request->path ? nameless_make(request, fd) : create_memfd(request, fd);
	if (error)
		return error;
	/* Only memfds can be sealed. */
	if (ftruncate(*fd, (off_t)request->length) ||
	    (!request->path && fcntl(*fd, F_ADD_SEALS, MEMFD_SEALS))) {
		error = fail(errno, "cannot size a %s to %s (%s)",
			     request->path ? "file" : "memfd", BYTES_TEXT(request->length),
			     strerror(errno));
		request_close_fd(request, *fd);
		return error;
	}
	return 0;
}

/* Fails early if the kernel's mode for shared memory rules out transparent huge pages. */
static int check_thp_mode(void)
{
	char mode[32];

	if (sysfile_choice(mode, sizeof(mode), SHMEM_ENABLED))
		return fail(EOPNOTSUPP, "this kernel has no transparent huge pages of shared memory (" SHMEM_ENABLED "); allow 4 KiB pages with %s",
			    KNOB(ALLOW_4K));
	if (!strcmp(mode, "never") || !strcmp(mode, "deny"))
		return fail(EOPNOTSUPP, "no transparent huge pages of shared memory: " SHMEM_ENABLED " is '%s'; as root write 'advise' to it, or allow 4 KiB pages with %s",
			    mode, KNOB(ALLOW_4K));
	return 0;
}

/* Checks that all mapped pages are huge. */
static int verify_thp(const struct backing *backing)
{
	uint64_t mapped, huge;
	int error = smaps_count(backing->address, backing->length, &mapped, &huge);

	if (error || huge == mapped)
		return error;
	return fail(ENOMEM, "only %s of %s became transparent huge pages, because memory is fragmented; as root write 1 to /proc/sys/vm/compact_memory, or allow 4 KiB pages with %s",
		    BYTES_TEXT(huge), BYTES_TEXT(mapped), KNOB(ALLOW_4K));
}

int memfd_make_pages(const struct region_request *request, const struct backing *backing,
		     uint64_t offset, uint64_t length, bool exact)
{
	int error = pages_place(request, backing, offset, length);

	if (!error)
		error = pages_verify(request, backing, offset, length, exact);
	if (!error && request->pages == ACTMEM_PAGES_THP)
		error = verify_thp(backing);
	return error;
}

/* Tries once to create the region, without fallbacks to other pages or nodes. */
static int create_memory(const struct region_request *request, struct backing *backing)
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
		error = create_file(request, &backing->fd);
	if (error)
		return error;
	error = map_region(backing);
	if (error) {
		/* mmap() reserves hugetlb pages, and fails if too few are free. */
		if (error == -ENOMEM && pages_are_hugetlb(request->pages))
			error = pages_fail_hugetlb(request);
		request_close_fd(request, backing->fd);
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
		error = memfd_make_pages(request, backing, 0, backing->length, true);
	if (error)
		memfd_drop(request, backing);
	return error;
}

/*
 * Creates a region. If hugetlb pages are missing and no fallback is left, waits for other processes
 * to free pages, and retries. After a process has ended, the kernel takes a moment to unpin the
 * pages that the process registered with io_uring. Without the retries, a process that is restarted
 * at once would not get these pages.
 */
static int create_with_retries(const struct region_request *request, struct backing *backing)
{
	int error = create_memory(request, backing);

	while (error == -ENOMEM && pages_are_hugetlb(request->pages) &&
	       !steps_are_left(request) && pages_came_back(request))
		error = create_memory(request, backing);
	return error;
}

int memfd_make(int device, const struct region_request *request, struct backing *backing)
{
	int error = nodes_check(&request->nodes);

	return error ? error : steps_make(create_with_retries, request, backing);
}
