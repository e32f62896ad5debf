/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program at a fixed address that takes those of aligned_alloc and free, as Debian's Python
 * does: they are addresses in the program then, for all libraries. Tells whether its
 * large blocks are the preload's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char __executable_start, etext;

static int is_in_program(const void *address)
{
	return (const char *)address >= &__executable_start && (const char *)address < &etext;
}

int main(void)
{
	void *(*volatile allocate)(size_t align, size_t size) = aligned_alloc;
	void (*volatile release)(void *memory) = free;
	FILE *file = fopen("/proc/self/maps", "re");
	void *memory = allocate(64, 2 << 20);
	int is_pooled = 0;
	char line[4096];

	if (!is_in_program((void *)allocate) || !is_in_program((void *)release)) {
		puts("aligned_alloc and free have their addresses elsewhere");
		return 1;
	}
	memset(memory, 1, 2 << 20);
	while (file && fgets(line, sizeof(line), file))
		is_pooled |= !!strstr(line, "actmem-malloc");
	release(memory);
	puts(is_pooled ? "pooled" : "not pooled");
	return 0;
}
