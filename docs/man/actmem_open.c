/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <stdio.h>

int main(void)
{
	struct actmem_options options;
	struct actmem *am;

	ACTMEM_INIT(&options);
	if (actmem_options_from_environment(&options)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	/* Use small pages, whatever the environment says. */
	options.allow |= ACTMEM_ALLOW_THP | ACTMEM_ALLOW_4K;
	if (actmem_open(&am, &options)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	puts(actmem_describe(am));
	return actmem_close(am) != 0;
}
