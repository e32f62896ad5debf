/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	struct actmem_region_options options;
	struct actmem_region *region;
	struct actmem *am;
	int error, fd;

	ACTMEM_INIT(&options);
	options.length = 4 << 20;
	if (actmem_open(&am, NULL) ||
	    actmem_region_create(am, &options, &region)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	error = actmem_region_export(region, 0, 2 << 20, &fd);
	if (!error) {
		/* Import fd into a driver here, by a call of that driver. */
		close(fd);
	} else if (error == -EOPNOTSUPP) {
		/* This backend or this kernel cannot export regions. */
		puts(actmem_error());
		error = 0;
	}
	actmem_region_close(region);
	return actmem_close(am) || error;
}
