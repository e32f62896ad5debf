/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The last failure of each thread, in words.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "actmem.h"
#include "error.h"

#define STRING_(x)	#x
#define STRING(x)	STRING_(x)

static __thread char words[ERROR_TEXT_MAX];

int fail(int error, const char *format, ...)
{
	/* The arguments may quote the words that they replace. */
	char text[ERROR_TEXT_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	memcpy(words, text, sizeof(words));
	return -error;
}

void fail_more(const char *format, ...)
{
	size_t length = strlen(words);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(words + length, sizeof(words) - length, format, arguments);
	va_end(arguments);
}

void fail_clear(void)
{
	words[0] = '\0';
}

const char *bytes_text(char text[BYTES_TEXT_MAX], uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double value = (double)bytes;
	unsigned int unit = 0;

	while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	snprintf(text, BYTES_TEXT_MAX, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
	return text;
}

const char *actmem_error(void)
{
	return words;
}

const char *actmem_version(void)
{
	return STRING(ACTMEM_VERSION_MAJOR) "." STRING(ACTMEM_VERSION_MINOR);
}
