/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The library's words, which name the options of its calls, for who sets them by a command,
 * the environment or Python. The handlers for XLA, the preload and the command link this
 * file too.
 */
#ifndef LIB_BASE_KNOB_WORDS_H
#define LIB_BASE_KNOB_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Writes @why with what the options of a store and a heap are called there. @is_limit: its
 * budget is what was said to be a heap's limit.
 */
void knob_words(const char *why, bool is_limit, char *words, size_t size);

/* Likewise with names of one's own, of which the first that fits is taken. */
struct knob_name {
	const char *option;
	const char *knob;
};

void knob_words_by(const struct knob_name *known, size_t count, const char *why, char *words,
		   size_t size);

#endif /* LIB_BASE_KNOB_WORDS_H */
