/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes which threads wait for a GPU, so that `actmem waits` can show them. The waits are
 * published by means of the attached handle (attached.h). If the program detaches the handle during
 * a wait, the wait is no longer published (attached.c).
 */
#ifndef ACTMEM_XLA_DEVICE_WAIT_H
#define ACTMEM_XLA_DEVICE_WAIT_H

#include <stdint.h>

struct actmem_device_wait;

struct device_wait {
	struct device_wait *next, **link;
	struct actmem_device_wait *told;
};

/*
 * Publishes that this thread waits for GPU @device, as "GPU 0: WHAT WHERE". @where may be NULL.
 * @wait must stay valid until device_wait_end().
 */
void device_wait_begin(struct device_wait *wait, uint32_t device, uint64_t bytes,
		       const char *what, const char *where);
void device_wait_end(struct device_wait *wait);

#endif /* ACTMEM_XLA_DEVICE_WAIT_H */
