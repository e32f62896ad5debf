/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Sends ioctls to the driver, without error messages.
 */
#include <errno.h>
#include <sys/ioctl.h>

#include "region/driver/driver.h"

/* Repeats an ioctl that a signal interrupted. The driver keeps the progress made so far. */
int driver_ask(int fd, unsigned long request, void *argument)
{
	while (ioctl(fd, request, argument)) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

int driver_query(int device, struct actmem_ioctl_query *query)
{
	*query = (struct actmem_ioctl_query){
		.size = sizeof(*query),
		.abi = ACTMEM_ABI_VERSION,
		.abi_oldest = ACTMEM_ABI_OLDEST,
	};
	return driver_ask(device, ACTMEM_IOC_QUERY, query);
}
