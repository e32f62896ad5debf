/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the settings of the modes, without allocating.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "preload/settings.h"

#define MIN_BYTES	(256ULL << 10)
#define DECAY_S		10ULL
#define DECAY_S_MAX	(365ULL * 24 * 3600)

static bool parse_decay(const char *text, uint64_t *ms)
{
	char *end;

	if (!strcmp(text, "never")) {
		*ms = DECAY_NEVER;
		return true;
	}
	errno = 0;
	*ms = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || *ms > DECAY_S_MAX)
		return false;
	*ms *= 1000;
	return true;
}

static bool parse_min(const char *text, uint64_t *bytes)
{
	return size_from_text(text, bytes) && *bytes >= MALLOC_MIN_LEAST;
}

static bool parse_policy(const char *text, enum actmem_policy *policy)
{
	static const char * const words[] = {
		[ACTMEM_PLACE_BIND] = "bind",
		[ACTMEM_PLACE_PREFERRED] = "preferred",
		[ACTMEM_PLACE_INTERLEAVE] = "interleave",
	};
	unsigned int i;

	for (i = ACTMEM_PLACE_BIND; i <= ACTMEM_PLACE_INTERLEAVE; i++) {
		if (!strcmp(text, words[i])) {
			*policy = i;
			return true;
		}
	}
	return false;
}

static const char *variable(struct setting_wrong *wrong, const char *name, const char *choice)
{
	*wrong = (struct setting_wrong){ name, getenv(name), choice };
	return wrong->text && *wrong->text ? wrong->text : NULL;
}

/* A variable such as ACTMEM_MALLOC, which is 0 or 1. */
static bool is_switch(const char *text)
{
	return !text || ((*text == '0' || *text == '1') && !text[1]);
}

bool cuda_settings_read(struct setting_wrong *wrong)
{
	return is_switch(variable(wrong, "ACTMEM_CUDA", "1 or 0"));
}

bool malloc_settings_read(struct malloc_settings *settings, struct setting_wrong *wrong)
{
	const char *text;

	*settings = (struct malloc_settings){
		.min_bytes = MIN_BYTES,
		.keep_bytes = KEEP_HALF,
		.decay_ms = DECAY_S * 1000,
	};
	text = variable(wrong, "ACTMEM_MALLOC", "1 or 0");
	if (!is_switch(text))
		return false;
	settings->wanted = text && *text == '1';
	if (!settings->wanted)
		return true;
	text = variable(wrong, "ACTMEM_MALLOC_MIN",
			"a number of bytes from 4096 on, such as 262144 or 256K");
	if (text && !parse_min(text, &settings->min_bytes))
		return false;
	text = variable(wrong, "ACTMEM_MALLOC_KEEP", "a number of bytes, such as 268435456 or 256M");
	if (text && !size_from_text(text, &settings->keep_bytes))
		return false;
	text = variable(wrong, "ACTMEM_MALLOC_DECAY", "a number of seconds up to a year, or never");
	if (text && !parse_decay(text, &settings->decay_ms))
		return false;
	text = variable(wrong, "ACTMEM_NODES", "a list such as 0,2-3 of nodes below 1024");
	if (text && !nodes_parse(text, &settings->nodes))
		return false;
	text = variable(wrong, "ACTMEM_POLICY", "bind, preferred or interleave");
	return !text || parse_policy(text, &settings->policy);
}
