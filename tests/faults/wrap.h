/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * How calls are wrapped, for the files that do it.
 */
#ifndef UNIT_WRAP_H
#define UNIT_WRAP_H

#include <stdbool.h>

/* Whether this call shall fail; sets errno, to @usual unless a test chose. */
bool fails(const char *call, int usual);

/* Takes its time, if this call shall. */
void be_slow(const char *call);

#define WRAP(type, name, parameters)		\
	type __real_##name parameters;		\
	type __wrap_##name parameters;		\
	type __wrap_##name parameters

/* One that does nothing but call the real one, or fail with @failed and this errno. */
#define WRAP_PLAIN(type, name, parameters, arguments, failed, error)	\
	WRAP(type, name, parameters)					\
	{								\
		return fails(#name, error) ? (failed) : __real_##name arguments; \
	}

#endif /* UNIT_WRAP_H */
