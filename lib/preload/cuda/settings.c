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
/* What allocators map for blocks of theirs is private, and they touch it bit by bit. */
#define MAPS_DEFAULT	(MAPS_SHARED | MAPS_POPULATE | MAPS_HUGETLB)

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

static unsigned int kind_of(const char *text, size_t length)
{
	static const struct {
		const char *word;
		unsigned int kinds;
	} kinds[] = {
		{ "shared", MAPS_SHARED },
		{ "populate", MAPS_POPULATE },
		{ "hugetlb", MAPS_HUGETLB },
		{ "private", MAPS_PRIVATE },
		{ "malloc", MAPS_MALLOC },
	};
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (strlen(kinds[i].word) == length && !strncmp(kinds[i].word, text, length))
			return kinds[i].kinds;
	return 0;
}

/* A size, and kinds behind it, each with a ',' before it. */
static bool parse_maps(const char *text, struct cuda_settings *settings)
{
	size_t length = strcspn(text, ",");
	unsigned int kind;
	char size[32];

	if (length >= sizeof(size))
		return false;
	memcpy(size, text, length);
	size[length] = '\0';
	if (!size_from_text(size, &settings->maps_bytes))
		return false;
	for (text += length; *text; text += length) {
		text++;
		length = strcspn(text, ",");
		kind = kind_of(text, length);
		if (!kind)
			return false;
		settings->maps_kinds |= kind;
	}
	if (!settings->maps_kinds)
		settings->maps_kinds = MAPS_DEFAULT;
	if (!settings->maps_bytes)
		settings->maps_kinds = 0;
	return !settings->maps_bytes || settings->maps_bytes >= HUGE_PAGE_BYTES;
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
	text = variable(wrong, "ACTMEM_PRELOAD_MAPS",
			"a size from 2M on, as 64M, with kinds behind it, as 64M,shared,populate,hugetlb,private,malloc, or 0");
	if (text && !parse_maps(text, settings))
		return false;
	return read_switch(&settings->verbose, wrong, "ACTMEM_VERBOSE");
}
