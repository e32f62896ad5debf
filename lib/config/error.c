/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Returns this thread's last error message. Where the message refers to a setting, inserts the name
 * of the setting.
 */
#include "base/base.h"
#include "config/knob.h"

const char *actmem_error_in(unsigned int names)
{
	char *text = fail_text();

	if (!text)
		return fail_words();
	knob_spell(text, ERROR_TEXT_MAX, fail_words(), names);
	return text;
}

const char *actmem_error(void)
{
	return actmem_error_in(ACTMEM_NAMES_C);
}
