/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Tells `actmem waits` that threads wait for a GPU, by the handle that is attached. That
 * may be detached, and closed, while they wait: then nothing tells of them any more.
 */
#ifndef ACTMEM_XLA_DEVICE_WAIT_H
#define ACTMEM_XLA_DEVICE_WAIT_H

#include <stdint.h>

struct actmem;
struct actmem_device_wait;

struct device_wait {
	struct device_wait *next, **link;
	struct actmem_device_wait *told;
};

/*
 * This thread waits for device @device: "GPU 0: WHAT", WHERE behind it unless that is
 * NULL. @wait is the caller's until the end. No lock is held for longer than that takes.
 */
void device_wait_begin(struct device_wait *wait, uint32_t device, uint64_t bytes,
		       const char *what, const char *where);
void device_wait_end(struct device_wait *wait);

/* Tells by @am from now on; NULL: by none, before that is closed which told so far. */
void device_waits_by(struct actmem *am);

#endif /* ACTMEM_XLA_DEVICE_WAIT_H */
