/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The backend for /dev/actmem, whose driver creates, places and verifies regions. This file opens
 * the device, receives and maps regions, and lists them.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actmem.h"
#include "base/base.h"
#include "machine/machine.h"
#include "region/backend.h"
#include "region/driver/command.h"
#include "region/driver/driver.h"
#include "region/map.h"
#include "../uapi/actmem.h"
#include "watch/watch.h"

#define DEVICE		"/dev/actmem"
#define LIST_BATCH	256

_Static_assert(ACTMEM_NODES_MAX == ACTMEM_NODE_MAX, "node masks are the same");
_Static_assert(ACTMEM_NAME_MAX == ACTMEM_NAME_BYTES, "names are the same");

static int fail_open(int error)
{
	switch (error) {
	case ENOENT:
		return fail(error, DEVICE " does not exist (module not loaded: as root `modprobe actmem`)");
	case ENXIO:
	case ENODEV:
		return fail(ENXIO, DEVICE " has no driver behind it (module not loaded: as root `modprobe actmem`)");
	case EACCES:
	case EPERM:
		return fail(error, DEVICE ": permission denied (join the group actmem, or ask the administrator)");
	default:
		return fail(error, DEVICE ": %s", strerror(error));
	}
}

static int check_version(int device)
{
	struct actmem_ioctl_query query;
	int error = driver_query(device, &query);

	if (error == -ENOTTY)
		return fail(ENXIO, DEVICE " is not the actmem driver's");
	if (error && error != -EPROTONOSUPPORT)
		return fail(-error, DEVICE " does not report its version (%s)", strerror(-error));
	if (query.abi < ACTMEM_ABI_OLDEST)
		return fail(EPROTONOSUPPORT, "the driver's version %u is older than %u, the oldest that this library (version %u) works with; upgrade the module",
			    query.abi, ACTMEM_ABI_OLDEST, ACTMEM_ABI_VERSION);
	if (error || query.abi_oldest > ACTMEM_ABI_VERSION)
		return fail(EPROTONOSUPPORT, "this library's version %u is older than %u, the oldest that the driver (version %u) works with; upgrade libactmem",
			    ACTMEM_ABI_VERSION, query.abi_oldest, query.abi);
	if (query.page_bytes != HUGE_PAGE_BYTES)
		return fail(EPROTONOSUPPORT, "the driver has pages of %s, but this library supports only pages of 2 MiB",
			    BYTES_TEXT(query.page_bytes));
	return 0;
}

static int driver_open(int *device)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	int error;

	if (fd < 0)
		return fail_open(errno);
	error = check_version(fd);
	if (error) {
		close(fd);
		return error;
	}
	*device = fd;
	return 0;
}

/*
 * Checks a descriptor from another process. Sends the ioctl only to regular files, because a device
 * might have another ioctl with the same number.
 */
static int check_descriptor(int fd, struct actmem_ioctl_info *info)
{
	struct stat stat;

	if (fstat(fd, &stat))
		return fail(errno, "descriptor %d: %s", fd, strerror(errno));
	if (!S_ISREG(stat.st_mode) || driver_ask(fd, ACTMEM_IOC_INFO, info) || !info->length || !info->id)
		return fail(EINVAL, "descriptor %d is not a region of the driver backend", fd);
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return fail(EINVAL, "descriptor %d is not open for reading and writing", fd);
	return 0;
}

static int driver_adopt(int device, int fd, const struct region_request *request,
			struct backing *backing)
{
	struct actmem_ioctl_info info = { .size = sizeof(info) };
	int error = check_descriptor(fd, &info);

	if (error)
		return error;
	*backing = (struct backing){
		.length = info.length,
		.page_bytes = info.page_bytes,
		.id = info.id,
		.pages = ACTMEM_PAGES_2M,
		.inherit = info.state & ACTMEM_INFO_INHERIT,
		.received = true,
		.named = info.state & ACTMEM_INFO_NAMED,
	};
	memcpy(backing->name, info.name, sizeof(backing->name) - 1);
	backing->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (backing->fd < 0)
		return fail(errno, "cannot duplicate descriptor %d (%s)", fd, strerror(errno));
	request_tell_fd(request, backing->fd);
	return 0;
}

static void driver_unmap(struct backing *backing)
{
	munmap(backing->address, backing->length);
	backing->address = NULL;
}

