/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handle that the handlers make regions with: attached by the program, else opened at
 * the first use, as the environment says. The store has it open, and so have arrays.
 */
#ifndef ACTMEM_XLA_ATTACHED_H
#define ACTMEM_XLA_ATTACHED_H

#include <stddef.h>
#include <stdint.h>

#include "actmem_runtime.h"
#include "xla/knobs.h"

/*
 * @knobs, which the caller forgets, say how memory is to be made. The handle stays
 * attached until attached_close().
 */
int attached_open(struct actmem **am, struct knobs *knobs, char *words, size_t words_size);
void attached_close(void);

/*
 * The runtime CUDA for @am; @device as CUDA counts them. @spills: its memory is to be in
 * regions alone. As actmem_runtime_open().
 */
int attached_open_runtime(struct actmem *am, uint32_t device, int spills,
			  struct actmem_runtime **runtime);

/*
 * Binds regions to the device's socket, if it is known and neither program nor user chose
 * nodes. A heap that is registered with @runtime takes the device's own node first.
 */
int attached_place(struct actmem_runtime *runtime, const struct knobs *knobs,
		   struct actmem_region_options *region);

#endif /* ACTMEM_XLA_ATTACHED_H */
