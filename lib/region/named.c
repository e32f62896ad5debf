/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Opens regions by name, for all backends.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "region/choose.h"
#include "region/context.h"
#include "region/names.h"
#include "region/options.h"
#include "region/regions.h"

#define OPEN_ALL	(ACTMEM_OPEN_CREATE | ACTMEM_OPEN_EXCLUSIVE | ACTMEM_OPEN_LOCK | \
			 ACTMEM_OPEN_READ | ACTMEM_OPEN_ANY_LENGTH | ACTMEM_OPEN_OWN)

/*
 * Removes the file that the call made for a region that it could not finish. Only the publishing of
 * memfd regions can fail, so @made->id is the inode number.
 */
static void remove_new(const char *path, const struct backing *made)
{
	struct stat there;

	if (!lstat(path, &there) && there.st_dev == made->device && there.st_ino == made->id)
		unlink(path);
}

static int open_region(struct actmem *am, const struct region_request *request,
		       struct actmem_region **result)
{
	struct region_request its = *request;
	const struct backend *backend;
	struct actmem_region *region;
	struct published_wait *wait;
	struct backing made;
	int error = name_backend(request->path, am->options.backend, &backend);

	if (error)
		return error;
	region = region_new(am, backend);
	if (!region)
		return -ENOMEM;
	its.making = region->making;
	wait = wait_begin(am->waits, WAIT_REGION, 0, request->length, request->path);
	region->by_default = request->by_default;
	error = backend->open_name(&its, &region->backing);
	wait_end(am->waits, wait);
	if (error)
		return region_finish(region, error, result);
	made = region->backing;
	error = region_finish(region, 0, result);
	if (error && !made.received)
		remove_new(request->path, &made);
	return error;
}

int region_open(struct actmem *am, const struct region_request *request,
		struct actmem_region **result)
{
	int error;

	thread_hold_cancellation();
	error = open_region(am, request, result);
	thread_let_cancellation();
	return error;
}

static int check_flags(uint32_t flags)
{
	if (flags & ~OPEN_ALL)
		return fail(EINVAL, "flags 0x%x has bits that are none of ACTMEM_OPEN_*", flags);
	if (flags & ACTMEM_OPEN_CREATE && flags & ACTMEM_OPEN_READ)
		return fail(EINVAL, "ACTMEM_OPEN_CREATE and ACTMEM_OPEN_READ cannot be combined");
	if (flags & ACTMEM_OPEN_EXCLUSIVE && !(flags & ACTMEM_OPEN_CREATE))
		return fail(EINVAL, "ACTMEM_OPEN_EXCLUSIVE needs ACTMEM_OPEN_CREATE");
	return 0;
}

int actmem_region_open(struct actmem *am, const char *name,
		       const struct actmem_region_options *options, uint32_t flags,
		       struct actmem_region **result)
{
	struct actmem_region_options taken;
	struct region_request request;
	char path[PATH_MAX];
	int error;

	if (!am || !name || !result)
		return fail(EINVAL, "actmem_region_open: am, name or region is NULL");
	error = check_owner(am);
	if (!error)
		error = check_flags(flags);
	ACTMEM_INIT(&taken);
	if (!error && options)
		error = take_struct(&taken, sizeof(taken), options, "region options");
	if (error)
		return error;
	if (taken.name)
		return fail(EINVAL, "actmem_region_open: the options have a name, but a file's name is its path, %s",
			    name);
	error = options_resolve(&am->options, &taken, !(flags & ACTMEM_OPEN_CREATE), &request);
	if (!error)
		error = name_to_path(name, path);
	if (error)
		return error;
	request.path = path;
	request.open = flags;
	return region_open(am, &request, result);
}

int actmem_region_found(const struct actmem_region *region)
{
	return region && region->backing.named && region->backing.received;
}
