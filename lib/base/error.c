/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The last error message of each thread. A thread allocates its buffers at its first failure.
 * Static thread-local buffers would use up the small TLS reserve that the dynamic loader keeps
 * for libraries that are loaded later.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "actmem.h"
#include "base/error.h"
#include "base/likely.h"

#define STRING_(x)	#x
#define STRING(x)	STRING_(x)

struct room {
	char words[ERROR_TEXT_MAX];	/* marks in place of options' names (config/knob.h) */
	char text[ERROR_TEXT_MAX];	/* @words with the names, as last returned */
};

static __thread struct room *room;	/* NULL before the first failure, or if no_room */
static __thread bool no_room;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int key_error;

static void free_room(void *its)
{
	room = NULL;
	free(its);
}

static void make_key(void)
{
	key_error = pthread_key_create(&key, free_room);
}

static bool ensure_room(void)
{
	struct room *its;

	if (room)
		return true;
	pthread_once(&once, make_key);
	its = key_error ? NULL : calloc(1, sizeof(*its));
	if (its && !pthread_setspecific(key, its))
		room = its;
	else
		free(its);
	no_room = !room;
	return room;
}

int fail(int error, const char *format, ...)
{
	/* The arguments may point into the message that the new one replaces. */
	char text[ERROR_TEXT_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (ensure_room())
		memcpy(room->words, text, ERROR_TEXT_MAX);
	return -error;
}

int fail_as_before(int error, const char *words)
{
	return fail(-error, "%s", words);
}

void fail_more(const char *format, ...)
{
	size_t length = room ? strlen(room->words) : 0;
	va_list arguments;

	if (!room)
		return;
	va_start(arguments, format);
	vsnprintf(room->words + length, ERROR_TEXT_MAX - length, format, arguments);
	va_end(arguments);
}

HOT void fail_clear(void)
{
	no_room = false;
	if (room)
		room->words[0] = '\0';
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

int fail_more_address_space(int error)
{
	struct rlimit limit;

	if (error == -ENOMEM && !getrlimit(RLIMIT_AS, &limit) && limit.rlim_cur != RLIM_INFINITY)
		fail_more("; if RLIMIT_AS (%s) is too low, raise it with `ulimit -v`",
			  BYTES_TEXT(limit.rlim_cur));
	return error;
}

const char *fail_words(void)
{
	if (no_room)
		return "a call failed, and there was no memory for the error message";
	return room ? room->words : "";
}

char *fail_text(void)
{
	return no_room || !room ? NULL : room->text;
}

const char *actmem_version(void)
{
	return STRING(ACTMEM_VERSION_MAJOR) "." STRING(ACTMEM_VERSION_MINOR) "."
	       STRING(ACTMEM_VERSION_PATCH);
}
