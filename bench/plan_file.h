/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The layers of a plan that actmem plan --save wrote. */
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
	uint32_t devices;			/* of the host, which do the same in parallel */
	uint32_t layer_count;
	struct plan_layer *layers;
	uint64_t step_ns;			/* as the plan predicts */
	uint64_t budget_bytes;			/* of all devices; 0: no files are used */
};

/* Returns false after printing the error message with warnx(). */
bool plan_read(const char *path, struct plan *plan);
void plan_free(struct plan *plan);

#endif
