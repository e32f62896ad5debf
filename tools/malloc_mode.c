// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Sets the environment up for the malloc mode of libactmem_preload.so. */
#include <err.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysinfo.h>
#include <unistd.h>
#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "malloc_mode.h"
#include "preload/preload.h"
#include "tool.h"

#define THP_ENABLED	"/sys/kernel/mm/transparent_hugepage/enabled"
#define TRIAL_BYTES	(2UL << 20)

static bool is_set(const char *variable)
{
	const char *text = getenv(variable);

	return text && *text;
}

bool malloc_mode_is_wanted(void)
{
	return is_set("ACTMEM_MALLOC") && strcmp(getenv("ACTMEM_MALLOC"), "0") != 0;
}

/* Nodes and policy serve both. */
bool malloc_mode_is_all(void)
{
	static const char * const of_regions[] = {
		"ACTMEM_BACKEND", "ACTMEM_PAGES", "ACTMEM_ALLOW", "ACTMEM_HEAP_GROW",
		"ACTMEM_HEAP_LIMIT", "ACTMEM_BUDGET", "ACTMEM_SPILL", "ACTMEM_SPILL_LIMIT",
		"ACTMEM_SPILL_ALLOW", "ACTMEM_DEVICE_RING", "ACTMEM_NAME", "ACTMEM_STRICT",
		"ACTMEM_CUDA_MIN", "ACTMEM_CUDA_KEEP",
	};
	size_t i;

	for (i = 0; i < sizeof(of_regions) / sizeof(of_regions[0]); i++)
		if (is_set(of_regions[i]))
			return false;
	return malloc_mode_is_wanted();
}

/* The preload reads no files in the programs that start: it knows no limit of a cgroup. */
static int set_keep(void)
{
	struct memory_cgroup cgroup;
	struct sysinfo machine;
	char text[32];

	if (is_set("ACTMEM_MALLOC_KEEP") || sysinfo(&machine) ||
	    memory_cgroup_read(&cgroup, "/proc/self/cgroup", "/proc/self/mounts") ||
	    cgroup.limit_bytes >= (uint64_t)machine.totalram * machine.mem_unit)
		return STATUS_OK;
	snprintf(text, sizeof(text), "%llu", (unsigned long long)cgroup.limit_bytes / 2);
	if (!setenv("ACTMEM_MALLOC_KEEP", text, 1))
		return STATUS_OK;
	warn("cannot set the environment");
	return STATUS_FAILED;
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
	warnx("cannot have memory on %s (mbind: %s); where mbind is forbidden, run without --nodes and --policy",
	      NODES_TEXT(&place->nodes), strerror(-err));
	return STATUS_FAILED;
}

static void tell_place(const struct place *place)
{
	static const char * const how[] = {
		[ACTMEM_PLACE_BIND] = "on", [ACTMEM_PLACE_PREFERRED] = "preferably on",
		[ACTMEM_PLACE_INTERLEAVE] = "interleaved on",
	};

	if (place->by_caller)
		warnx("malloc: each block preferably on the node of the CPU that asks for it");
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
		warnx("malloc: large blocks get small pages: %s is '%s' ('madvise' is enough)",
		      THP_ENABLED, enabled);
	else if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0)
		warnx("malloc: large blocks get small pages: this process has PR_SET_THP_DISABLE");
}

int malloc_mode_set(bool verbose)
{
	struct malloc_settings settings;
	struct setting_wrong wrong;
	struct place place;
	int status;

	if (!malloc_mode_is_wanted())
		return STATUS_OK;
	if (!malloc_settings_read(&settings, &wrong) || !place_choose(&place, &settings, &wrong)) {
		warnx("%s is '%s'; it may be %s", knob_name_of(wrong.variable, ACTMEM_NAMES_RUN),
		      wrong.text, wrong.choice);
		return STATUS_USAGE;
	}
	status = try_place(&place);
	if (!status)
		status = set_keep();
	if (!status)
		tell_mode(&settings, &place, verbose);
	return status;
}
