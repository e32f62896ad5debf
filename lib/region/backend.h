/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Backends, which create regions. Each backend is a table of functions. Only the backends and map.c
 * make the system calls that create and map regions.
 */
#ifndef LIB_REGION_BACKEND_H
#define LIB_REGION_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include "actmem.h"
#include "machine/machine.h"

struct region_list;

/*
 * A request for a region, with checked options: no field is DEFAULT, and the length is a multiple
 * of the page size. When a named region is opened, a length of 0 stands for any length.
 */
struct region_request {
	uint64_t length;
	enum actmem_pages pages;
	enum actmem_policy policy;
	struct actmem_nodes nodes;	/* BIND: not empty; PREFERRED: at most one node */
	bool has_home;			/* @home is set; only with BIND */
	unsigned int home;		/* prefer nodes near this node, not near the caller */
	uint32_t allow;
	bool by_default;		/* the caller did not set @allow */
	bool inherit;
	bool lazy;
	char name[ACTMEM_NAME_MAX];	/* printable, without '/'; may be "" */
	const char *path;		/* on the backend's file system; NULL for no name */
	uint32_t open;			/* ACTMEM_OPEN_*, if the region is named */
	bool any_place;			/* neither options nor defaults set a policy or nodes */
	int *making;			/* MAKING_COUNT descriptors, set when opened; or NULL */
};

/* The descriptors in @making, which a child that is forked now must close; -1: none. */
enum {
	MAKING_REGION,
	MAKING_LOCK,			/* a locked file or directory */
	MAKING_COUNT,
};

static inline void request_tell_fd(const struct region_request *request, int fd)
{
	if (request->making)
		request->making[MAKING_REGION] = fd;
}

static inline void request_tell_lock(const struct region_request *request, int fd)
{
	if (request->making)
		request->making[MAKING_LOCK] = fd;
}

/* Closes a descriptor, which a child that is forked now must no longer close. */
static inline void request_close_fd(const struct region_request *request, int fd)
{
	request_tell_fd(request, -1);
	close(fd);
}

/*
 * Returns the node from which pages are taken first, or ACTMEM_NODES_MAX if the request names no
 * node.
 */
static inline unsigned int request_node(const struct region_request *request)
{
	return request->has_home ? request->home : nodes_next(&request->nodes, 0);
}

/* The part of a region that its backend manages. */
struct backing {
	int fd;
	void *address;			/* NULL while not mapped */
	uint64_t length;
	uint64_t page_bytes;		/* length of the smallest page */
	uint64_t locked_bytes;		/* bytes that cannot be swapped; memfd only */
	uint64_t id;
	uint64_t device;		/* the file's device; @device and @id identify a memfd */
	enum actmem_pages pages;
	enum actmem_policy policy;	/* memfd only; DEFAULT if the policy is unknown */
	struct actmem_nodes nodes;	/* nodes of @policy */
	unsigned int fallbacks;		/* number of fallbacks that were used */
	bool inherit;
	bool unplaced;			/* mbind() is forbidden, so the kernel chose the nodes */
	bool elsewhere;			/* memfd: a fallback to other nodes was used */
	bool received;			/* this handle did not create the region */
	bool named;
	bool read_only;			/* opened only for reading */
	char name[ACTMEM_NAME_MAX];
};

/*
 * Functions that can fail return 0 or a negative errno. On failure these functions set the message
 * of actmem_error() and release everything that they created. @device is the descriptor that @open
 * set. Except where noted, callers serialize calls for the same backing.
 */
struct backend {
	enum actmem_backend kind;
	const char *name;

	/* Opens the backend. Sets *@device to a descriptor, or to -1 if the backend needs none. */
	int (*open)(int *device);

	/*
	 * Creates a region. Unless the region is lazy, allocates and zeroes every page and verifies
	 * the page's node.
	 */
	int (*create)(int device, const struct region_request *request,
		      struct backing *backing);

	/*
	 * Opens or creates a named region, as the request's ACTMEM_OPEN_* flags say. Sets @received
	 * if the region existed. Creates a region as @create does. Other processes can find a new
	 * region only when it is complete.
	 */
	int (*open_name)(const struct region_request *request, struct backing *backing);

	/*
	 * Sets *@backing for a received descriptor. Duplicates @fd. Of @request, only @allow and
	 * @making are set.
	 */
	int (*adopt)(int device, int fd, const struct region_request *request,
		     struct backing *backing);

	/* Maps the region and sets @address, unless this backend keeps all its regions mapped. */
	int (*map)(struct backing *backing);

	/* Unmaps the region. No thread may use @address any more. */
	void (*unmap)(struct backing *backing);

	/*
	 * populate() and discard() allocate and free whole pages within the region. Both functions
	 * may run concurrently with any call for the backing. If @in_turn is set, the caller
	 * serializes calls of the two functions.
	 */
	bool in_turn;
	int (*populate)(const struct backing *backing, uint64_t offset, uint64_t length);
	int (*discard)(const struct backing *backing, uint64_t offset, uint64_t length);

	/* Exports whole pages within the region as a dma-buf. The caller closes *@fd. */
	int (*export)(const struct backing *backing, uint64_t offset, uint64_t length, int *fd);

	/*
	 * Sets the fields of *@info that the backend knows. @info->node_bytes is NULL or an array
	 * of ACTMEM_NODES_MAX zeros.
	 */
	int (*info)(const struct backing *backing, struct actmem_region_info *info);

	/*
	 * Returns the region's surplus in bytes (see actmem_region_info). The pointer is NULL if
	 * the backend's regions never have a surplus.
	 */
	uint64_t (*surplus)(const struct backing *backing);

	/* Unmaps the region and closes its descriptor. */
	void (*release)(struct backing *backing);

	/*
	 * Adds to @list every region that this process is allowed to see. The caller sets the field
	 * @command of each region.
	 */
	int (*list)(struct region_list *list);
};

extern const struct backend backend_driver;
extern const struct backend backend_memfd;

#endif /* LIB_REGION_BACKEND_H */
