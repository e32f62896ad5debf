/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* This program creates a region, closes it, and opens it again with its contents. */
#include <actmem.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int use(struct actmem *am, const char *path)
{
	struct actmem_region_options options;
	struct actmem_region *region;
	void *memory;

	ACTMEM_INIT(&options);
	options.length = 2 << 20;
	if (actmem_region_open(am, path, &options,
			       ACTMEM_OPEN_CREATE | ACTMEM_OPEN_LOCK |
			       ACTMEM_OPEN_OWN, &region) ||
	    actmem_region_map(region, &memory)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	if (actmem_region_found(region))
		printf("found: %s\n", (char *)memory);
	else
		strcpy(memory, "what was left here");
	return actmem_region_close(region) != 0;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "/dev/shm/actmem-example";
	struct actmem *am;

	if (actmem_open(&am, NULL)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	if (use(am, path) || use(am, path))
		return 1;
	unlink(path);
	return actmem_close(am) != 0;
}
