// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Sets environment variables for the programs that the command executes. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include "tool.h"

static int check_set(int err)
{
	if (!err)
		return STATUS_OK;
	warn("cannot set the environment");
	return STATUS_FAILED;
}

int variable_set(const char *name, const char *value)
{
	return check_set(setenv(name, value, 1));
}

int variable_prepend(const char *name, const char *value)
{
	const char *others = getenv(name);
	char *both = NULL;
	int err;

	if (!others || !*others)
		return variable_set(name, value);
	err = asprintf(&both, "%s:%s", value, others) < 0 || setenv(name, both, 1);
	free(both);
	return check_set(err);
}
