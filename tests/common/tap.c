/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actmem.h"
#include "tap.h"

static unsigned int results, failures, skips;

/* A test that is killed has printed all lines until then. */
__attribute__((constructor))
static void print_each_line(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
}

bool tap_ok(bool passed, const char *file, int line, const char *format, ...)
{
	va_list arguments;

	printf("%s %u - ", passed ? "ok" : "not ok", ++results);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	if (!passed) {
		failures++;
		printf("# %s:%d: %s\n", file, line, actmem_error());
	}
	fflush(stdout);
	return passed;
}

bool tap_returns(int got, int wanted, const char *file, int line, const char *call)
{
	bool passed = tap_ok(got == wanted, file, line, "%s returns %d", call, wanted);

	if (!passed)
		printf("# returned %d (%s)\n", got, strerror(-got));
	return passed;
}

bool tap_says(const char *part, const char *file, int line)
{
	return tap_ok(strstr(actmem_error(), part), file, line, "the words name '%s'", part);
}

void tap_skip(const char *format, ...)
{
	va_list arguments;

	skips++;
	printf("ok %u # SKIP ", ++results);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
}

void tap_bail(const char *format, ...)
{
	va_list arguments;

	printf("not ok %u - ", ++results);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n# %s\n1..%u\n", actmem_error(), results);
	fflush(stdout);
	exit(1);
}

int tap_end(void)
{
	printf("1..%u\n", results);
	fflush(stdout);
	if (failures)
		return 1;
	return results && skips == results ? 77 : 0;
}
