// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Takes the best memory that the machine has if the user did not choose any, and reports it. */
#include <err.h>
#include <stdlib.h>
#include "actmem_region.h"
#include "base/base.h"
#include "config/config.h"
#include "best_memory.h"
#include "table.h"

bool best_memory_allow(void)
{
	struct actmem_options options;

	ACTMEM_INIT(&options);
	return !actmem_options_from_environment(&options) &&
	       actmem_options_allow_best(&options) > 0 && !setenv("ACTMEM_ALLOW", "any", 1);
}

void best_memory_try(struct actmem *am, uint64_t length)
{
	struct actmem_region_options options;
	struct actmem_region *region;

	ACTMEM_INIT(&options);
	options.length = length;
	/* If this fails, the caller's first real region fails too, and the caller prints why. */
	if (actmem_region_create(am, &options, &region))
		return;
	best_memory_tell(am, region);
	actmem_region_close(region);
}

void best_memory_tell(const struct actmem *am, struct actmem_region *region)
{
	bool is_driver = actmem_get_backend(am) == ACTMEM_BACKEND_DRIVER;
	struct actmem_region_info info;
	uint64_t node_bytes;
	bool is_huge;

	ACTMEM_INIT(&info);
	info.node_bytes = &node_bytes;
	info.node_count = 1;
	if (knob_is_on(KNOB_QUIET) || actmem_region_get_info(region, &info))
		return;
	is_huge = info.pages == ACTMEM_PAGES_2M;
	if (is_driver && is_huge)
		return;
	warnx("memory is %s pages of %s%s%s; 'actmem doctor' reports how to get better memory, ACTMEM_STRICT=1 makes this an error, ACTMEM_QUIET=1 omits this line",
	      pages_text(info.pages), backend_text(actmem_get_backend(am)),
	      is_driver || is_huge || info.pinned_bytes >= info.length ? "" : ", not locked",
	      info.node_count ? "" : ", on nodes that the kernel chose (mbind is forbidden)");
}
