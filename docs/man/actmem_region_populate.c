/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <stdio.h>

int main(void)
{
	struct actmem_region_options options;
	struct actmem_region *region;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.length = 8 << 20;
	options.flags = ACTMEM_REGION_LAZY;
	if (actmem_open(&am, NULL) ||
	    actmem_region_create(am, &options, &region) ||
	    actmem_region_populate(region, 2 << 20, 4 << 20) ||
	    actmem_region_discard(region, 4 << 20, 2 << 20)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	/* Only the second quarter of the region has pages now. */
	actmem_region_close(region);
	return actmem_close(am) != 0;
}
