/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Reads what the environment permits a store that cannot spill as it should. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/spill_allow.h"

static uint32_t flag_of_word(const char *word, size_t length)
{
	static const struct {
		const char *word;
		uint32_t flag;
	} known[] = {
		{ "memory", ACTMEM_STORE_ALLOW_MEMORY },
		{ "buffered", ACTMEM_STORE_ALLOW_BUFFERED },
	};
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i].word) == length && !strncasecmp(known[i].word, word, length))
			return known[i].flag;
	return 0;
}

bool spill_allow_from_environment(uint32_t *flags)
{
	const char *at = getenv("ACTMEM_SPILL_ALLOW");
	uint32_t found = 0, flag;
	size_t length;

	for (; at && *at; at += length + !!at[length]) {
		length = strcspn(at, ",");
		flag = flag_of_word(at, length);
		if (!flag || (at[length] && !at[length + 1]))
			return false;
		found |= flag;
	}
	*flags = found;
	return true;
}
