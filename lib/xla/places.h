/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Places of memory. There is one place for each NUMA node with a GPU that is in use, so that the
 * memory for a GPU is on the GPU's node. GPUs whose node is not known share a place. If the program
 * or the user chose nodes, or a name for regions, there is one place for all GPUs. The caller
 * serializes all calls.
 */
#ifndef LIB_XLA_PLACES_H
#define LIB_XLA_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "actmem_runtime.h"
#include "xla/actmem_xla.h"
#include "xla/knobs.h"

#define PLACES_MAX	ACTMEM_XLA_DEVICES_MAX

struct place {
	int node;			/* -1: not known */
	uint32_t device;		/* first device on the node */
	unsigned int devices;		/* number of devices that use the place */
	struct actmem_runtime *runtime;	/* runtime of the first device; NULL: not open */
};

struct places {
	unsigned int count;
	struct place list[PLACES_MAX];
	uint16_t of_device[ACTMEM_XLA_DEVICES_MAX];	/* 1 + index in list; 0: no place yet */
};

/* Returns the index of a device's place, or PLACES_MAX if the device has no place yet. */
unsigned int places_of(const struct places *places, uint32_t device);

/*
 * Stores the index of the device's place in *@index and opens the place's runtime. Adds a new place
 * for the first device of a node. @knobs are those that attached_open() returned with @am. Returns
 * 0, -ERANGE if the number of the device is too large, or an error of the runtime.
 */
int places_add(struct places *places, struct actmem *am, const struct knobs *knobs, bool spills,
	       uint32_t device, unsigned int *index);

/*
 * Moves a device to the place @index. Called if the budget is too small for a further store, in the
 * device's own place.
 */
void places_join(struct places *places, uint32_t device, unsigned int index);

/*
 * Closes all runtimes and forgets the places. If CUDA does not unregister some memory, returns
 * -EBUSY or another error. The runtime with which that memory is registered then stays open, and no
 * place is forgotten.
 */
int places_close(struct places *places);

#endif /* LIB_XLA_PLACES_H */
