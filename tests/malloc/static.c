/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* A static program, which no loader preloads anything into. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
	char *memory = malloc(8 << 20);

	memset(memory, 1, 8 << 20);
	puts(memory[8191] == 1 ? "static" : "");
	free(memory);
	return 0;
}
