/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Creates, receives, maps and closes regions, for all backends. Functions for the pages of regions
 * are in pages.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/choose.h"
#include "region/context.h"
#include "region/options.h"
#include "region/regions.h"

struct actmem_region *region_new(struct actmem *am, const struct backend *backend)
{
	struct actmem_region *region = calloc(1, sizeof(*region));

	if (!region) {
		fail(ENOMEM, "no memory for a region's handle");
		return NULL;
	}
	region->am = am;
	region->backend = backend;
	region->making[MAKING_REGION] = -1;
	region->making[MAKING_LOCK] = -1;
	region->held.descriptors = region->making;
	region->held.count = MAKING_COUNT;
	held_add(am, &region->held);
	pthread_mutex_init(&region->pages_lock, NULL);
	pthread_mutex_init(&region->lock, NULL);
	return region;
}

static void free_region(struct actmem_region *region)
{
	pthread_mutex_destroy(&region->lock);
	pthread_mutex_destroy(&region->pages_lock);
	free(region);
}

/*
 * Publishes a region of the memfd backend for other processes. The driver reports its own regions.
 */
static int publish_region(struct actmem *am, struct actmem_region *region)
{
	uint64_t node_bytes[ACTMEM_NODES_MAX] = { 0 };
	struct actmem_region_info info;
	int error;

	if (region->backend->kind != ACTMEM_BACKEND_MEMFD)
		return 0;
	ACTMEM_INIT(&info);
	info.node_bytes = node_bytes;
	info.id = region->backing.id;
	error = region->backend->info(&region->backing, &info);
	if (error)
		return error;
	handles_lock();
	error = stats_add(&am->stats, region->backing.device, region->backing.received, &info,
			  &region->record);
	handles_unlock();
	return error;
}

/*
 * Publishes a region, and adds it to the handle's list and counters. On failure, frees the region.
 */
static int add_to_lists(struct actmem *am, struct actmem_region *region)
{
	struct counters *counters = am->counters;
	uint64_t length = region->backing.length;
	int error = publish_region(am, region);

	if (error) {
		held_drop(&region->held);
		region->backend->release(&region->backing);
		free_region(region);
		return error;
	}
	handles_lock();
	link_remove(&region->held.link);
	region->next = am->regions;
	if (region->next)
		region->next->previous = region;
	am->regions = region;
	handles_unlock();

	counter_add(&counters->regions, 1);
	counter_add(&counters->regions_total, 1);
	counter_add(&counters->fallbacks_total, region->backing.fallbacks);
	counter_raise(&counters->region_bytes_peak, counter_add(&counters->region_bytes, length));
	return 0;
}

int region_finish(struct actmem_region *region, int error, struct actmem_region **result)
{
	if (error) {
		held_drop(&region->held);
		free_region(region);
		return error;
	}
	/* After a success, no error message may stay, except one about this region's fallbacks. */
	if (!region->backing.fallbacks)
		fail_clear();
	error = add_to_lists(region->am, region);
	if (error)
		return error;
	if (region->by_default && region->backing.fallbacks)
		region_report(region);
	*result = region;
	return 0;
}

/*
 * Returns the backend for a request. The driver has only 2M pages, so 1G pages come from memfd,
 * unless the caller asked for the driver.
 */
static const struct backend *backend_for(const struct actmem *am,
					 const struct region_request *request)
{
	bool is_open = am->options.backend == ACTMEM_BACKEND_AUTO;

	return is_open && request->pages == ACTMEM_PAGES_1G ? &backend_memfd : am->backend;
}

int region_create(struct actmem *am, const struct region_request *request,
		  struct actmem_region **result)
{
	struct actmem_region *region = region_new(am, backend_for(am, request));
	struct region_request its = *request;
	struct published_wait *wait;
	int error;

	if (!region)
		return -ENOMEM;
	its.making = region->making;
	thread_hold_cancellation();
	wait = wait_begin(am->waits, WAIT_REGION, 0, request->length, request->name);
	region->by_default = request->by_default;
	error = region->backend->create(am->device, &its, &region->backing);
	wait_end(am->waits, wait);
	error = region_finish(region, error, result);
	thread_let_cancellation();
	return error;
}

int actmem_region_create(struct actmem *am, const struct actmem_region_options *options,
			 struct actmem_region **result)
{
	struct actmem_region_options taken;
	struct region_request request;
	int error;

	if (!am || !options || !result)
		return fail(EINVAL, "actmem_region_create: am, options or region is NULL");
	error = check_owner(am);
	if (!error)
		error = take_struct(&taken, sizeof(taken), options, "region options");
	if (!error)
		error = options_resolve(&am->options, &taken, false, &request);
	return error ? error : region_create(am, &request, result);
}

int actmem_region_from_fd(struct actmem *am, int fd, struct actmem_region **result)
{
	struct actmem_region_options none;
	struct region_request request = { 0 };
	const struct backend *backend;
	struct actmem_region *region;
	int error;

	if (!am || !result || fd < 0)
		return fail(EINVAL, "actmem_region_from_fd: am or region is NULL, or fd is negative");
	backend = am->backend;
	error = check_owner(am);
	if (!error && am->options.backend == ACTMEM_BACKEND_AUTO)
		error = descriptor_backend(fd, &backend);
	if (error)
		return error;
	region = region_new(am, backend);
	if (!region)
		return -ENOMEM;
	ACTMEM_INIT(&none);
	options_permit(&am->options, &none, &request);
	request.making = region->making;
	region->by_default = request.by_default;
	thread_hold_cancellation();
	error = backend->adopt(am->device, fd, &request, &region->backing);
	error = region_finish(region, error, result);
	thread_let_cancellation();
	return error;
}

