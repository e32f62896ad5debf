/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * dlvsym(): a libcuda.so.1 whose functions have a version, as no real one has so far.
 *
 * Started with:
 * Started with: ACTMEM_CUDA=0
 */
#include <dlfcn.h>
#include <string.h>

#include "preload_test.h"

int main(void)
{
	void *library = part("versioned/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	const char *words;
	unsigned int i;

	for (i = 0; hooked_names[i]; i++)
		is_hook(dlvsym(library, hooked_names[i], "CUDA_TEST"), "%s by dlvsym()",
			hooked_names[i]);
	is_hook(dlsym(library, "cuMemHostAlloc"), "and by dlsym()");
	is_of_driver(dlvsym(library, "cuInit", "CUDA_TEST"), "cuInit is the driver's");
	ok(!dlerror(), "no word of that");
	ok(!dlvsym(library, "cuMemHostAlloc", "CUDA_OTHER"), "another version is not found");
	words = dlerror();
	ok(words && strstr(words, "undefined symbol: cuMemHostAlloc, version CUDA_OTHER"),
	   "and told as ever (%s)", words);
	return tap_end();
}
