/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The program's own lookups: of whatever kind, they find the preload's functions for
 * the names that it has, and for all others what they would find without it.
 *
 * Started with:
 * Started with: ACTMEM_CUDA=0
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "preload_test.h"

/* As programs have it that were built with glibc before 2.34. */
#ifdef __x86_64__
void *old_dlsym(void *handle, const char *name);
asm(".symver old_dlsym, dlsym@GLIBC_2.2.5");
#else
#define old_dlsym	dlsym
#endif

static void look_at_all(void *handle, const char *how)
{
	unsigned int i;

	for (i = 0; hooked_names[i]; i++)
		is_hook(dlsym(handle, hooked_names[i]), "%s by dlsym(%s)", hooked_names[i], how);
	ok(!dlerror(), "dlerror() has nothing to say of dlsym(%s)", how);
}

static void test_others(void *cuda)
{
	static const char *const others[] = {
		"cuInit", "cuMemAllocHost", "cuMemHostRegister", "cuMemHostGetDevicePointer",
		"cuPointerGetAttribute",
	};
	const char *words;
	unsigned int i;

	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		is_of_driver(dlsym(cuda, others[i]), "%s is the driver's", others[i]);
	ok(!dlsym(cuda, "cuNoSuch"), "what is not there is not found");
	words = dlerror();
	ok(words && strstr(words, "libcuda.so.1: undefined symbol: cuNoSuch"),
	   "and told as ever (%s)", words);
	ok(!dlerror(), "once");
	ok(dlsym(cuda, "cu") == NULL && dlsym(cuda, "c") == NULL && dlsym(cuda, "") == NULL,
	   "nor are beginnings of names");
	ok(!strncmp(owner(dlsym(RTLD_DEFAULT, "cuserid")), "libc.so", 7),
	   "nor is one of the C library's taken for one of them");
}

int main(void)
{
	void *local, *global;

	ok(!dlsym(RTLD_DEFAULT, "cuMemHostAlloc"), "without CUDA there is none of its functions");
	ok(!dlsym(RTLD_NEXT, "cuMemHostAlloc"), "nor is there behind the program");
	global = dlopen(NULL, RTLD_NOW);
	ok(!dlsym(global, "cuMemHostAlloc"), "nor in all of it");
	cuda_or_skip();
	local = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	look_at_all(local, "handle");
	is_hook(old_dlsym(local, "cuMemHostAlloc"), "an old program's dlsym() finds it as well");
	ok(!dlsym(RTLD_DEFAULT, "cuMemHostAlloc"), "loaded RTLD_LOCAL, it is not everyone's");
	test_others(local);

	dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	look_at_all(RTLD_DEFAULT, "RTLD_DEFAULT");
	look_at_all(global, "dlopen(NULL)");
	/* What comes next is asked for by those who put themselves in front. */
	is_of_driver(dlsym(RTLD_NEXT, "cuMemHostAlloc"), "RTLD_NEXT is the driver's");
	return tap_end();
}
