/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A machine without CUDA: who wants it is told, and AUTO does without. What
 * regions make of that is tested in tests/runtime.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_test.h"

int main(int count, char **arguments)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options), .kind = ACTMEM_RUNTIME_CUDA,
	};
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
	ok(strstr(actmem_runtime_describe(runtime), "null: no device, as requested"),
	   "it is there where it is asked for");
	returns(actmem_runtime_close(runtime), 0);

	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (library) {
		tap_skip("with a GPU, CUDA is not absent");
		dlclose(library);
	} else {
		returns(actmem_runtime_open(am, &options, &runtime), -ENOENT);
		says("libcuda.so.1 cannot be loaded (libcuda.so.1");
		runtime = runtime_or_bail(am, ACTMEM_RUNTIME_AUTO);
		ok(!strncmp(actmem_runtime_describe(runtime), "null: libcuda.so.1 cannot be loaded",
			    strlen("null: libcuda.so.1 cannot be loaded")),
		   "AUTO does without, and tells why");
		returns(actmem_runtime_close(runtime), 0);
	}
	return end_tests(am, before);
}
