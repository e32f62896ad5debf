/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the settings of the CUDA mode, without allocating.
 */
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "preload/cuda/kept.h"
#include "preload/cuda/settings.h"

#define MIN_BYTES	(1ULL << 20)
#define KEEP_BYTES	(4ULL << 30)
/*
 * A pool of XLA's begins with 2, 4 and 8 MiB, which go into one region of this length,
 * and each later request is a region by itself.
 */
#define GROW_BYTES	(16ULL << 20)

static const char *variable(struct setting_wrong *wrong, const char *name, const char *choice)
{
	*wrong = (struct setting_wrong){ name, cuda_variable(name), choice };
	return wrong->text && *wrong->text ? wrong->text : NULL;
}

static bool read_switch(bool *on, struct setting_wrong *wrong, const char *name)
{
	const char *text = variable(wrong, name, "1 or 0");

	if (text && strcmp(text, "0") && strcmp(text, "1"))
		return false;
	*on = text && *text == '1';
	return true;
}

bool cuda_memory_settings_read(struct cuda_settings *settings, struct setting_wrong *wrong)
{
	const char *text;

	*settings = (struct cuda_settings){
		.min_bytes = MIN_BYTES,
		.keep_bytes = KEEP_BYTES,
		.grow_bytes = GROW_BYTES,
	};
	/* First, as it says what is to be done if another one is wrong. */
	if (!read_switch(&settings->strict, wrong, "ACTMEM_STRICT"))
		return false;
	text = variable(wrong, "ACTMEM_CUDA_MIN", "a size from 4K on, as 1M");
	if (text && (!size_from_text(text, &settings->min_bytes) ||
		     settings->min_bytes < BASE_PAGE_BYTES))
		return false;
	text = variable(wrong, "ACTMEM_CUDA_KEEP", "a size, as 4G, or 0");
	if (text && !size_from_text(text, &settings->keep_bytes))
		return false;
	text = variable(wrong, "ACTMEM_HEAP_GROW", "a size from 1 byte on, as 64M");
	if (text && (!size_from_text(text, &settings->grow_bytes) || !settings->grow_bytes ||
		     settings->grow_bytes > INT64_MAX))
		return false;
	/* A value set for the Python module may be no whole page. */
	settings->grow_bytes = (settings->grow_bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES *
			       HUGE_PAGE_BYTES;
	text = variable(wrong, "ACTMEM_HEAP_LIMIT", "a size, as 64G");
	if (text && !size_from_text(text, &settings->limit_bytes))
		return false;
	return read_switch(&settings->verbose, wrong, "ACTMEM_VERBOSE");
}
