// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Parses sizes. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

bool size_from_text(const char *text, uint64_t *bytes)
{
	static const char suffixes[] = "KMGT";
	unsigned int shift = 0;
	const char *suffix;
	uint64_t value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9')
		return false;
	if (*end) {
		suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix || end[1])
			return false;
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
	}
	if (value > UINT64_MAX >> shift)
		return false;
	*bytes = value << shift;
	return true;
}
