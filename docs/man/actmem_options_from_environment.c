/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem.h>
#include <stdio.h>

int main(void)
{
	static const char *const variables[] = {
		"ACTMEM_BACKEND=memfd", "ACTMEM_PAGES=4K", "ACTMEM_ALLOW=unlocked", NULL
	};
	struct actmem_options options;
	struct actmem *am;

	ACTMEM_INIT(&options);
	if (actmem_options_from_variables(variables, &options) ||
	    actmem_open(&am, &options)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	return actmem_close(am) != 0;
}
