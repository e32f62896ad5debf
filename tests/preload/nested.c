/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A libcuda.so.1 that is a shell for another one: the program's lookups find the
 * preload's functions, and its own find those of the inside.
 */
#include <dlfcn.h>
#include <string.h>

#include "preload_test.h"

int main(void)
{
	void *library = part("outer/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *(*outer_find)(const char *name);
	CUresult (*free_host)(void *memory);

	*(void **)&outer_find = symbol(library, "outer_find");
	is_of_driver(outer_find("cuMemFreeHost"), "the library's own lookup finds the inside");
	*(void **)&free_host = symbol(library, "cuMemFreeHost");
	is_hook((void *)free_host, "the program's finds the preload's function");
	cuda_returns(free_host(&library), CUDA_ERROR_NOT_INITIALIZED);
	is_of_driver(outer_find("cuMemHostAlloc"), "and that of the library the inside as before");
	is_hook(symbol(library, "cuMemHostAlloc"), "and the program's ours");
	return tap_end();
}
