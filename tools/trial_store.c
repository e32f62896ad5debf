// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Makes the store that a program would have, and files in its directories. */
#include <err.h>
#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include "actmem_store.h"
#include "base/base.h"
#include "tool.h"
#include "trial.h"

#define DIRECTORIES_MAX	64
/* That each directory must have room for. */
#define TRIAL_BYTES	(2ULL << 20)

struct wanted {
	uint64_t budget_bytes;
	bool is_limit;			/* what a budget without files refuses is over it */
	uint64_t spill_limit_bytes;
	uint32_t allow;			/* ACTMEM_STORE_ALLOW_* */
	char *text;			/* that the paths point into */
	const char *paths[DIRECTORIES_MAX];
	uint32_t count;
};

/* Separated as those of PATH are, and none empty. */
static bool take_directories(struct wanted *wanted)
{
	const char *text = knob_value(KNOB_SPILL);
	char *rest, *path;

	if (!text || !*text)
		return true;
	wanted->text = strdup(text);
	rest = wanted->text;
	while ((path = strsep(&rest, ":"))) {
		if (!*path || wanted->count == DIRECTORIES_MAX) {
			tell_wrong_value(KNOB_SPILL, "1 to 64 directories with a ':' between them");
			return false;
		}
		wanted->paths[wanted->count++] = path;
	}
	return true;
}

static bool take_allowed(struct wanted *wanted)
{
	if (spill_allow_from_environment(&wanted->allow))
		return true;
	tell_wrong_value(KNOB_SPILL_ALLOW, SPILL_ALLOW_CHOICE);
	return false;
}

static bool take_wanted(struct wanted *wanted)
{
	if (!take_size(KNOB_BUDGET, &wanted->budget_bytes) ||
	    !take_size(KNOB_SPILL_LIMIT, &wanted->spill_limit_bytes) ||
	    !take_directories(wanted) || !take_allowed(wanted))
		return false;
	if (!wanted->budget_bytes && wanted->count)
		warnx("--spill (ACTMEM_SPILL) without a budget beyond which to spill: set --budget (ACTMEM_BUDGET)");
	else if (!wanted->count && wanted->spill_limit_bytes)
		warnx("--spill-limit (ACTMEM_SPILL_LIMIT) without a directory to spill to: name one by --spill (ACTMEM_SPILL)");
	else if (wanted->spill_limit_bytes && wanted->spill_limit_bytes < TRIAL_BYTES)
		warnx("--spill-limit (ACTMEM_SPILL_LIMIT) is %llu bytes; it is at least 2M",
		      (unsigned long long)wanted->spill_limit_bytes);
	else
		return true;
	return false;
}

bool check_store(void)
{
	struct wanted wanted = { .count = 0 };
	bool can_be = take_wanted(&wanted);

	free(wanted.text);
	return can_be;
}

/* The library's words quote it. */
static bool is_of_a_directory(const struct wanted *wanted, const char *why)
{
	char quoted[PATH_MAX + 2];
	uint32_t i;

	for (i = 0; i < wanted->count; i++) {
		snprintf(quoted, sizeof(quoted), "'%s'", wanted->paths[i]);
		if (strstr(why, quoted))
			return true;
	}
	return false;
}

/* It would all be done in vain. */
static void warn_of_memory(const struct wanted *wanted)
{
	struct statfs system;
	uint32_t i;

	for (i = 0; i < wanted->count; i++)
		if (!statfs(wanted->paths[i], &system) && system.f_type == TMPFS_MAGIC)
			warnx("'%s' is on tmpfs, which is memory itself: spilling there saves none",
			      wanted->paths[i]);
}

static int make_store(struct actmem *am, const struct wanted *wanted, uint64_t grow_bytes,
		      bool verbose)
{
	uint64_t limit = wanted->spill_limit_bytes, room = wanted->count * TRIAL_BYTES;
	struct actmem_store_options options;
	struct actmem_store *store;
	int error;

	ACTMEM_INIT(&options);
	ACTMEM_INIT(&options.region);
	options.budget_bytes = wanted->budget_bytes;
	options.spill_paths = wanted->paths;
	options.spill_path_count = wanted->count;
	options.spill_limit_bytes = limit;
	options.flags = wanted->allow;
	options.spill_bytes = limit && limit < room ? limit : room;
	options.grow_bytes = grow_bytes;
	error = actmem_store_create(am, &options, &store);
	if (error) {
		warnx("%s", actmem_error_in(ACTMEM_NAMES_RUN |
					    (wanted->is_limit ? ACTMEM_NAMES_AS_LIMIT :
					     ACTMEM_NAMES_AS_BUDGET)));
		/* Without direct I/O, it is the directory's fault. */
		return error == -EINVAL && !is_of_a_directory(wanted, actmem_error()) ?
		       STATUS_USAGE : STATUS_FAILED;
	}
	warn_of_memory(wanted);
	if (verbose && wanted->count)
		warnx("%s", actmem_store_describe(store));
	actmem_store_destroy(store);
	return STATUS_OK;
}

int try_store(struct actmem *am, uint64_t grow_bytes, uint64_t limit_bytes, bool verbose)
{
	struct wanted wanted = { .count = 0 };
	int status = STATUS_USAGE;

	if (take_wanted(&wanted)) {
		wanted.is_limit = limit_bytes;
		if (limit_bytes)
			wanted.budget_bytes = limit_bytes;
		status = make_store(am, &wanted, grow_bytes, verbose);
	}
	free(wanted.text);
	return status;
}
