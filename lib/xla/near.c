// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Memory near the GPU that a process uses; see near.h.
 */
#include "xla/near.h"

int open_near(struct actmem *am, uint32_t device, struct actmem_runtime **runtime)
{
	struct actmem_runtime_options options;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_CUDA;
	options.device = (int32_t)device;
	return actmem_runtime_open(am, &options, runtime);
}

int place_near(struct actmem_runtime *runtime, const struct knobs *knobs,
	       struct actmem_region_options *region)
{
	struct actmem_runtime_info info;
	int ret;

	if (knobs->placed || knobs->named)
		return 0;
	ACTMEM_INIT(&info);
	ret = actmem_runtime_get_info(runtime, &info);
	if (ret || info.node < 0)
		return ret;
	region->policy = ACTMEM_PLACE_PREFERRED;
	return actmem_runtime_nodes(runtime, &region->nodes);
}
