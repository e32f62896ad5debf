/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "preload_test.h"

const char *const hooked_names[] = {
	"cuMemHostAlloc", "cuMemAllocHost_v2", "cuMemFreeHost", "cuMemHostRegister_v2",
	"cuMemHostUnregister", "cuMemHostGetDevicePointer_v2", "cuMemHostGetFlags",
	"cuGetProcAddress", "cuGetProcAddress_v2", NULL,
};

const char *const hooked_addresses[] = {
	"cuMemHostAlloc", "cuMemAllocHost", "cuMemFreeHost", "cuMemHostRegister",
	"cuMemHostUnregister", "cuMemHostGetDevicePointer", "cuMemHostGetFlags",
	"cuGetProcAddress", NULL,
};

bool hooks_wanted(void)
{
	const char *wanted = getenv("ACTMEM_CUDA");

	return wanted && !strcmp(wanted, "1");
}

const char *owner(const void *address)
{
	const char *slash;
	Dl_info info;

	if (!address || !dladdr(address, &info))
		return "";
	slash = strrchr(info.dli_fname, '/');
	return slash ? slash + 1 : info.dli_fname;
}

bool is_of_file(const void *function, const char *wanted, const char *file, int line,
		const char *format, ...)
{
	const char *found = owner(function);
	char text[256];
	va_list arguments;
	bool passed;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	passed = tap_ok(!strncmp(found, wanted, strlen(wanted)), file, line, "%s", text);
	if (!passed)
		printf("# it is of '%s', and not of %s\n", found, wanted);
	return passed;
}

void *part(const char *name, int flags)
{
	char path[PATH_MAX] = "";
	void *handle;
	Dl_info info;

	if (!dladdr((void *)part, &info) || !realpath("/proc/self/exe", path))
		tap_bail("/proc/self/exe");
	strcpy(strrchr(path, '/') + 1, name);
	handle = dlopen(path, flags);
	if (!handle)
		tap_bail("%s", dlerror());
	return handle;
}

void *symbol(void *handle, const char *name)
{
	void *found = dlsym(handle, name);

	if (!found)
		tap_bail("%s", dlerror());
	return found;
}
