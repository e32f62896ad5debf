// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Replaces this process by another program, or prints why it cannot. */
#include <err.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "run.h"
#include "tool.h"

int become_program(const char *program, char **argv, const char *hint)
{
	int status;

	execvp(program, argv);
	status = errno == ENOENT ? STATUS_NOT_FOUND : STATUS_NOT_RUN;
	if (errno == ENOENT && strchr(program, '/') && !access(program, F_OK))
		warnx("cannot run '%s': its interpreter does not exist", program);
	else if (errno == ENOENT && !strchr(program, '/'))
		warnx("cannot run '%s': not found in PATH%s", program, hint ?: "");
	else
		warn("cannot run '%s'", program);
	return status;
}
