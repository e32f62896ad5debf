/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	struct actmem_region_info *regions;
	size_t count, i;
	uint32_t node;

	if (actmem_region_list(&regions, &count)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	for (i = 0; i < count; i++) {
		printf("%s: %" PRIu64 " bytes of process %d", regions[i].name,
		       regions[i].length, (int)regions[i].pid);
		for (node = 0; node < regions[i].node_count; node++)
			printf(" %" PRIu64, regions[i].node_bytes[node]);
		printf(" %s\n", regions[i].path ? regions[i].path : "");
	}
	free(regions);
	return 0;
}
