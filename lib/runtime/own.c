/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions of memory that a runtime allocates itself. A heap uses such regions if the runtime
 * refuses to register the heap's usual regions. Registering such a region allocates its memory, and
 * unregistering it frees the memory. So the region is registered as long as it exists.
 */
#include <errno.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "runtime/inside.h"

#define PAGE_BYTES	4096

static int own_map(struct backing *backing)
{
	return 0;
}

static void own_unmap(struct backing *backing)
{
}

static int own_populate(const struct backing *backing, uint64_t offset, uint64_t length)
{
	return 0;
}

static int own_discard(const struct backing *backing, uint64_t offset, uint64_t length)
{
	return fail(EOPNOTSUPP, "the memory is the runtime's own, so its pages cannot be discarded");
}

static int own_export(const struct backing *backing, uint64_t offset, uint64_t length, int *fd)
{
	return fail(EOPNOTSUPP, "the memory is the runtime's own, so it has no descriptor");
}

/* Does not report nodes, which only the accelerator's driver knows. */
static int own_info(const struct backing *backing, struct actmem_region_info *info)
{
	info->allocated_bytes = backing->length;
	info->pinned_bytes = backing->length;
	info->page_bytes = backing->page_bytes;
	info->pages = backing->pages;
	info->uid = getuid();
	info->pid = getpid();
	return 0;
}

static void own_release(struct backing *backing)
{
}

/* This backend has no create(): runtime_own_region() creates the regions. */
static const struct backend backend_own = {
	.kind = ACTMEM_BACKEND_AUTO,
	.name = "the runtime's own",
	.map = own_map,
	.unmap = own_unmap,
	.populate = own_populate,
	.discard = own_discard,
	.export = own_export,
	.info = own_info,
	.release = own_release,
};

bool own_is(const struct actmem_region *region)
{
	return region->backend == &backend_own;
}

void own_place(struct actmem_region *region, void *address)
{
	region->backing.address = address;
}

int runtime_own_region(struct actmem_runtime *runtime, uint64_t length, uint32_t flags,
		       const char *why, struct actmem_region **result)
{
	char words[ERROR_TEXT_MAX];
	struct actmem_region *region;
	int error;

	if (!runtime->options.own_memory || !runtime->kind->has_own)
		return fail(EOPNOTSUPP, "the runtime's own memory is not allowed");
	region = region_new(runtime->am, &backend_own);
	if (!region)
		return -ENOMEM;
	region->backing.fd = -1;
	region->backing.length = length;
	region->backing.page_bytes = PAGE_BYTES;
	region->backing.pages = ACTMEM_PAGES_4K;
	error = region_finish(region, 0, result);
	if (error)
		return error;
	error = region_register_in(region, runtime, flags, &length, length);
	if (error) {
		region_close(region);
		return error;
	}
	knob_spell(words, sizeof(words), why, ACTMEM_NAMES_VARIABLES);
	runtime->options.own_memory(length, words);
	return 0;
}
