/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The layers of a plan that actmem plan --save has written. */
#ifndef ACTMEM_PLAN_FILE_H
#define ACTMEM_PLAN_FILE_H

#include <stdbool.h>
#include <stdint.h>

struct plan_layer {
	uint64_t forward_ns, backward_ns;
	uint64_t bytes;				/* that each device sends to the host */
};

struct plan {
	char name[64];				/* of the model */
	uint32_t devices;			/* of the host, that do the same at once */
	uint32_t layer_count;
	struct plan_layer *layers;
	uint64_t step_ns;			/* as foreseen */
	uint64_t budget_bytes;			/* of all devices; 0: all fits into memory */
};

/* False: told by warnx() why not. */
bool plan_read(const char *path, struct plan *plan);
void plan_free(struct plan *plan);

#endif
