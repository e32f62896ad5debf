/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The pages of regions: made and given back, copied, and exported to devices.
 */
#include <errno.h>
#include <stdio.h>

#include "error.h"
#include "region.h"

int region_check_range(const struct actmem_region *region, uint64_t offset, uint64_t length)
{
	uint64_t whole = region->backing.length, page_bytes = region->backing.page_bytes;

	if (length && !(offset % page_bytes) && !(length % page_bytes) && length <= whole &&
	    offset <= whole - length)
		return 0;
	return fail(EINVAL, "%llu bytes at %llu are no range of whole pages of %s in a region of %s",
		    (unsigned long long)length, (unsigned long long)offset,
		    BYTES_TEXT(page_bytes), BYTES_TEXT(whole));
}

int region_check_writable(const struct actmem_region *region, bool sealed_too)
{
	if (region->backing.read_only)
		return fail(EPERM, "the region was opened with ACTMEM_OPEN_READ");
	if (region->backing.sealed && sealed_too)
		return fail(EPERM, "the region is sealed");
	return 0;
}

static int publish_pages(struct actmem_region *region)
{
	struct actmem_region_info info;
	int error;

	ACTMEM_INIT(&info);
	pthread_mutex_lock(&region->lock);
	error = region->backend->info(&region->backing, &info);
	if (!error)
		stats_set_pages(region->record, info.pinned_bytes, info.node_bytes);
	pthread_mutex_unlock(&region->lock);
	return error;
}

/*
 * Tells others of a memfd's pages as they are now, also if the change failed
 * midway. The first error is the one that the caller learns of.
 */
static int publish_change(struct actmem_region *region, int error)
{
	char words[ERROR_TEXT_MAX];

	if (!region->record)
		return error;
	if (!error)
		return publish_pages(region);
	snprintf(words, sizeof(words), "%s", actmem_error());
	publish_pages(region);
	return fail(-error, "%s", words);
}

/* The region's lock is not held, as this may take long. */
static int change_range(struct actmem_region *region, uint64_t offset, uint64_t length,
			bool writes, int (*change)(const struct backing *backing, uint64_t offset,
				      uint64_t length))
{
	bool in_turn = region->backend->in_turn;
	int error = region_check_range(region, offset, length);

	if (!error)
		error = region_check_writable(region, writes);
	if (error)
		return error;
	if (in_turn)
		pthread_mutex_lock(&region->pages_lock);
	error = change(&region->backing, offset, length);
	if (in_turn)
		pthread_mutex_unlock(&region->pages_lock);
	return publish_change(region, error);
}

int actmem_region_populate(struct actmem_region *region, uint64_t offset, uint64_t length)
{
	int error;

	if (!region)
		return fail(EINVAL, "actmem_region_populate: no region");
	error = check_owner(region->am);
	return error ? error : change_range(region, offset, length, false,
				       region->backend->populate);
}

int region_check_discard(const struct actmem_region *region)
{
	int error = region_check_unregistered(region, "discarded");

	if (error)
		return error;
	if (!region->backing.imported)
		return region_check_writable(region, true);
	return fail(EOPNOTSUPP, "the region is of imported memory%s, which is not discarded; to give memory back is for the owner of its file",
		    region->backing.pages == ACTMEM_PAGES_1G ? ", as pages of 1 GiB are" : "");
}

int actmem_region_discard(struct actmem_region *region, uint64_t offset, uint64_t length)
{
	int error;

	if (!region)
		return fail(EINVAL, "actmem_region_discard: no region");
	error = check_owner(region->am);
	if (!error)
		error = region_check_discard(region);
	return error ? error : change_range(region, offset, length, true,
				       region->backend->discard);
}

static int check_within(const struct actmem_region *region, uint64_t offset, uint64_t length,
			const char *which)
{
	uint64_t whole = region->backing.length;

	if (length && length <= whole && offset <= whole - length)
		return 0;
	return fail(EINVAL, "%llu bytes at %llu are no range of the region %s, which has %llu",
		    (unsigned long long)length, (unsigned long long)offset, which,
		    (unsigned long long)whole);
}

int region_check_copy(const struct actmem_region *to, uint64_t offset,
		      const struct actmem_region *from, uint64_t from_offset, uint64_t length)
{
	uint64_t distance = offset > from_offset ? offset - from_offset : from_offset - offset;
	int error;

	if (to->backend != from->backend)
		return fail(EINVAL, "cannot copy between backends, from %s to %s",
			    from->backend->name, to->backend->name);
	error = check_within(to, offset, length, "to copy to");
	if (!error)
		error = region_check_writable(to, true);
	if (!error)
		error = check_within(from, from_offset, length, "to copy from");
	if (error)
		return error;
	if (to->backing.id == from->backing.id && to->backing.device == from->backing.device &&
	    distance < length)
		return fail(EINVAL, "%llu bytes at %llu and at %llu of the same region overlap",
			    (unsigned long long)length, (unsigned long long)offset,
			    (unsigned long long)from_offset);
	return 0;
}

int actmem_region_copy(struct actmem_region *to, uint64_t offset, struct actmem_region *from,
		       uint64_t from_offset, uint64_t length)
{
	bool in_turn;
	int error;

	if (!to || !from)
		return fail(EINVAL, "actmem_region_copy: no region to copy %s", to ? "from" : "to");
	error = check_owner(to->am);
	if (!error)
		error = check_owner(from->am);
	if (!error)
		error = region_check_copy(to, offset, from, from_offset, length);
	if (error)
		return error;
	in_turn = to->backend->in_turn;
	if (in_turn)
		pthread_mutex_lock(&to->pages_lock);
	error = to->backend->copy(&to->backing, offset, &from->backing, from_offset, length);
	if (in_turn)
		pthread_mutex_unlock(&to->pages_lock);
	return publish_change(to, error);
}

int actmem_region_export(struct actmem_region *region, uint64_t offset, uint64_t length,
			 uint32_t flags, int *fd)
{
	int error;

	if (!region || !fd)
		return fail(EINVAL, "actmem_region_export: no region or nowhere to put the descriptor");
	error = check_owner(region->am);
	if (!error && flags & ~ACTMEM_DMABUF_READ_ONLY)
		error = fail(EINVAL, "actmem_region_export: flags 0x%x have bits that are none of ACTMEM_DMABUF_*",
			     flags);
	if (!error)
		error = region_check_range(region, offset, length);
	if (!error)
		error = region->backend->export(&region->backing, offset, length, flags, fd);
	return error;
}
