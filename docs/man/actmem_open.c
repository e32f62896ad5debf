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
	/* Demand huge pages, regardless of the environment, but accept transparent ones. */
	options.pages = ACTMEM_PAGES_2M;
	options.allow = ACTMEM_ALLOW_THP;
	if (actmem_open(&am, &options)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	puts(actmem_describe(am));
	return actmem_close(am) != 0;
}
