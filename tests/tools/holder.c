// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Holds regions while the command is looked at: holder NAME BYTES...
 * makes one of each size, maps the first, prints "ready" and waits for the
 * end of its input.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../../lib/actmem.h"

static int fail(void)
{
	fprintf(stderr, "holder: %s\n", actmem_error());
	return 1;
}

int main(int argc, char **argv)
{
	struct actmem_region *region;
	struct actmem *am;
	void *address;
	char byte;
	int i;

	if (argc < 3 || actmem_open(&am, NULL))
		return fail();
	for (i = 2; i < argc; i++) {
		struct actmem_region_options options;

		ACTMEM_INIT(&options);
		options.name = argv[1];
		options.length = strtoull(argv[i], NULL, 0);
		if (actmem_region_create(am, &options, &region))
			return fail();
		if (i == 2 && actmem_region_map(region, &address))
			return fail();
	}
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	return 0;
}
