/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program that closes libcuda.so.1 and opens it again, and one that has several.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload_test.h"

#define LIBRARY	"libcuda.so.1"

static void *open_cuda(void)
{
	return dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

static bool is_loaded(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD);

	if (library)
		dlclose(library);
	return library;
}

static void test_closing(void)
{
	CUresult (*get_count)(int *count);
	void *library = open_cuda(), *first;
	CUresult (*free_host)(void *memory);
	unsigned int i, different = 0;

	symbol(library, "cuInit");
	dlclose(library);
	ok(!is_loaded(), "who looks up nothing of ours can unload it");

	library = open_cuda();
	first = symbol(library, "cuMemHostAlloc");
	*(void **)&free_host = symbol(library, "cuMemFreeHost");
	*(void **)&get_count = symbol(library, "cuDeviceGetCount");
	is_hook(first, "after that it is looked up");
	dlclose(library);
	ok(is_loaded(), "it stays, as the preload calls it");
	cuda_returns(free_host(&first), CUDA_ERROR_NOT_INITIALIZED);
	for (i = 0; i < 100; i++) {
		library = open_cuda();
		different += symbol(library, "cuMemHostAlloc") != first;
		dlclose(library);
	}
	ok(!different, "opened again, it is the same");
	library = open_cuda();
	for (i = 0; i < 4; i++)
		dlclose(library);
	ok(is_loaded(), "closed more often than opened, it stays");
	cuda_returns(free_host(&first), CUDA_ERROR_NOT_INITIALIZED);
}

/* What it writes to stderr; @text is for a line. */
static void *hear(void *(*body)(void *context), void *context, char *text, size_t size)
{
	int saved = dup(STDERR_FILENO), ends[2];
	void *result;
	ssize_t length;

	if (saved < 0 || pipe2(ends, O_NONBLOCK))
		tap_bail("pipe");
	dup2(ends[1], STDERR_FILENO);
	result = body(context);
	dup2(saved, STDERR_FILENO);
	length = read(ends[0], text, size - 1);
	text[length > 0 ? length : 0] = '\0';
	close(saved);
	close(ends[0]);
	close(ends[1]);
	return result;
}

static void *find_alloc(void *library)
{
	return symbol(library, "cuMemHostAlloc");
}

/* The C library's dlopen() does not reach it, so that it could not be kept. */
static void test_namespace(void)
{
	char path[PATH_MAX], text[1024];
	void *apart, *found;

	if (!realpath("/proc/self/exe", path))
		tap_bail("/proc/self/exe");
	strcpy(strrchr(path, '/'), "/another/" LIBRARY);
	apart = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
	if (!apart)
		tap_bail("%s", dlerror());
	found = hear(find_alloc, apart, text, sizeof(text));
	is_of_driver(found, "one of dlmopen() has functions of its own");
	ok(strstr(text, "dlmopen"), "which is told: %s", strtok(text, "\n"));
	ok(!dlerror(), "and no error of the program's");
	dlclose(apart);
}

static void test_another(void)
{
	void *another = part("another/" LIBRARY, RTLD_NOW | RTLD_LOCAL), *found;
	char text[1024];

	found = hear(find_alloc, another, text, sizeof(text));
	is_of_driver(found, "another one has functions of its own");
	ok(strstr(text, "another/" LIBRARY) && strstr(text, "does not handle"), "which is told: %s",
	   strtok(text, "\n"));
	found = hear(find_alloc, another, text, sizeof(text));
	ok(!*text, "once");
	is_hook(find_alloc(open_cuda()), "and the first one is as before");
	dlclose(another);
}

int main(void)
{
	void *library = open_cuda();

	if (!library) {
		tap_skip("no GPU here (%s)", dlerror());
		return tap_end();
	}
	dlclose(library);
	test_namespace();
	test_closing();
	test_another();
	return tap_end();
}
