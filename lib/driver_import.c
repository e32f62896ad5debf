/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory that others made, as regions of the driver; and those of 1 GiB pages,
 * which the driver has none of: they are hugetlb's, placed as the memfd backend
 * does and then imported.
 */
#include <errno.h>
#include <string.h>

#include "driver.h"
#include "error.h"
#include "memfd.h"
#include "steps.h"
#include "why.h"

static int fail_import(int error, const struct actmem_ioctl_import *import)
{
	if (why_tell(error, &import->why, -1, false))
		return -error;
	if (error == ENOTTY)
		return fail(EOPNOTSUPP, "this driver imports no memory; upgrade the module");
	if (error == EBADF)
		return fail(EBADF, "descriptor %d is not open for reading and writing",
			    import->memory_fd);
	if (error == EINVAL)
		return fail(EINVAL, "%llu bytes at %llu cannot be imported: they must be whole pages of hugetlb, 2 MiB at least, and no longer than regions can be",
			    (unsigned long long)import->length,
			    (unsigned long long)import->offset);
	return fail(error, "the driver cannot import %s (%s)", BYTES_TEXT(import->length),
		    strerror(error));
}

static int import(int device, const struct memory_request *memory, bool inherit,
		  struct backing *backing)
{
	struct actmem_ioctl_import import = {
		.size = sizeof(import),
		.flags = inherit ? ACTMEM_CREATE_INHERIT : 0,
		.memory_fd = memory->fd,
		.fd = -1,
		.offset = memory->offset,
		.length = memory->length,
	};
	int error;

	memcpy(import.name, memory->name, sizeof(import.name));
	error = driver_ask(device, ACTMEM_IOC_IMPORT, &import);
	if (error)
		return fail_import(-error, &import);
	*backing = (struct backing){
		.fd = import.fd,
		.length = memory->length,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.id = import.id,
		.pages = pages_of_bytes(import.page_bytes),
		.inherit = inherit,
		.imported = true,
	};
	memcpy(backing->name, memory->name, sizeof(backing->name));
	return 0;
}

int driver_import(int device, const struct memory_request *memory, struct backing *backing)
{
	return import(device, memory, false, backing);
}

/* One try, of pages of 1 GiB or of the driver's own. */
static int try_create(int device, const struct region_request *request, struct backing *backing)
{
	struct memory_request memory = { .length = request->length };
	struct region_request own = *request;
	struct backing made;
	int error;

	/* Which steps come next is not for those who try one. */
	own.allow = 0;
	if (request->pages != ACTMEM_PAGES_1G)
		return driver_make(device, &own, backing);
	if (request->lazy)
		return fail(EOPNOTSUPP, "the driver makes no lazy regions of 1 GiB pages; ask for one that is not, or allow 2 MiB pages with ACTMEM_ALLOW=2m (actmem run --allow)");
	error = memfd_make(-1, &own, &made);
	if (error)
		return error;
	memory.fd = made.fd;
	memcpy(memory.name, request->name, sizeof(memory.name));
	error = import(device, &memory, request->inherit, backing);
	memfd_release(&made);
	return error;
}

int driver_create_1g(int device, const struct region_request *request, struct backing *backing)
{
	static const char *const page_names[] = {
		[ACTMEM_PAGES_2M] = "2 MiB pages",
		[ACTMEM_PAGES_1G] = "1 GiB pages",
	};
	static const struct maker maker = { try_create, page_names };
	struct region_request request_here = *request;

	/* The driver has no other ones. */
	request_here.allow &= ACTMEM_ALLOW_2M | ACTMEM_ALLOW_NODE;
	return steps_make(&maker, device, &request_here, backing);
}
