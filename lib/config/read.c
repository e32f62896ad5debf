/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Parses the value of each kind of option (knob), and writes the error message for a wrong value.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/base.h"
#include "config/read.h"

/* Searches the knob's words for the word of @length bytes at @text. */
static bool parse_word(const struct knob_info *info, const char *text, size_t length,
		       uint64_t *value)
{
	const char *word = info->words;
	uint64_t number = info->first;

	for (; strcspn(word, ",") != length || strncasecmp(word, text, length); number++) {
		word += strcspn(word, ",");
		if (!*word)
			return false;
		word += strlen(", ");
	}
	*value = info->kind == KNOB_WORD ? number : UINT64_C(1) << number;
	if (info->kind == KNOB_WORDS && !strcmp(word, "any"))
		*value -= UINT64_C(1) << info->first;
	return true;
}

static bool parse_words(const struct knob_info *info, const char *text, uint64_t *value)
{
	uint64_t bit, bits = 0;
	size_t length;

	for (;; text += length + 1) {
		length = strcspn(text, ",");
		if (!parse_word(info, text, length, &bit))
			return false;
		bits |= bit;
		if (!text[length])
			break;
	}
	*value = bits;
	return true;
}

/*
 * Parses a number in the range of the knob. If the knob has a word that stands for UINT64_MAX, also
 * accepts that word.
 */
static bool parse_number(const struct knob_info *info, const char *text, uint64_t *value)
{
	uint64_t number;

	if (info->words && !strcasecmp(text, info->words)) {
		*value = UINT64_MAX;
		return true;
	}
	if (!size_from_text(text, &number) ||
	    (info->kind == KNOB_NUMBER && text[strspn(text, "0123456789")]) ||
	    (number < info->least && !(info->or_zero && !number)) ||
	    (info->most && number > info->most))
		return false;
	*value = number;
	return true;
}

static bool parse_value(const struct knob_info *info, const char *text, uint64_t *value)
{
	switch (info->kind) {
	case KNOB_SIZE:
	case KNOB_NUMBER:
		return parse_number(info, text, value);
	case KNOB_SWITCH:
		*value = *text == '1';
		return (*text == '0' || *text == '1') && !text[1];
	case KNOB_WORD:
		return parse_word(info, text, strlen(text), value);
	case KNOB_WORDS:
		return parse_words(info, text, value);
	default:
		return false;
	}
}

const char *knob_choice(char text[KNOB_CHOICE_MAX], enum knob knob)
{
	const struct knob_info *info = &knob_table[knob];
	bool is_size = info->kind == KNOB_SIZE;
	const char *unit = is_size ? "bytes" : info->unit;
	unsigned int shift = info->least % (1 << 20) ? info->least % (1 << 10) ? 0 : 10 : 20;
	char least[32] = "", most[32] = "";

	if (info->kind == KNOB_TEXT)
		return info->words;
	if (info->kind == KNOB_SWITCH)
		return "1 or 0";
	if (info->least)
		snprintf(least, sizeof(least), " from %" PRIu64 "%s on", info->least >> shift,
			 shift == 20 ? "M" : shift == 10 ? "K" : "");
	if (info->most && info->most < INT64_MAX)
		snprintf(most, sizeof(most), " up to %" PRIu64, info->most);
	if (info->kind == KNOB_SIZE || info->kind == KNOB_NUMBER)
		snprintf(text, KNOB_CHOICE_MAX, "%sa number of %s%s%s%s%s%s",
			 info->or_zero ? "0 or " : "", unit, least, most,
			 is_size ? ", such as 268435456 or 256M" : "",
			 info->words ? ", or " : "", info->words ?: "");
	else
		snprintf(text, KNOB_CHOICE_MAX, info->kind == KNOB_WORD ? "one of %s" :
			 "one of %s, or several with commas between them", info->words);
	return text;
}

void reader_fail(struct reader *reader, const char *format, ...)
{
	char message[READER_ERROR_MAX];
	va_list arguments;

	if (*reader->error)
		return;
	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	if (reader->names == NAMES_AS_MARKS)
		memcpy(reader->error, message, sizeof(message));
	else
		knob_spell(reader->error, sizeof(reader->error), message, reader->names);
}

static void refuse_text(struct reader *reader, enum knob knob, const char *text,
			const char *choice)
{
	const struct knob_info *info = &knob_table[knob];
	char buffer[KNOB_CHOICE_MAX];

	/*
	 * Only the environment variable of a switch can have a wrong value, because the switch's
	 * option of `actmem run` takes no value. So the message for a switch always names the
	 * variable.
	 */
	reader_fail(reader, "%s is '%.500s', but must be %s", info->kind == KNOB_SWITCH ?
		    info->names[ACTMEM_NAMES_VARIABLES] : KNOB_VARIABLE(knob), text,
		    choice ?: knob_choice(buffer, knob));
}

void reader_refuse(struct reader *reader, enum knob knob, const char *choice)
{
	refuse_text(reader, knob, reader_text(reader, knob) ?: "", choice);
}

const char *reader_text(const struct reader *reader, enum knob knob)
{
	const char *name = knob_table[knob].names[ACTMEM_NAMES_VARIABLES];
	const char *const *variable = reader->variables;
	size_t length = strlen(name);

	for (; variable && *variable; variable++)
		if (!strncmp(*variable, name, length) && (*variable)[length] == '=')
			return (*variable)[length + 1] ? *variable + length + 1 : NULL;
	return NULL;
}

static uint64_t parse_or_default(struct reader *reader, enum knob knob, const char *text)
{
	const struct knob_info *info = &knob_table[knob];
	uint64_t value = 0;

	if (text && parse_value(info, text, &value))
		return value;
	if (text)
		refuse_text(reader, knob, text, NULL);
	value = 0;
	if (info->initial)
		parse_value(info, info->initial, &value);
	return value;
}

uint64_t reader_value(struct reader *reader, enum knob knob)
{
	return parse_or_default(reader, knob, reader_text(reader, knob));
}

uint64_t reader_value_or(struct reader *reader, enum knob knob, uint64_t given)
{
	char text[32];

	if (!given)
		return reader_value(reader, knob);
	snprintf(text, sizeof(text), "%" PRIu64, given);
	return parse_or_default(reader, knob, text);
}

bool knob_is_set(enum knob knob)
{
	return reader_text(&READER(0), knob);
}

bool knob_is_on(enum knob knob)
{
	const char *text = reader_text(&READER(0), knob);

	return text && !strcmp(text, "1");
}

static void check_values(struct reader *reader, bool only_switches)
{
	enum knob_kind kind;
	unsigned int knob;

	for (knob = 0; knob < KNOB_VARIABLES; knob++) {
		kind = knob_table[knob].kind;
		if (only_switches ? kind == KNOB_SWITCH : kind != KNOB_TEXT)
			reader_value(reader, knob);
	}
}

void reader_check_switches(struct reader *reader)
{
	check_values(reader, true);
}

void reader_check_values(struct reader *reader)
{
	check_values(reader, false);
}
