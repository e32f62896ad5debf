/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem_runtime.h>
#include <stdio.h>

int main(void)
{
	struct actmem_device_wait *wait;
	struct actmem *am;

	if (actmem_open(&am, NULL)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	wait = actmem_device_wait_begin(am, 1 << 20, "copy of layer 3");
	/* Wait for the device here. */
	actmem_device_wait_end(am, wait);
	return actmem_close(am) != 0;
}
