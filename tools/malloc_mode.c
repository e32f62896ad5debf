// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Checks the settings of the malloc mode of libactmem_preload.so. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "preload/preload.h"
#include "run.h"
#include "tool.h"

#define THP_ENABLED	"/sys/kernel/mm/transparent_hugepage/enabled"
#define TRIAL_BYTES	(2UL << 20)

bool malloc_mode_is_wanted(void)
{
	return knob_is_on(KNOB_MALLOC);
}

/*
 * Returns true if no setting is only for regions. A setting that also applies to malloc, such as
 * the nodes, is permitted.
 */
bool malloc_mode_is_all(void)
{
	unsigned int knob;

	for (knob = 0; knob < KNOB_VARIABLES; knob++)
		if (knob_table[knob].parts & (PART_OPEN | PART_PYTHON | PART_CUDA) &&
		    !(knob_table[knob].parts & PART_MALLOC) && knob_is_set(knob))
			return false;
	return malloc_mode_is_wanted();
}

static int try_place(const struct place *place)
{
	void *memory = mmap(NULL, TRIAL_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int err = memory == MAP_FAILED ? -errno :
		  place_range(place, place_of_caller(place), memory, TRIAL_BYTES);

	if (memory != MAP_FAILED)
		munmap(memory, TRIAL_BYTES);
	if (err && place->by_caller)
		warnx("malloc: pages come from the node of the CPU that touches them first (mbind: %s)",
		      strerror(-err));
	if (!err || place->by_caller)
		return STATUS_OK;
	warnx("cannot place memory on %s (mbind: %s); if mbind is forbidden, omit --nodes and --policy",
	      NODES_TEXT(&place->nodes), strerror(-err));
	return STATUS_FAILED;
}

static void tell_place(const struct place *place)
{
	static const char *const how[] = {
		[ACTMEM_PLACE_BIND] = "on", [ACTMEM_PLACE_PREFERRED] = "preferably on",
		[ACTMEM_PLACE_INTERLEAVE] = "interleaved on",
	};

	if (place->by_caller)
		warnx("malloc: each block comes preferably from the node of the CPU that requests it");
	else if (place->policy)
		warnx("malloc: %s %s", how[place->policy], NODES_TEXT(&place->nodes));
}

static void tell_mode(const struct malloc_settings *settings, const struct place *place,
		      bool verbose)
{
	char enabled[32];
	bool off = sysfile_choice(enabled, sizeof(enabled), THP_ENABLED);

	if (off)
		strcpy(enabled, "not in this kernel");
	else
		off = !strcmp(enabled, "never");
	if (verbose) {
		warnx("malloc: blocks of %llu bytes and more are pooled, in private memory",
		      (unsigned long long)settings->min_bytes);
		tell_place(place);
		warnx("malloc: transparent huge pages: %s", enabled);
	}
	if (off)
		warnx("malloc: large blocks get small pages, because %s is '%s'; as root set it to 'madvise'",
		      THP_ENABLED, enabled);
	else if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0)
		warnx("malloc: large blocks get small pages, because this process has PR_SET_THP_DISABLE");
}

int malloc_mode_set(bool verbose)
{
	struct malloc_settings settings;
	struct reader reader = READER(ACTMEM_NAMES_RUN);
	struct place place;
	int status;

	if (!malloc_mode_is_wanted())
		return STATUS_OK;
	malloc_settings_read(&settings, &reader);
	place_choose(&place, &settings, &reader);
	if (*reader.error) {
		warnx("%s", reader.error);
		return STATUS_USAGE;
	}
	status = try_place(&place);
	if (!status)
		tell_mode(&settings, &place, verbose);
	return status;
}
