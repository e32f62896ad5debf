// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Shows progress on a terminal. */
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>
#include "base/base.h"
#include "progress.h"

#define QUIET_NS	NS_PER_SECOND
#define EACH_NS		(NS_PER_SECOND / 10)

static uint64_t begun_ns, told_ns;
static bool is_shown;

void progress_tell(const char *format, ...)
{
	uint64_t now = clock_ns();
	va_list arguments;

	if (!begun_ns)
		begun_ns = now;
	if (now - begun_ns < QUIET_NS || now - told_ns < EACH_NS || !isatty(STDERR_FILENO))
		return;
	told_ns = now;
	is_shown = true;
	fputs("\r\033[K", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fflush(stderr);
}

void progress_end(void)
{
	if (is_shown)
		fputs("\r\033[K", stderr);
	is_shown = false;
}
