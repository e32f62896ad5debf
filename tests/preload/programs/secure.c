/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Tells whether it is set-user-ID, and whose function it finds in the libcuda.so.1 of argv[1]. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

int main(int argc, char **argv)
{
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	void *found = library ? dlsym(library, "cuMemHostAlloc") : NULL;
	Dl_info info;

	if (!found || !dladdr(found, &info))
		return 1;
	printf("%s %s\n", getauxval(AT_SECURE) ? "secure" : "plain",
	       strrchr(info.dli_fname, '/') + 1);
	return 0;
}
