/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Another preload that hooks dlsym() beside this one, after it and before it: both see
 * what the program does.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload_test.h"

/* Starts this program again with both. */
static void start(const char *self, const char *ours, bool ours_first)
{
	char others[PATH_MAX], both[3 * PATH_MAX];

	snprintf(others, sizeof(others), "%.*s/other_preload.so",
		 (int)(strrchr(self, '/') - self), self);
	snprintf(both, sizeof(both), "%s:%s", ours_first ? ours : others,
		 ours_first ? others : ours);
	setenv("LD_PRELOAD", both, 1);
	execl(self, self, ours_first ? "after" : "before", NULL);
	tap_bail("%s", self);
}

static void test_calls(const struct cuda *cuda, const unsigned int *frees)
{
	void *memory, *small;

	cuda_returns(cuda->cuInit(0), CUDA_SUCCESS);
	push_primary(cuda);
	cuda_returns(cuda->cuMemHostAlloc(&memory, 8 * MIB, 0), CUDA_SUCCESS);
	cuda_returns(cuda->cuMemHostAlloc(&small, 8, 0), CUDA_SUCCESS);
	memset(memory, 1, 8 * MIB);
	cuda_returns(cuda->cuMemFreeHost(small), CUDA_SUCCESS);
	cuda_returns(cuda->cuMemFreeHost(memory), CUDA_SUCCESS);
	ok(*frees, "the other's function was called (%u times)", *frees);
	cuda_returns(cuda->cuMemFreeHost(&small), CUDA_ERROR_INVALID_VALUE);
	pop_primary(cuda);
}

int main(int argc, char **argv)
{
	char self[PATH_MAX], ours[PATH_MAX];
	const unsigned int *lookups, *frees;
	bool ours_first = argc < 2 || !strcmp(argv[1], "after");
	struct cuda cuda;
	int status;

	if (!realpath("/proc/self/exe", self))
		tap_bail("/proc/self/exe");
	snprintf(ours, sizeof(ours), "%.*s", (int)strcspn(getenv("LD_PRELOAD"), ": "),
		 getenv("LD_PRELOAD"));
	if (argc < 2)
		start(self, ours, true);
	cuda = cuda_or_skip();
	printf("# the other one comes %s\n", argv[1]);
	lookups = symbol(RTLD_DEFAULT, "other_lookups");
	frees = symbol(RTLD_DEFAULT, "other_frees");
	ok(*lookups, "the other one saw lookups (%u)", *lookups);
	is_hook(cuda.cuMemHostAlloc, "cuMemHostAlloc is this one's");
	ok(!strcmp(owner(cuda.cuMemFreeHost),
		   ours_first ? "libactmem_preload.so" : "other_preload.so"),
	   "cuMemFreeHost is that of the first one (%s)", owner(cuda.cuMemFreeHost));
	test_calls(&cuda, frees);
	status = tap_end();
	if (!status && ours_first)
		start(self, ours, false);
	return status;
}
