/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies structs from and to callers, which may use the headers of an older or newer library.
 */
#include <errno.h>
#include <string.h>

#include "actmem.h"
#include "base/error.h"
#include "base/structs.h"

int take_struct(void *into, size_t size, const void *from, const char *what)
{
	const unsigned char *bytes = from;
	size_t given, i;

	memcpy(&given, from, sizeof(given));
	if (given <= sizeof(size_t) || given > (1U << 20))
		return fail(EINVAL, "%s: size is %zu; set it up with ACTMEM_INIT()", what, given);
	for (i = size; i < given; i++)
		if (bytes[i])
			return fail(EINVAL, "%s: byte %zu is set, which this library (%s) does not know; use a newer library",
				    what, i, actmem_version());
	memset(into, 0, size);
	memcpy(into, from, given < size ? given : size);
	return 0;
}

int give_struct(void *into, const void *from, size_t size, const char *what)
{
	size_t given;

	memcpy(&given, into, sizeof(given));
	if (given <= sizeof(size_t) || given > (1U << 20))
		return fail(EINVAL, "%s: size is %zu; set it up with ACTMEM_INIT()", what, given);
	memcpy((char *)into + sizeof(size_t), (const char *)from + sizeof(size_t),
	       (given < size ? given : size) - sizeof(size_t));
	return 0;
}
