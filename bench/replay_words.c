// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Tells the library's words of a failure with the options of `actmem replay` in them. */
#include <err.h>
#include "actmem.h"
#include "base/base.h"
#include "replay.h"

#define WORDS_MAX	2048

/* No option sets grow_bytes: words that name it become words about --budget. */
static const struct knob_name names[] = {
	{ "regions are made of", "regions are as long as --budget, up to" },
	{ "lower grow_bytes", "lower that" },
	{ "remove them and raise grow_bytes, or", "remove them, or" },
	{ "budget_bytes", "--budget" },
	{ "spill_paths", "--spill" },
	{ "block_bytes", "--block" },
};

void replay_tell_error(const char *where)
{
	char words[WORDS_MAX];

	knob_words_by(names, sizeof(names) / sizeof(names[0]), actmem_error(), words,
		      sizeof(words));
	warnx("%s%s%s", where ? where : "", where ? ": " : "", words);
}
