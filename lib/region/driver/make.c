/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Creates regions of the driver that have no name, or no name yet. Writes the error message if the
 * driver refuses a request.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/driver/command.h"
#include "region/driver/driver.h"
#include "region/driver/why.h"
#include "region/names.h"

_Static_assert(ACTMEM_PLACE_BIND - 1 == ACTMEM_POLICY_BIND &&
	       ACTMEM_PLACE_PREFERRED - 1 == ACTMEM_POLICY_PREFERRED &&
	       ACTMEM_PLACE_INTERLEAVE - 1 == ACTMEM_POLICY_INTERLEAVE, "policies map by -1");

/* Creates an empty file without a name in the directory of the request's path. */
static int create_nameless(const struct region_request *request, int *fd)
{
	char folder[PATH_MAX];

	parent_of(folder, request->path);
	*fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (*fd < 0)
		return fail(errno, "cannot make a file in %s (%s)", folder, strerror(errno));
	return 0;
}

static int fail_create(int device, int error, const struct actmem_ioctl_create *create)
{
	struct actmem_ioctl_query query;

	if (why_tell(error, &create->why, -1, create->policy != ACTMEM_POLICY_PREFERRED))
		return -error;
	if (error == EINVAL && !driver_query(device, &query) &&
	    create->length > query.max_region_bytes)
		return fail(EINVAL, "%s are requested for one region, but this driver supports at most %s",
			    BYTES_TEXT(create->length), BYTES_TEXT(query.max_region_bytes));
	return fail(error, "the driver cannot make a region of %s (%s)",
		    BYTES_TEXT(create->length), strerror(error));
}

/* Populates a new region. On failure, closes its descriptor. */
static int populate_new(const struct region_request *request, struct actmem_ioctl_create *create)
{
	struct actmem_ioctl_range range;
	int error;

	error = driver_populate_range(create->fd, 0, create->length, &range);
	if (error) {
		create->why = range.why;
		request_close_fd(request, create->fd);
	}
	return error;
}

/* Tries to create a region once. @device has the meaning of @fd in driver_make(). */
static int create_once(int device, const struct region_request *request,
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
	/* If the region is a file, the driver uses the file's name as the region's name. */
	if (!request->path)
		memcpy(create->name, request->name, sizeof(create->name));
	create->fd = -1;
	if (device < 0) {
		error = create_nameless(request, &file);
		if (error)
			return error;
		request_tell_fd(request, file);
	}
	error = driver_ask(device < 0 ? file : device, ACTMEM_IOC_CREATE, create);
	if (error && file >= 0)
		request_close_fd(request, file);
	if (!error && file >= 0)
		create->fd = file;
	if (!error && create->fd >= 0)
		request_tell_fd(request, create->fd);
	if (!error && !request->lazy)
		error = populate_new(request, create);
	return error ? fail_create(device, -error, create) : 0;
}

/* Returns true if the request failed because of its nodes, and may succeed on other nodes. */
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
		return fail(EOPNOTSUPP, "the driver has only 2M pages; 1G pages come from hugetlb with the backend memfd: %s%s, or allow 2 MiB pages with %s",
			    request->path ? "use a path on a hugetlbfs that is mounted with pagesize=1G" :
			    "request that, or auto, with ",
			    request->path ? "" : KNOB(BACKEND), KNOB(ALLOW_2M));
	return fail(EOPNOTSUPP, "the driver has only 2M pages; request those, or %s%s",
		    request->path ? "use a path on tmpfs" :
		    "for the backend memfd with ", request->path ? "" : KNOB(BACKEND));
}

void driver_tell_pages(const struct region_request *request, unsigned int *fallbacks)
{
	if (request->pages == ACTMEM_PAGES_2M)
		return;
	if (!*fallbacks)
		fail_clear();
	fail_more("%sthe driver has only 2M pages; used 2 MiB pages instead",
		  *fallbacks ? "; " : "");
	++*fallbacks;
}

/*
 * Tries the nodes nearest to @home first, and adds farther nodes while the nearer nodes are full.
 * Without these steps, the driver would prefer the nodes nearest to the caller's CPU.
 */
static int try_near(int fd, const struct region_request *request,
		    struct actmem_ioctl_create *create)
{
	struct actmem_nodes far = request->nodes, near = { { 0 } };
	int error = 0;

	while (nodes_take_nearest(request->home, &far, &near)) {
		error = create_once(fd, request, ACTMEM_PLACE_BIND, &near, create);
		if (!error || !node_is_full(create))
			break;
	}
	return error;
}

int driver_make(int fd, const struct region_request *request, struct backing *backing)
{
	unsigned int node = request_node(request);
	struct actmem_nodes one = { { 0 } };
	unsigned int fallbacks = 0;
	struct actmem_ioctl_create create;
	int error = driver_check_pages(request);

	if (error)
		return error;
	error = request->has_home ? try_near(fd, request, &create) :
		create_once(fd, request, request->policy, &request->nodes, &create);
	if (error && node_is_full(&create) && request->policy != ACTMEM_PLACE_PREFERRED &&
	    request->allow & ACTMEM_ALLOW_NODE) {
		if (node < ACTMEM_NODES_MAX)
			node_set(&one, node);
		error = create_once(fd, request, ACTMEM_PLACE_PREFERRED, &one, &create);
		if (!error) {
			fail_more("; used any node instead");
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
