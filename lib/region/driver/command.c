/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Populates and discards pages of the driver's regions, and writes the error messages. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/driver/command.h"
#include "region/driver/driver.h"
#include "region/driver/why.h"
#include "../uapi/actmem.h"

static int tell_populate(int error, int fd, const struct actmem_ioctl_range *range)
{
	if (!error)
		return 0;
	if (!why_tell(-error, &range->why, fd, false))
		fail(-error, "the driver cannot populate %s (%s)", BYTES_TEXT(range->length),
		     strerror(-error));
	fail_more("; the first %s of the %s are populated", BYTES_TEXT(range->done),
		  BYTES_TEXT(range->length));
	return error;
}

static int tell_discard(int error, const struct actmem_ioctl_range *range)
{
	if (!error)
		return 0;
	if (error == -EBUSY)
		return fail(EBUSY, "%s of %s cannot be discarded, because a device or I/O in flight holds them; try again later",
			    BYTES_TEXT(range->length - range->done), BYTES_TEXT(range->length));
	return fail(-error, "the driver cannot discard %s (%s)", BYTES_TEXT(range->length),
		    strerror(-error));
}

static int request_change(int fd, unsigned long request, uint64_t offset, uint64_t length,
			  struct actmem_ioctl_range *range)
{
	*range = (struct actmem_ioctl_range){
		.size = sizeof(*range),
		.offset = offset,
		.length = length,
	};
	return driver_ask(fd, request, range);
}

static int help_populate(const void *context, uint64_t offset, uint64_t length)
{
	const int *fd = context;
	struct actmem_ioctl_range range;

	return request_change(*fd, ACTMEM_IOC_POPULATE, offset, length, &range);
}

/* The bytes of a region's pages, in total and on each node. */
struct pages_there {
	struct actmem_ioctl_info info;
	uint64_t of_node[ACTMEM_NODES_MAX];
};

static int count_pages(int fd, struct pages_there *there)
{
	*there = (struct pages_there){
		.info = {
			.size = sizeof(there->info),
			.node_bytes = (uintptr_t)there->of_node,
			.node_count = ACTMEM_NODES_MAX,
		},
	};
	return driver_ask(fd, ACTMEM_IOC_INFO, &there->info);
}

/* Returns true if the node of a new page depends on the CPU that allocates the page. */
static bool goes_by_cpu(const struct actmem_ioctl_info *info)
{
	struct actmem_nodes nodes;

	memcpy(nodes.word, info->nodes, sizeof(nodes.word));
	return info->policy == ACTMEM_POLICY_PREFERRED ? nodes_empty(&nodes) :
	       info->policy == ACTMEM_POLICY_BIND && nodes_count(&nodes) > 1;
}

/* Returns @now - @before, or 0 if other threads discarded more bytes than were added. */
static uint64_t more_bytes(uint64_t now, uint64_t before)
{
	return now > before ? now - before : 0;
}

/*
 * Changes the byte counts in @why, the driver's reason for a failed call, so that they refer to the
 * whole range. The driver counts only the pages that were still missing at the last call. This
 * function adds the bytes that were allocated between @before and @now to both counts: the wanted
 * bytes and the available bytes.
 */
static void tell_of_whole(struct actmem_why *why, const struct pages_there *before,
			  const struct pages_there *now)
{
	bool is_of_node = why->reason == ACTMEM_WHY_NODE_FULL ||
			  why->reason == ACTMEM_WHY_NODE_LIMIT || why->reason == ACTMEM_WHY_DMEM;
	bool is_of_all = why->reason == ACTMEM_WHY_MEMLOCK || why->reason == ACTMEM_WHY_MEMCG ||
			 why->reason == ACTMEM_WHY_USER_LIMIT ||
			 why->reason == ACTMEM_WHY_MOUNT_LIMIT;
	uint64_t come = 0;

	if (is_of_node && why->node >= 0 && why->node < ACTMEM_NODES_MAX)
		come = more_bytes(now->of_node[why->node], before->of_node[why->node]);
	else if (is_of_all)
		come = more_bytes(now->info.allocated_bytes, before->info.allocated_bytes);
	why->wanted += come;
	why->available += come;
}

/*
 * Populates the rest of the range with a single call after the helper threads have ended. One
 * thread may succeed where several threads exceeded a limit. If this call fails, too, the reason in
 * @range is exact, because no helper thread allocates pages meanwhile.
 */
static int populate_rest(int fd, const struct pages_there *before,
			 struct actmem_ioctl_range *range)
{
	struct pages_there now;
	int error;

	count_pages(fd, &now);
	error = request_change(fd, ACTMEM_IOC_POPULATE, range->offset, range->length, range);
	if (error)
		tell_of_whole(&range->why, before, &now);
	return error;
}

int driver_populate_range(int fd, uint64_t offset, uint64_t length,
			  struct actmem_ioctl_range *range)
{
	struct helpers helpers = { .help = help_populate, .context = &fd };
	struct pages_there before;
	int error;

	if (length < HELPERS_LENGTH || count_pages(fd, &before))
		return request_change(fd, ACTMEM_IOC_POPULATE, offset, length, range);
	helpers.is_near = goes_by_cpu(&before.info);
	helpers_begin(&helpers, offset, length, ACTMEM_PAGE_BYTES);
	error = request_change(fd, ACTMEM_IOC_POPULATE, offset, length, range);
	return helpers_end(&helpers) && error ? populate_rest(fd, &before, range) : error;
}

int driver_populate(const struct backing *backing, uint64_t offset, uint64_t length)
{
	struct actmem_ioctl_range range;
	int error = driver_populate_range(backing->fd, offset, length, &range);

	return tell_populate(error, backing->fd, &range);
}

int driver_discard(const struct backing *backing, uint64_t offset, uint64_t length)
{
	struct actmem_ioctl_range range;
	int error = request_change(backing->fd, ACTMEM_IOC_DISCARD, offset, length, &range);

	return tell_discard(error, &range);
}
