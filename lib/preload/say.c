/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Writes each line with one write(2). This file uses no stream of stdio, because the program may
 * hold the stream's lock.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "preload/say.h"

#define LINE_MAX_BYTES	2048

static bool is_told[TALE_COUNT];

static void write_line(const char *format, va_list arguments)
{
	char line[LINE_MAX_BYTES] = "actmem: ";
	size_t used = strlen(line);
	int saved = errno, cancellation;

	/* write() is a cancellation point, but the program's call that led here is not. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
	vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
	used = strlen(line);
	line[used++] = '\n';
	if (write(STDERR_FILENO, line, used) < 0)
		used = 0;
	pthread_setcancelstate(cancellation, NULL);
	errno = saved;
}

void say_once(enum tale tale, const char *format, ...)
{
	va_list arguments;

	if (__atomic_exchange_n(&is_told[tale], true, __ATOMIC_RELAXED))
		return;
	va_start(arguments, format);
	write_line(format, arguments);
	va_end(arguments);
}

void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(format, arguments);
	va_end(arguments);
}

const char *say_bytes(char text[SAY_BYTES_MAX], uint64_t bytes)
{
	if (bytes >= 1ULL << 30)
		snprintf(text, SAY_BYTES_MAX, "%.1f GiB", (double)bytes / (double)(1ULL << 30));
	else if (bytes >= 1ULL << 20)
		snprintf(text, SAY_BYTES_MAX, "%.1f MiB", (double)bytes / (double)(1ULL << 20));
	else
		snprintf(text, SAY_BYTES_MAX, "%llu bytes", (unsigned long long)bytes);
	return text;
}
