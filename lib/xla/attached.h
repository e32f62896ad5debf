/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handle of libactmem (struct actmem) with which the handlers create regions. The program may
 * attach its own handle. Otherwise the first use opens the backend that the environment variables
 * select. The handle stays attached while there are stores or arrays.
 */
#ifndef LIB_XLA_ATTACHED_H
#define LIB_XLA_ATTACHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actmem_runtime.h"
#include "xla/knobs.h"

/*
 * Stores the handle in *@am, and the options for allocating memory in @knobs. The caller must
 * release @knobs with knobs_forget(). The handle stays attached until attached_close().
 */
int attached_open(struct actmem **am, struct knobs *knobs, char *words, size_t words_size);
void attached_close(void);

/*
 * Opens the CUDA runtime of @am for @device, which is CUDA's number of the device. If @spills is
 * true, memory must be in regions, because the store cannot spill CUDA's own memory. Returns the
 * results of actmem_runtime_open().
 */
int attached_open_runtime(struct actmem *am, uint32_t device, bool spills,
			  struct actmem_runtime **runtime);

/*
 * Binds regions to the device's socket. Does nothing if the socket is not known, if the program or
 * the user chose nodes, or if regions have names. A heap that is registered with @runtime first
 * allocates memory on the device's own node.
 */
int attached_place(struct actmem_runtime *runtime, const struct knobs *knobs,
		   struct actmem_region_options *region);

#endif /* LIB_XLA_ATTACHED_H */
