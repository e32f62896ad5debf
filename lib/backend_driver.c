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
#include "../uapi/actmem.h"
#include "backend.h"
#include "driver.h"
#include "driver_command.h"
#include "error.h"
#include "list.h"
#include "map.h"
#include "node.h"
#include "why.h"

#define DEVICE		"/dev/actmem"
#define LIST_BATCH	256

/* The first version of the driver that makes lazy regions. */
#define ABI_WITH_LAZY	2

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
	if (error == EINVAL && !ask_query(device, &query)) {
		if (create->flags & ACTMEM_CREATE_LAZY && query.abi < ABI_WITH_LAZY)
			return fail(EOPNOTSUPP, "this driver makes no lazy regions; upgrade the module");
		if (create->length > query.max_region_bytes)
			return fail(EINVAL, "%s are wanted in one region, which has %s at most with this driver",
				    BYTES_TEXT(create->length), BYTES_TEXT(query.max_region_bytes));
	}
	return fail(error, "the driver cannot make a region of %s (%s)",
		    BYTES_TEXT(create->length), strerror(error));
}

static int try_create(int device, const struct region_request *request,
		      enum actmem_policy policy, const struct actmem_nodes *nodes,
		      struct actmem_ioctl_create *create)
{
	int error;

	*create = (struct actmem_ioctl_create){
		.size = sizeof(*create),
		.flags = (request->inherit ? ACTMEM_CREATE_INHERIT : 0) |
			 (request->lazy ? ACTMEM_CREATE_LAZY : 0),
		.length = request->length,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.policy = policy - 1,
	};
	memcpy(create->nodes, nodes->word, sizeof(create->nodes));
	/* One that is a file has that name. */
	if (!request->path)
		memcpy(create->name, request->name, sizeof(create->name));
	create->fd = -1;
	error = driver_ask(device, ACTMEM_IOC_CREATE, create);
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
	if (request->pages == ACTMEM_PAGES_2M)
		return 0;
	if (request->pages == ACTMEM_PAGES_1G)
		return fail(EOPNOTSUPP, "files of the driver's file system have 2 MiB pages alone; ask for those, or take a path on a hugetlbfs that is mounted with pagesize=1G");
	if (request->path)
		return fail(EOPNOTSUPP, "files of the driver's file system have 2 MiB pages alone; ask for those, or take a path on tmpfs");
	return fail(EOPNOTSUPP, "the driver has pages of 2 MiB and 1 GiB only; ask for those, or for the memfd backend with ACTMEM_BACKEND=memfd");
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

static int driver_create(int device, const struct region_request *request,
			 struct backing *backing)
{
	if (request->pages == ACTMEM_PAGES_1G)
		return driver_create_1g(device, request, backing);
	return driver_make(device, request, backing);
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
		.pages = driver_pages(&info),
		.inherit = info.state & ACTMEM_INFO_INHERIT,
		.received = true,
		.imported = info.state & ACTMEM_INFO_IMPORTED,
		.named = info.state & ACTMEM_INFO_NAMED,
		.sealed = info.state & ACTMEM_INFO_SEALED,
	};
	memcpy(backing->name, info.name, sizeof(backing->name) - 1);
	backing->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (backing->fd < 0)
		return fail(errno, "cannot duplicate descriptor %d (%s)", fd, strerror(errno));
	return 0;
}

/* Linux 6.1 maps what is sealed only by a descriptor that cannot write. */
static int map_sealed(struct backing *backing)
{
	char own[64];
	int fd, error;

	snprintf(own, sizeof(own), "/proc/self/fd/%d", backing->fd);
	fd = open(own, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fail(errno, "cannot open a sealed region only to read (%s)",
			    strerror(errno));
	error = map_region_by(fd, backing);
	close(fd);
	return error;
}

static int driver_map(struct backing *backing)
{
	int error = backing->sealed ? map_sealed(backing) : map_region(backing);

	/*
	 * Any policy keeps NUMA balancing from unmapping pages; none is needed. That of
	 * an imported region would be its file's.
	 */
	if (!error && !backing->imported)
		syscall(SYS_mbind, backing->address, (unsigned long)backing->length, MPOL_LOCAL,
			NULL, 0UL, 0);
	return error;
}

static void driver_unmap(struct backing *backing)
{
	munmap(backing->address, backing->length);
	backing->address = NULL;
}

static int driver_seal(struct backing *backing)
{
	struct actmem_ioctl_seal seal = { .size = sizeof(seal) };
	int error;

	if (backing->imported)
		return fail(EOPNOTSUPP, "the region is of imported memory; to seal that is for the owner of its file");
	error = driver_ask(backing->fd, ACTMEM_IOC_SEAL, &seal);
	if (!error)
		backing->sealed = true;
	if (error == -ENOTTY)
		return fail(EOPNOTSUPP, "this driver seals no regions; upgrade the module");
	if (error == -EBUSY)
		return fail(EBUSY, "the region cannot be sealed: somebody has it mapped by a descriptor that may write, a device or I/O in flight holds pages, or a command writes; end that and try again");
	if (error == -EPERM)
		return fail(EPERM, "the region cannot be sealed: only who made it or owns its file, or root, does that");
	return error ? fail(-error, "the driver cannot seal the region (%s)", strerror(-error)) : 0;
}

static void take_info(struct actmem_region_info *into, const struct actmem_ioctl_info *from)
{
	into->id = from->id;
	into->length = from->length;
	into->page_bytes = from->imported_page_bytes ? from->imported_page_bytes :
			   from->page_bytes;
	into->backend = ACTMEM_BACKEND_DRIVER;
	into->pages = driver_pages(from);
	into->mapped_bytes = from->mapped_bytes;
	into->pinned_bytes = from->pinned_bytes;
	into->allocated_bytes = from->allocated_bytes;
	into->demand_faults = from->demand_faults;
	into->poisoned_bytes = from->poisoned_bytes;
	into->exported_bytes = from->exported_bytes;
	into->uid = from->uid;
	into->pid = from->pid;
	into->named = !!(from->state & ACTMEM_INFO_NAMED);
	into->sealed = !!(from->state & ACTMEM_INFO_SEALED);
	into->imported = !!(from->state & ACTMEM_INFO_IMPORTED);
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
	.create = driver_create,
	.open_name = driver_open_name,
	.seal = driver_seal,
	.adopt = driver_adopt,
	.import = driver_import,
	.map = driver_map,
	.unmap = driver_unmap,
	.populate = driver_populate,
	.discard = driver_discard,
	.copy = driver_copy,
	.export = driver_export,
	.has_commands = driver_has_commands,
	.command = driver_command,
	.command_result = driver_command_result,
	.info = driver_info,
	.release = driver_release,
	.list = driver_list,
};
