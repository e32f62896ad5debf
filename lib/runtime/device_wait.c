/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes that a thread waits for an accelerator, as reported by the program.
 */
#include "actmem_runtime.h"
#include "region/region.h"

/* Returns the entry in the list of waits as an opaque pointer. */
struct actmem_device_wait *actmem_device_wait_begin(struct actmem *am, uint64_t length,
						    const char *words)
{
	if (!am || !is_owner(am))
		return NULL;
	return (struct actmem_device_wait *)wait_begin(am->waits, WAIT_DEVICE, 0, length,
						       words ? words : "");
}

void actmem_device_wait_end(struct actmem *am, struct actmem_device_wait *wait)
{
	if (am && is_owner(am))
		wait_end(am->waits, (struct published_wait *)wait);
}
