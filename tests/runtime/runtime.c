/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Runtimes in a static program, which can load none: it is told so, AUTO does without,
 * and regions of every backend and kind of pages are registered with nobody.
 */
#include <errno.h>
#include <string.h>

#include "actmem_runtime.h"
#include "common.h"

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
	struct actmem_runtime_info info = { .size = sizeof(info) };
	struct actmem_region *region;

	returns(create_region(am, LENGTH, flags, &region), 0);
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(info_or_bail(region).allocated_bytes == LENGTH, "all pages are there");
	returns(actmem_region_discard(region, 0, LENGTH), -EBUSY);
	says("actmem_region_unregister()");
	returns(actmem_region_close(region), -EBUSY);
	returns(actmem_runtime_get_info(runtime, &info), 0);
	ok(info.kind == ACTMEM_RUNTIME_NULL && info.bytes == LENGTH, "it is counted");
	returns(actmem_region_unregister(region), 0);
	returns(actmem_region_discard(region, 0, LENGTH), 0);
	returns(actmem_region_close(region), 0);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();
	struct actmem_runtime *runtime;

	try_cuda(am);
	returns(actmem_runtime_open(am, NULL, &runtime), 0);
	ok(strstr(actmem_runtime_describe(runtime), "static program"), "AUTO does without: %s",
	   actmem_runtime_describe(runtime));
	test_region(am, runtime, 0);
	test_region(am, runtime, ACTMEM_REGION_LAZY);
	returns(actmem_runtime_close(runtime), 0);
	return end_tests(am, before);
}
