/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Backends, from which regions come: one table of functions each. Operating-
 * system calls that make or map regions are in the backends and in map.c only.
 */
#ifndef LIB_REGION_BACKEND_H
#define LIB_REGION_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem.h"
#include "machine/machine.h"

struct region_list;

/* A checked request: no DEFAULT left, length a multiple of the page size. */
struct region_request {
	uint64_t length;
	enum actmem_pages pages;
	enum actmem_policy policy;
	struct actmem_nodes nodes;	/* BIND: not empty; PREFERRED: at most one */
	bool has_home;			/* BIND: pages come from the nodes nearest to @home first... */
	unsigned int home;		/* ...else from those nearest to the caller's CPU */
	uint32_t allow;
	bool inherit;
	bool lazy;
	char name[ACTMEM_NAME_MAX];	/* printable, without '/'; may be "" */
	const char *path;		/* of a named region, on this backend's file system, or NULL */
	uint32_t open;			/* ACTMEM_OPEN_*, if it is named */
	bool any_place;			/* neither policy nor nodes were named by anybody */
};

/* The node that pages come from first; ACTMEM_NODES_MAX: no node was named. */
static inline unsigned int request_node(const struct region_request *request)
{
	return request->has_home ? request->home : nodes_next(&request->nodes, 0);
}

/* The region as the backend made it. */
struct backing {
	int fd;
	void *address;			/* NULL while not mapped */
	uint64_t length;
	uint64_t page_bytes;		/* of the smallest page */
	uint64_t locked_bytes;		/* that cannot be swapped; memfd only */
	uint64_t id;
	uint64_t device;		/* of the file; with @id unique among memfds */
	enum actmem_pages pages;
	enum actmem_policy policy;	/* memfd only; DEFAULT: not known, as received */
	struct actmem_nodes nodes;	/* of the policy */
	unsigned int fallbacks;		/* allowed steps down that were taken */
	bool inherit;
	bool received;			/* made by another process */
	bool named;
	bool read_only;			/* opened so */
	char name[ACTMEM_NAME_MAX];
};

/* The work of populate or discard. */
struct page_change {
	enum { CHANGE_POPULATE, CHANGE_DISCARD } kind;
	const struct backing *backing;
	uint64_t offset, length;
};

/* A change as a command of io_uring; stays where it is until that has ended. */
struct backend_command {
	int fd;
	uint32_t operation;
	uint64_t argument[8];
};

/*
 * Functions that can fail return 0 or a negative errno, have then set the
 * words of actmem_error(), and have left nothing behind. @device is what
 * @open gave. Callers serialise calls that concern one backing.
 */
struct backend {
	enum actmem_backend kind;
	const char *name;

	/* *@device: a descriptor, or -1 if the backend needs none. */
	int (*open)(int *device);

	/* Unless it is lazy, every page is allocated, zeroed and verified to be in place. */
	int (*create)(int device, const struct region_request *request,
		      struct backing *backing);

	/*
	 * As the request's ACTMEM_OPEN_* say; @received tells that it was found.
	 * Made, it is as by @create; and it is complete once others can find it.
	 */
	int (*open_name)(const struct region_request *request, struct backing *backing);

	/* @fd stays the caller's. @allow: as in a request. */
	int (*adopt)(int device, int fd, uint32_t allow, struct backing *backing);

	/* Not mapped yet, or kept mapped by the backend: sets @address. */
	int (*map)(struct backing *backing);

	/* After the last user of @address. */
	void (*unmap)(struct backing *backing);

	/*
	 * Whole pages within the region. These run at the same time as anything
	 * else that concerns the backing; as each other unless @in_turn.
	 */
	bool in_turn;
	int (*populate)(const struct backing *backing, uint64_t offset, uint64_t length);
	int (*discard)(const struct backing *backing, uint64_t offset, uint64_t length);

	/* Whole pages within the region; *@fd becomes the caller's. */
	int (*export)(const struct backing *backing, uint64_t offset, uint64_t length, int *fd);

	/* Tells whether the kernel takes commands; NULL: there are none. */
	bool (*has_commands)(int device);
	void (*command)(const struct page_change *change, struct backend_command *command);
	/*
	 * What the call would have returned where the command's result is this one; and of
	 * how many bytes it has come true.
	 */
	int (*command_result)(struct backend_command *command, int result, uint64_t *done);

	/*
	 * Fills what it knows of *@info, which is zeroed but for its node_bytes: NULL, or
	 * ACTMEM_NODES_MAX zeroes.
	 */
	int (*info)(const struct backing *backing, struct actmem_region_info *info);

	/* Closes and unmaps. */
	void (*release)(struct backing *backing);

	/* Adds every region that this process may see, but for its command. */
	int (*list)(struct region_list *list);
};

extern const struct backend backend_driver;
extern const struct backend backend_memfd;

#endif /* LIB_REGION_BACKEND_H */
