/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Another preload: tells at the end that it was there, and how much malloc gave. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((destructor)) static void tell(void)
{
	static const char word[] = "other preload\n";
	void *memory = malloc(2 << 20);

	if (memory && write(STDOUT_FILENO, word, sizeof(word) - 1) < 0)
		_exit(1);
	free(memory);
}
