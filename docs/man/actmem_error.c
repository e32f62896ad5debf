/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
	struct actmem_options options;
	struct actmem *am;
	int error;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	options.reserved = 1;
	error = actmem_open(&am, &options);
	printf("%s: %s\n", strerror(-error), actmem_error());
	return error == 0;
}
