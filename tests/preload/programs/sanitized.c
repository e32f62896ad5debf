/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program for a sanitizer, which looks functions up before it has begun, and has some
 * of the C library's as its own.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	char *block = malloc(1 << 20);

	if (!block || !dlsym(RTLD_DEFAULT, "strlen") || dlsym(RTLD_DEFAULT, "cuMemHostAlloc"))
		return 1;
	memset(block, 1, 1 << 20);
	puts(block[4095] == 1 ? "sanitized" : "");
	free(block);
	return 0;
}
