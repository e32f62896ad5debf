/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The backend of /dev/actmem: the driver makes, places and verifies regions;
 * here are the questions to it and its answers in words.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "actmem.h"
#include "base/error.h"
#include "machine/node.h"
#include "region/backend.h"
#include "region/driver/command.h"
#include "region/driver/driver.h"
#include "region/driver/why.h"
#include "region/map.h"
#include "../uapi/actmem.h"
#include "watch/list.h"

#define DEVICE		"/dev/actmem"
#define LIST_BATCH	256

_Static_assert(ACTMEM_NODES_MAX == ACTMEM_NODE_MAX, "node masks are the same");
_Static_assert(ACTMEM_NAME_MAX == ACTMEM_NAME_BYTES, "names are the same");
_Static_assert(ACTMEM_PLACE_BIND - 1 == ACTMEM_POLICY_BIND &&
	       ACTMEM_PLACE_PREFERRED - 1 == ACTMEM_POLICY_PREFERRED &&
	       ACTMEM_PLACE_INTERLEAVE - 1 == ACTMEM_POLICY_INTERLEAVE, "policies map by -1");

/* A signal that does not kill interrupts nothing that was done already. */
int driver_ask(int fd, unsigned long request, void *argument)
{
	while (ioctl(fd, request, argument)) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

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

static int ask_query(int device, struct actmem_ioctl_query *query)
{
	*query = (struct actmem_ioctl_query){
		.size = sizeof(*query),
		.abi = ACTMEM_ABI_VERSION,
		.abi_oldest = ACTMEM_ABI_OLDEST,
	};
	return driver_ask(device, ACTMEM_IOC_QUERY, query);
}

static int query(int device)
{
	struct actmem_ioctl_query query;
	int error = ask_query(device, &query);

	if (error == -ENOTTY)
		return fail(ENXIO, DEVICE " is not the actmem driver's");
	if (error && error != -EPROTONOSUPPORT)
		return fail(-error, DEVICE " does not tell its version (%s)", strerror(-error));
	if (query.abi < ACTMEM_ABI_OLDEST)
		return fail(EPROTONOSUPPORT, "the driver's version %u is older than %u, the oldest that this library (version %u) works with; upgrade the module",
			    query.abi, ACTMEM_ABI_OLDEST, ACTMEM_ABI_VERSION);
	if (error || query.abi_oldest > ACTMEM_ABI_VERSION)
		return fail(EPROTONOSUPPORT, "this library's version %u is older than %u, the oldest that the driver (version %u) works with; upgrade libactmem",
			    ACTMEM_ABI_VERSION, query.abi_oldest, query.abi);
	if (query.page_bytes != HUGE_PAGE_BYTES)
		return fail(EPROTONOSUPPORT, "the driver has pages of %s, this library knows 2 MiB ones",
			    BYTES_TEXT(query.page_bytes));
	return 0;
}

static bool driver_has_commands(int device)
{
	struct actmem_ioctl_query query;

	return !ask_query(device, &query) && query.features & ACTMEM_FEATURE_URING;
}

static int driver_open(int *device)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	int error;

	if (fd < 0)
		return fail_open(errno);
	error = query(fd);
	if (error) {
		close(fd);
		return error;
	}
	*device = fd;
	return 0;
}

static int fail_create(int device, int error, const struct actmem_ioctl_create *create)
{
	struct actmem_ioctl_query query;

	if (why_tell(error, &create->why, -1, create->policy != ACTMEM_POLICY_PREFERRED))
		return -error;
	if (error == EINVAL && !ask_query(device, &query) &&
	    create->length > query.max_region_bytes)
		return fail(EINVAL, "%s are wanted in one region, which has %s at most with this driver",
			    BYTES_TEXT(create->length), BYTES_TEXT(query.max_region_bytes));
	return fail(error, "the driver cannot make a region of %s (%s)",
		    BYTES_TEXT(create->length), strerror(error));
}

