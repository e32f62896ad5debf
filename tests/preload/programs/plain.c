/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program without CUDA, which prints what its lookups find and what dlerror() says:
 * the same with a preload as without.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

static const char *name_of(const void *address)
{
	Dl_info info;

	return address && dladdr(address, &info) ? info.dli_fname : "nothing";
}

static void show(const char *what, const char *name, void *found)
{
	const char *words = dlerror();

	printf("%s %s: %s, %s\n", what, name, name_of(found), words ? words : "no error");
}

int main(void)
{
	static const char *const names[] = {
		"cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemFreeHost", "cuMemHostRegister_v2",
		"cuMemHostUnregister", "cuMemHostGetDevicePointer_v2", "cuMemHostGetFlags",
		"cuGetProcAddress", "cuGetProcAddress_v2", "cuInit", "cu", "cuserid", "", "dlopen",
		"no_such_function",
	};
	void *program = dlopen(NULL, RTLD_NOW), *library = dlopen("libm.so.6", RTLD_NOW);
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		show("default", names[i], dlsym(RTLD_DEFAULT, names[i]));
		show("next", names[i], dlsym(RTLD_NEXT, names[i]));
		show("program", names[i], dlsym(program, names[i]));
		show("library", names[i], dlsym(library, names[i]));
		show("version", names[i], dlvsym(RTLD_DEFAULT, names[i], "GLIBC_2.2.5"));
		show("no version", names[i], dlvsym(library, names[i], "NO_SUCH_1.0"));
		show("next version", names[i], dlvsym(RTLD_NEXT, names[i], "GLIBC_2.2.5"));
	}
	show("no library", "libcuda.so.none", dlopen("libcuda.so.none", RTLD_NOW));
	return 0;
}
