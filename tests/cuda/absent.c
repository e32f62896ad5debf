/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A machine without CUDA: who wants it is told, AUTO does without, and the null
 * runtime counts what it would have registered.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_test.h"

static void test_null(struct actmem *am, struct actmem_runtime *runtime)
{
	struct actmem_region *region = region_or_bail(am, "with nobody");
	struct actmem_registration registration = { .size = sizeof(registration) };
	struct actmem_runtime_info info;
	struct actmem_nodes nodes;
	char *memory = memory_or_bail(region);
	uint64_t pointer;

	returns(actmem_region_register(region, runtime, 0), 0);
	info = runtime_info(runtime);
	ok(info.kind == ACTMEM_RUNTIME_NULL && info.regions == 1 && info.bytes == LENGTH &&
	   info.chunks == LENGTH / CHUNK && info.node == -1, "the null runtime counts");
	returns(actmem_region_register(region, runtime, 0), -EEXIST);
	returns(actmem_region_close(region), -EBUSY);
	returns(actmem_runtime_close(runtime), -EBUSY);
	returns(actmem_region_get_registration(region, &registration), 0);
	ok(registration.address == memory && registration.chunks == LENGTH / CHUNK &&
	   !registration.lost_chunks, "and tells of a region");
	returns(actmem_runtime_pointer(runtime, memory, &pointer, NULL), -EOPNOTSUPP);
	returns(actmem_runtime_nodes(runtime, &nodes), 0);
	returns(actmem_region_unregister(region), 0);
	info = runtime_info(runtime);
	ok(!info.regions && !info.bytes && !info.chunks && info.regions_total == 1,
	   "the counts return to 0");
	returns(actmem_region_unmap(region), 0);
	returns(actmem_region_close(region), 0);
}

int main(int count, char **arguments)
{
	struct actmem_runtime_options options;
	struct actmem_runtime *runtime;
	struct usage before;
	struct actmem *am;
	void *library;

	/* As the program began: without the folder of the stand-in. */
	if (getenv("LD_LIBRARY_PATH")) {
		unsetenv("LD_LIBRARY_PATH");
		execv("/proc/self/exe", arguments);
	}
	before = usage_now();
	am = open_or_bail();
	runtime = runtime_or_bail(am, ACTMEM_RUNTIME_NULL);
	ok(strstr(actmem_runtime_describe(runtime), "null: no device, as asked for"),
	   "it is there where it is asked for");
	test_null(am, runtime);
	returns(actmem_runtime_close(runtime), 0);

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (library) {
		tap_skip("with a GPU, CUDA is not absent");
		dlclose(library);
	} else {
		ACTMEM_INIT(&options);
		options.kind = ACTMEM_RUNTIME_CUDA;
		returns(actmem_runtime_open(am, &options, &runtime), -ENOENT);
		says("libcuda.so.1 cannot be loaded (libcuda.so.1");
		runtime = runtime_or_bail(am, ACTMEM_RUNTIME_AUTO);
		ok(!strncmp(actmem_runtime_describe(runtime), "null: libcuda.so.1 cannot be loaded",
			    strlen("null: libcuda.so.1 cannot be loaded")),
		   "AUTO does without, and tells why");
		test_null(am, runtime);
		returns(actmem_runtime_close(runtime), 0);
	}
	return end_tests(am, before);
}
