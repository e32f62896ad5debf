/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Runtimes in a static program, which can load none: it is told so, AUTO does without,
 * and regions of every backend and kind of pages are registered with nobody.
 */
#include <errno.h>
#include <string.h>

#include "actmem_runtime.h"
#include "common.h"

#define CHUNK	(2 * MIB)	/* LENGTH in four */

static void try_cuda(struct actmem *am)
{
	struct actmem_runtime_options options;
	struct actmem_runtime *runtime;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_CUDA;
	returns(actmem_runtime_open(am, &options, &runtime), -ENOENT);
	says("static program");
}

static void test_region(struct actmem *am, struct actmem_runtime *runtime, uint32_t flags)
{
	struct actmem_registration registration = { .size = sizeof(registration) };
	struct actmem_runtime_info info = { .size = sizeof(info) };
	struct actmem_region *region;
	struct actmem_nodes nodes;
	uint64_t pointer;
	char *memory;

	returns(create_region(am, LENGTH, flags, &region), 0);
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(info_or_bail(region).allocated_bytes == LENGTH, "all pages are there");
	returns(actmem_region_discard(region, 0, LENGTH), -EBUSY);
	says("actmem_region_unregister()");
	memory = memory_or_bail(region);
	returns(actmem_region_register(region, runtime, 0), -EEXIST);
	returns(actmem_region_close(region), -EBUSY);
	returns(actmem_runtime_close(runtime), -EBUSY);
	returns(actmem_runtime_get_info(runtime, &info), 0);
	ok(info.kind == ACTMEM_RUNTIME_NULL && info.regions == 1 && info.bytes == LENGTH &&
	   info.chunks == LENGTH / CHUNK && info.node == -1, "it is counted");
	returns(actmem_region_get_registration(region, &registration), 0);
	ok(registration.address == memory && registration.chunks == LENGTH / CHUNK &&
	   !registration.lost_chunks, "and told of");
	returns(actmem_runtime_pointer(runtime, memory, &pointer, NULL), -EOPNOTSUPP);
	returns(actmem_runtime_nodes(runtime, &nodes), 0);
	returns(actmem_region_unregister(region), 0);
	returns(actmem_runtime_get_info(runtime, &info), 0);
	ok(!info.regions && !info.bytes && !info.chunks && info.regions_total, "the counts return");
	returns(actmem_region_discard(region, 0, LENGTH), 0);
	returns(actmem_region_close(region), 0);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();
	struct actmem_runtime_options options = { .size = sizeof(options), .chunk_bytes = CHUNK };
	struct actmem_runtime *runtime;

	try_cuda(am);
	returns(actmem_runtime_open(am, &options, &runtime), 0);
	ok(strstr(actmem_runtime_describe(runtime), "static program"), "AUTO does without: %s",
	   actmem_runtime_describe(runtime));
	test_region(am, runtime, 0);
	test_region(am, runtime, ACTMEM_REGION_LAZY);
	returns(actmem_runtime_close(runtime), 0);
	return end_tests(am, before);
}