static void copy_info(struct actmem_region_info *into, const struct actmem_ioctl_info *from)
{
	into->id = from->id;
	into->length = from->length;
	into->page_bytes = from->page_bytes;
	into->backend = ACTMEM_BACKEND_DRIVER;
	into->pages = ACTMEM_PAGES_2M;
	into->mapped_bytes = from->mapped_bytes;
	into->pinned_bytes = from->pinned_bytes;
	into->allocated_bytes = from->allocated_bytes;
	into->demand_faults = from->demand_faults;
	into->poisoned_bytes = from->poisoned_bytes;
	into->exported_bytes = from->exported_bytes;
	into->surplus_bytes = from->surplus_bytes;
	into->uid = from->uid;
	into->pid = from->pid;
	into->named = !!(from->state & ACTMEM_INFO_NAMED);
	into->lingering = !!(from->state & ACTMEM_INFO_LINGERING);
	memcpy(into->name, from->name, sizeof(into->name) - 1);
}

/*
 * Asks the driver about a region. Either @fd is the region and @id is 0, or @fd is the device and
 * @id is the region's id.
 */
static int ask_info(int fd, uint64_t id, struct actmem_region_info *into)
{
	struct actmem_ioctl_info info = {
		.size = sizeof(info),
		.id = id,
		.node_bytes = (uintptr_t)into->node_bytes,
		.node_count = into->node_bytes ? ACTMEM_NODES_MAX : 0,
	};
	int error = driver_ask(fd, ACTMEM_IOC_INFO, &info);

	if (!error)
		copy_info(into, &info);
	return error;
}

static int driver_info(const struct backing *backing, struct actmem_region_info *info)
{
	int error = ask_info(backing->fd, 0, info);

	return error ? fail(-error, "the driver cannot report on the region (%s)",
			    strerror(-error)) : 0;
}

/* Returns 0 if the driver does not know the field surplus_bytes. */
static uint64_t driver_surplus(const struct backing *backing)
{
	struct actmem_ioctl_info info = { .size = sizeof(info) };

	return driver_ask(backing->fd, ACTMEM_IOC_INFO, &info) ? 0 : info.surplus_bytes;
}

static void driver_release(struct backing *backing)
{
	if (backing->address)
		driver_unmap(backing);
	if (backing->fd >= 0)
		close(backing->fd);
}

static int list_batch(int device, const uint64_t *ids, unsigned int count,
		      struct region_list *list)
{
	struct region_item *item;
	unsigned int i;
	int error;

	for (i = 0; i < count; i++) {
		item = list_add(list);
		if (!item)
			return -ENOMEM;
		error = ask_info(device, ids[i], &item->info);
		if (error)
			list_drop_last(list);
		/* Skip regions that have ended in the meantime, or that belong to other users. */
		if (error && error != -ENOENT && error != -EPERM)
			return fail(-error, "the driver cannot report on a region (%s)",
				    strerror(-error));
	}
	return 0;
}

/*
 * Lists the driver's regions. Returns 0 even if the device cannot be opened. If the open fails
 * although the driver is loaded, actmem_error() says why the driver's regions are not in the list.
 */
static int driver_list(struct region_list *list)
{
	uint64_t ids[LIST_BATCH];
	struct actmem_ioctl_list request = {
		.size = sizeof(request),
		.ids = (uintptr_t)ids,
	};
	int device, error = driver_open(&device);

	if (error == -ENOENT || error == -ENXIO)
		fail_clear();
	if (error)
		return 0;
	fail_clear();
	do {
		request.count = LIST_BATCH;
		error = driver_ask(device, ACTMEM_IOC_LIST, &request);
		if (error) {
			error = fail(-error, "the driver does not list its regions (%s)",
				     strerror(-error));
			break;
		}
		if (request.count > LIST_BATCH)
			request.count = 0;
		error = list_batch(device, ids, request.count, list);
		if (request.count)
			request.after = ids[request.count - 1];
	} while (!error && request.count == LIST_BATCH);
	close(device);
	return error;
}

const struct backend backend_driver = {
	.kind = ACTMEM_BACKEND_DRIVER,
	.name = "driver",
	.open = driver_open,
	.create = driver_make,
	.open_name = driver_open_name,
	.adopt = driver_adopt,
	.map = map_region,
	.unmap = driver_unmap,
	.populate = driver_populate,
	.discard = driver_discard,
	.export = driver_export,
	.info = driver_info,
	.surplus = driver_surplus,
	.release = driver_release,
	.list = driver_list,
};