/* All pages of a new region, whose descriptor is closed if there are too few. */
static int populate_new(int fd, struct actmem_ioctl_create *create)
{
	struct actmem_ioctl_range range;
	int error = driver_populate_range(fd, 0, create->length, &range);

	if (error) {
		create->why = range.why;
		close(fd);
	}
	return error;
}

/* @device: or an empty file; -1: a file of its own, without a name yet. */
static int try_create(int device, const struct region_request *request,
		      enum actmem_policy policy, const struct actmem_nodes *nodes,
		      struct actmem_ioctl_create *create)
{
	int file = -1, error;

	*create = (struct actmem_ioctl_create){
		.size = sizeof(*create),
		.flags = request->inherit ? ACTMEM_CREATE_INHERIT : 0,
		.length = request->length,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.policy = policy - 1,
	};
	memcpy(create->nodes, nodes->word, sizeof(create->nodes));
	/* One that is a file has that name. */
	if (!request->path)
		memcpy(create->name, request->name, sizeof(create->name));
	create->fd = -1;
	if (device < 0) {
		error = driver_make_file(request, &file);
		if (error)
			return error;
	}
	error = driver_ask(device < 0 ? file : device, ACTMEM_IOC_CREATE, create);
	if (error && file >= 0)
		close(file);
	if (!error && file >= 0)
		create->fd = file;
	if (!error && !request->lazy)
		error = populate_new(create->fd, create);
	return error ? fail_create(device, -error, create) : 0;
}

/* Whether other nodes could have what those asked for have not. */
static bool node_is_full(const struct actmem_ioctl_create *create)
{
	return create->why.reason == ACTMEM_WHY_NODE_FULL ||
	       create->why.reason == ACTMEM_WHY_NODE_LIMIT;
}

int driver_check_pages(const struct region_request *request)
{
	bool giant = request->pages == ACTMEM_PAGES_1G;

	if (request->pages == ACTMEM_PAGES_2M || (giant && request->allow & ACTMEM_ALLOW_2M))
		return 0;
	if (giant)
		return fail(EOPNOTSUPP, "the driver has pages of 2M alone; 1G come from hugetlb by the backend memfd: %s, or allow 2 MiB pages with ACTMEM_ALLOW=2m (actmem run --allow)",
			    request->path ? "take a path on a hugetlbfs that is mounted with pagesize=1G" :
			    "ask for that, or for auto, with ACTMEM_BACKEND (actmem run --backend)");
	return fail(EOPNOTSUPP, "the driver has pages of 2M alone; ask for those, or %s",
		    request->path ? "take a path on tmpfs" :
		    "for the backend memfd with ACTMEM_BACKEND=memfd");
}

void driver_tell_pages(const struct region_request *request, unsigned int *fallbacks)
{
	if (request->pages == ACTMEM_PAGES_2M)
		return;
	if (!*fallbacks)
		fail_clear();
	fail_more("%sthe driver has pages of 2M alone; took 2 MiB pages instead",
		  *fallbacks ? "; " : "");
	++*fallbacks;
}

int driver_make(int fd, const struct region_request *request, struct backing *backing)
{
	unsigned int node = nodes_next(&request->nodes, 0), fallbacks = 0;
	struct actmem_nodes one = { { 0 } };
	struct actmem_ioctl_create create;
	int error = driver_check_pages(request);

	if (error)
		return error;
	error = try_create(fd, request, request->policy, &request->nodes, &create);
	if (error && node_is_full(&create) && request->policy != ACTMEM_PLACE_PREFERRED &&
	    request->allow & ACTMEM_ALLOW_NODE) {
		if (node < ACTMEM_NODES_MAX)
			node_set(&one, node);
		error = try_create(fd, request, ACTMEM_PLACE_PREFERRED, &one, &create);
		if (!error) {
			fail_more("; took whatever node instead");
			fallbacks = 1;
		}
	}
	if (error)
		return error;
	driver_tell_pages(request, &fallbacks);
	*backing = (struct backing){
		.fd = create.fd,
		.length = request->length,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.id = create.id,
		.pages = ACTMEM_PAGES_2M,
		.fallbacks = fallbacks,
		.inherit = request->inherit,
	};
	memcpy(backing->name, request->name, sizeof(backing->name));
	return 0;
}

