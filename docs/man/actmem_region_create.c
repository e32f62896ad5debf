/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	struct actmem_region_options options;
	struct actmem_region *region;
	struct actmem *am;
	void *memory;

	ACTMEM_INIT(&options);
	options.length = 4 << 20;
	options.name = "example";
	if (actmem_open(&am, NULL) ||
	    actmem_region_create(am, &options, &region) ||
	    actmem_region_map(region, &memory)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	memset(memory, 1, options.length);
	printf("%" PRIu64 " bytes at %p\n", actmem_region_length(region), memory);
	actmem_region_close(region);
	return actmem_close(am) != 0;
}