int actmem_region_fd(const struct actmem_region *region)
{
	int error;

	if (!region)
		return fail(EINVAL, "actmem_region_fd: no region");
	error = check_owner(region->am);
	return error ? error : region->backing.fd;
}

uint64_t actmem_region_length(const struct actmem_region *region)
{
	return region ? region->backing.length : 0;
}

static void count_mapped(struct actmem_region *region)
{
	counter_add(&region->am->counters->regions_mapped, 1);
	if (region->record)
		stats_set_mapped(region->record, region->backing.length);
}

int actmem_region_map(struct actmem_region *region, void **address)
{
	int error;

	if (!region || !address)
		return fail(EINVAL, "actmem_region_map: region or address is NULL");
	error = check_owner(region->am);
	if (error)
		return error;
	pthread_mutex_lock(&region->lock);
	if (!region->maps)
		error = region->backend->map(&region->backing);
	if (!error) {
		if (!region->maps++)
			count_mapped(region);
		*address = region->backing.address;
	}
	pthread_mutex_unlock(&region->lock);
	return error;
}

static void unmap_last(struct actmem_region *region)
{
	region->backend->unmap(&region->backing);
	counter_subtract(&region->am->counters->regions_mapped, 1);
	if (region->record)
		stats_set_mapped(region->record, 0);
}

int actmem_region_unmap(struct actmem_region *region)
{
	int error;

	if (!region)
		return fail(EINVAL, "actmem_region_unmap: no region");
	error = check_owner(region->am);
	if (error)
		return error;
	pthread_mutex_lock(&region->lock);
	if (!region->maps)
		error = fail(EINVAL, "the region is not mapped");
	else if (!--region->maps)
		unmap_last(region);
	pthread_mutex_unlock(&region->lock);
	return error;
}

/* Copies the number of bytes on each node to the caller's array, which has @room elements. */
static void give_nodes(struct actmem_region_info *info, uint64_t *node_bytes, uint32_t room)
{
	uint32_t node;

	info->node_count = nodes_told(info->node_bytes);
	for (node = 0; node < room; node++)
		node_bytes[node] = node < info->node_count ? info->node_bytes[node] : 0;
	info->node_bytes = node_bytes;
}

int actmem_region_get_info(struct actmem_region *region, struct actmem_region_info *info)
{
	uint64_t node_bytes[ACTMEM_NODES_MAX] = { 0 };
	struct actmem_region_info now, asked;
	int error;

	if (!region || !info)
		return fail(EINVAL, "actmem_region_get_info: region or info is NULL");
	error = check_owner(region->am);
	if (!error)
		error = take_struct(&asked, sizeof(asked), info, "region info");
	if (!error && asked.node_count && !asked.node_bytes)
		error = fail(EINVAL, "region info: node_count is %u, but node_bytes is NULL",
			     asked.node_count);
	if (error)
		return error;
	ACTMEM_INIT(&now);
	now.node_bytes = asked.node_bytes ? node_bytes : NULL;
	thread_hold_cancellation();
	pthread_mutex_lock(&region->lock);
	now.id = region->backing.id;
	now.length = region->backing.length;
	now.backend = region->backend->kind;
	now.named = region->backing.named;
	now.mapped_bytes = region->maps ? now.length : 0;
	memcpy(now.name, region->backing.name, sizeof(now.name));
	error = region->backend->info(&region->backing, &now);
	pthread_mutex_unlock(&region->lock);
	if (!error)
		process_command(now.pid, now.command);
	thread_let_cancellation();
	if (!error && now.node_bytes)
		give_nodes(&now, asked.node_bytes, asked.node_count);
	return error ? error : give_struct(info, &now, sizeof(now), "region info");
}

int region_check_unregistered(const struct actmem_region *region, const char *what)
{
	if (!region->registration)
		return 0;
	return fail(EBUSY, "the region is registered with a runtime, and cannot be %s before actmem_region_unregister()",
		    what);
}

void region_close(struct actmem_region *region)
{
	uint64_t length = region->backing.length;
	struct actmem *am = region->am;

	handles_lock();
	if (region->record)
		stats_remove(&am->stats, region->record);
	region->record = NULL;		/* another region can get it now */
	if (region->previous)
		region->previous->next = region->next;
	else
		am->regions = region->next;
	if (region->next)
		region->next->previous = region->previous;
	/*
	 * Close the descriptor under the lock, so that a child that is forked now does not get it.
	 * This does not take long, because the mapping keeps the memory.
	 */
	if (region->backing.address) {
		close(region->backing.fd);
		region->backing.fd = -1;
	}
	handles_unlock();

	if (region->maps)
		unmap_last(region);
	region->backend->release(&region->backing);
	counter_subtract(&am->counters->regions, 1);
	counter_subtract(&am->counters->region_bytes, length);
	free_region(region);
}

int actmem_region_close(struct actmem_region *region)
{
	unsigned int attachments;
	int error;

	if (!region)
		return fail(EINVAL, "actmem_region_close: no region");
	error = check_owner(region->am);
	if (!error)
		error = region_check_unregistered(region, "closed");
	if (error)
		return error;
	attachments = region_attachments(region);
	if (attachments)
		return fail(EBUSY, "the region is attached to %u queue%s; call actmem_queue_detach() first",
			    attachments, attachments == 1 ? "" : "s");
	region_close(region);
	return 0;
}
