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

/* A call that fails with @wrong and this errno, or is the real one with these arguments. */
#define WRAP_CALL(type, name, error, wrong, parameters, arguments)	\
	WRAP(type, name, parameters)					\
	{								\
		return fails(#name, error) ? wrong : __real_##name arguments;	\
	}

#endif /* UNIT_WRAP_H */