/* Only files are asked, since a device could take the request for its own. */
static int check_foreign(int fd, struct actmem_ioctl_info *info)
{
	struct stat stat;

	if (fstat(fd, &stat))
		return fail(errno, "descriptor %d: %s", fd, strerror(errno));
	if (!S_ISREG(stat.st_mode) || driver_ask(fd, ACTMEM_IOC_INFO, info) || !info->length || !info->id)
		return fail(EINVAL, "descriptor %d is no region of the driver backend", fd);
	if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR)
		return fail(EINVAL, "descriptor %d is not open for reading and writing", fd);
	return 0;
}

static int driver_adopt(int device, int fd, uint32_t allow, struct backing *backing)
{
	struct actmem_ioctl_info info = { .size = sizeof(info) };
	int error = check_foreign(fd, &info);

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
	return 0;
}

static int driver_map(struct backing *backing)
{
	int error = map_region(backing);

	/* Any policy keeps NUMA balancing from unmapping pages; none is needed. */
	if (!error)
		syscall(SYS_mbind, backing->address, (unsigned long)backing->length, MPOL_LOCAL,
			NULL, 0UL, 0);
	return error;
}

static void driver_unmap(struct backing *backing)
{
	munmap(backing->address, backing->length);
	backing->address = NULL;
}

static void take_info(struct actmem_region_info *into, const struct actmem_ioctl_info *from)
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
	into->uid = from->uid;
	into->pid = from->pid;
	into->named = !!(from->state & ACTMEM_INFO_NAMED);
	into->lingering = !!(from->state & ACTMEM_INFO_LINGERING);
	memcpy(into->name, from->name, sizeof(into->name) - 1);
}

/* @fd: a region with @id 0, or the device with the region's id. */
static int ask_info(int fd, uint64_t id, struct actmem_region_info *into)
{
	struct actmem_ioctl_info info = {
		.size = sizeof(info),
		.id = id,
		.node_bytes = (uintptr_t)into->node_bytes,
		.node_count = ACTMEM_NODES_MAX,
	};
	int error = driver_ask(fd, ACTMEM_IOC_INFO, &info);

	if (!error)
		take_info(into, &info);
	return error;
}

static int driver_info(const struct backing *backing, struct actmem_region_info *info)
{
	int error = ask_info(backing->fd, 0, info);

	return error ? fail(-error, "the driver does not tell of the region (%s)",
			    strerror(-error)) : 0;
}

static void driver_release(struct backing *backing)
{
	if (backing->address)
		driver_unmap(backing);
	close(backing->fd);
}

static int list_batch(int device, const uint64_t *ids, unsigned int count,
		      struct region_list *list)
{
	struct actmem_region_info *info;
	unsigned int i;
	int error;

	for (i = 0; i < count; i++) {
		info = list_add(list);
		if (!info)
			return -ENOMEM;
		error = ask_info(device, ids[i], info);
		if (error)
			list_drop_last(list);
		/* Regions that have gone since, or that are not the caller's. */
		if (error && error != -ENOENT && error != -EPERM)
			return fail(-error, "the driver does not tell of a region (%s)",
				    strerror(-error));
	}
	return 0;
}

/* Words that stay after a success tell why the driver's regions are missing. */
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
	.map = driver_map,
	.unmap = driver_unmap,
	.populate = driver_populate,
	.discard = driver_discard,
	.export = driver_export,
	.has_commands = driver_has_commands,
	.command = driver_command,
	.command_result = driver_command_result,
	.info = driver_info,
	.release = driver_release,
	.list = driver_list,
};
