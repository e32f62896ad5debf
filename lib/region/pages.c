/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Populates and discards pages of regions, and exports them to devices.
 */
#include <errno.h>
#include <stdio.h>

#include "base/base.h"
#include "region/regions.h"

/*
 * Returns 0, or -EINVAL with an error message if the range does not consist of whole pages of the
 * region.
 */
static int check_range(const struct actmem_region *region, uint64_t offset, uint64_t length)
{
	uint64_t whole = region->backing.length, page_bytes = region->backing.page_bytes;

	if (length && !(offset % page_bytes) && !(length % page_bytes) && length <= whole &&
	    offset <= whole - length)
		return 0;
	return fail(EINVAL, "%llu bytes at %llu are not a range of whole pages of %s in a region of %s",
		    (unsigned long long)length, (unsigned long long)offset,
		    BYTES_TEXT(page_bytes), BYTES_TEXT(whole));
}

int region_check_writable(const struct actmem_region *region)
{
	if (region->backing.read_only)
		return fail(EPERM, "the region was opened with ACTMEM_OPEN_READ");
	return 0;
}

static int publish_pages(struct actmem_region *region)
{
	uint64_t node_bytes[ACTMEM_NODES_MAX] = { 0 };
	struct actmem_region_info info;
	int error;

	ACTMEM_INIT(&info);
	info.node_bytes = node_bytes;
	pthread_mutex_lock(&region->lock);
	error = region->backend->info(&region->backing, &info);
	if (!error)
		stats_set_pages(region->record, info.pinned_bytes, node_bytes);
	pthread_mutex_unlock(&region->lock);
	return error;
}

/*
 * Publishes the page counts of a memfd region after a change, even if the change failed midway. If
 * the change failed, returns @error and keeps the error message.
 */
static int publish_change(struct actmem_region *region, int error)
{
	char words[ERROR_TEXT_MAX];

	if (!region->record)
		return error;
	if (!error)
		return publish_pages(region);
	snprintf(words, sizeof(words), "%s", fail_words());
	publish_pages(region);
	return fail_as_before(error, words);
}

void region_hold_pages(struct actmem_region *region)
{
	/*
	 * If another thread is populating or discarding pages of a memfd region, wait until it has
	 * finished. For a driver's region, such a thread holds no lock: the driver never discards
	 * pinned pages.
	 */
	pthread_mutex_lock(&region->pages_lock);
	region->buffers++;
	pthread_mutex_unlock(&region->pages_lock);
}

void region_let_go_of_pages(struct actmem_region *region)
{
	region->buffers--;
}

/*
 * Populates or discards a range. Does not lock region->lock, because the change can take seconds.
 * Meanwhile, `actmem waits` shows this thread as waiting.
 */
static int change_range(struct actmem_region *region, uint64_t offset, uint64_t length,
			int (*check)(const struct actmem_region *region),
			int (*change)(const struct backing *backing, uint64_t offset,
				      uint64_t length))
{
	bool in_turn = region->backend->in_turn;
	struct published_wait *wait;
	int error = check_range(region, offset, length);

	if (!error)
		error = check(region);
	if (error)
		return error;
	thread_hold_cancellation();
	wait = wait_begin(region->am->waits, WAIT_REGION, 0, length, region->backing.name);
	if (in_turn)
		pthread_mutex_lock(&region->pages_lock);
	/* Check again: another thread may have registered the pages meanwhile. */
	error = check(region);
	if (!error)
		error = change(&region->backing, offset, length);
	if (in_turn)
		pthread_mutex_unlock(&region->pages_lock);
	wait_end(region->am->waits, wait);
	error = publish_change(region, error);
	thread_let_cancellation();
	return error;
}

int actmem_region_populate(struct actmem_region *region, uint64_t offset, uint64_t length)
{
	int error;

	if (!region)
		return fail(EINVAL, "actmem_region_populate: no region");
	error = check_owner(region->am);
	return error ? error : change_range(region, offset, length, region_check_writable,
					    region->backend->populate);
}

/* Checks that pages of the region may be discarded. Returns 0, or -errno with an error message. */
static int check_discard(const struct actmem_region *region)
{
	int error = region_check_unregistered(region, "discarded");

	if (!error && region->buffers)
		error = fail(EBUSY, "a queue has registered the region's memory, so it cannot be discarded; attach it with ACTMEM_ATTACH_PLAIN");
	return error ? error : region_check_writable(region);
}

int actmem_region_discard(struct actmem_region *region, uint64_t offset, uint64_t length)
{
	int error;

	if (!region)
		return fail(EINVAL, "actmem_region_discard: no region");
	error = check_owner(region->am);
	return error ? error : change_range(region, offset, length, check_discard,
					    region->backend->discard);
}

int actmem_region_export(struct actmem_region *region, uint64_t offset, uint64_t length, int *fd)
{
	struct published_wait *wait;
	int error;

	if (!region || !fd)
		return fail(EINVAL, "actmem_region_export: region or fd is NULL");
	error = check_owner(region->am);
	if (!error)
		error = region_check_writable(region);
	if (!error)
		error = check_range(region, offset, length);
	if (error)
		return error;
	/* The backend populates missing pages first, which can take seconds. */
	thread_hold_cancellation();
	wait = wait_begin(region->am->waits, WAIT_REGION, 0, length, region->backing.name);
	error = region->backend->export(&region->backing, offset, length, fd);
	wait_end(region->am->waits, wait);
	thread_let_cancellation();
	return error;
}
