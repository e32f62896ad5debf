// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem prune: removes named regions that no process uses. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "actmem.h"
#include "named_files.h"
#include "table.h"
#include "tool.h"

static const char help[] =
	"Removes files that jobs with --name left behind: files of the driver's mounted file\n"
	"systems that no process has open or mapped, and that no device pins. If such a job\n"
	"starts again, it begins with new memory.\n"
	"\n"
	"  -o, --older=TIME  only files that were created or changed at least that long ago,\n"
	"                    such as 90s, 10m, 1h or 2d\n"
	"  -n, --dry-run     print the files, and remove nothing\n"
	"  -J, --json        print JSON\n"
	"  -h, --help        print this\n"
	"\n"
	"Only root, in the PID namespace of the machine, sees which processes use the files.\n"
	"Otherwise, prune removes nothing.";

struct prune {
	long older;			/* minimum age of a file to remove, in seconds */
	bool is_dry;
	time_t now;
	const struct actmem_region_info *regions;
	size_t count;
	json_t *removed;		/* NULL: out of memory */
	bool has_failed;
};

static bool parse_age(struct prune *prune, const char *value)
{
	char *end;

	errno = 0;
	prune->older = strtol(value, &end, 10);
	if (end != value && !errno && prune->older >= 0 && prune->older < 1L << 30) {
		if (!strcmp(end, "s"))
			return true;
		prune->older *= 60;
		if (!strcmp(end, "m"))
			return true;
		prune->older *= 60;
		if (!strcmp(end, "h"))
			return true;
		prune->older *= 24;
		if (!strcmp(end, "d"))
			return true;
	}
	warnx("--older is '%s', but must be a time such as 90s, 10m, 1h or 2d", value);
	return false;
}

static bool prune_option(void *data, int option, const char *value)
{
	struct prune *prune = data;

	if (option == 'o')
		return parse_age(prune, value);
	prune->is_dry = true;
	return true;
}

/*
 * Returns the driver's region with that id, or NULL if there is none, or if the region is in use.
 */
static const struct actmem_region_info *unused_region(const struct prune *prune, uint64_t id)
{
	size_t i;

	for (i = 0; i < prune->count; i++) {
		const struct actmem_region_info *region = &prune->regions[i];

		if (region->backend != ACTMEM_BACKEND_DRIVER || region->id != id)
			continue;
		return region->named && !region->path && !region->pid && !region->mapped_bytes &&
		       !region->pinned_bytes && !region->exported_bytes ? region : NULL;
	}
	return NULL;
}

static bool prune_file(void *context, const struct named_file *file)
{
	struct prune *prune = context;
	const struct actmem_region_info *region = unused_region(prune, file->id);

	if (!region || prune->now - file->changed < prune->older)
		return false;
	if (!prune->is_dry && unlink(file->path)) {
		warn("cannot remove %s", file->path);
		prune->has_failed = true;
		return false;
	}
	prune->removed = append_item(prune->removed, json_pack(
		"{s:o, s:I, s:I, s:I}", "path", text_to_json(file->path),
		"bytes", (json_int_t)region->allocated_bytes, "uid", (json_int_t)region->uid,
		"age_seconds", (json_int_t)(prune->now - file->changed)));
	return !prune->removed;
}

static int print_removed(const struct prune *prune)
{
	static const struct column columns[] = {
		{ "FILE", "path", cell_text, COLUMN_LEFT },
		{ "BYTES", "bytes", cell_bytes, COLUMN_RIGHT },
		{ "USER", "uid", cell_user, COLUMN_LEFT },
		{ "AGE", "age_seconds", cell_text, COLUMN_RIGHT },
	};

	return table_print(prune->removed, columns, sizeof(columns) / sizeof(columns[0]), 0);
}

int cmd_prune(int argc, char **argv)
{
	static const struct option options[] = {
		{ "older", required_argument, NULL, 'o' },
		{ "dry-run", no_argument, NULL, 'n' },
		COMMON_OPTIONS
	};
	const struct option_table table = { "o:nJh", options, help, prune_option };
	struct prune prune = { .now = time(NULL) };
	struct actmem_region_info *regions;
	bool as_json = false;
	int status, err;

	if (!take_options(&table, &prune, argc, argv, &as_json, &status))
		return status;
	if (!sees_machine()) {
		warnx("cannot see all processes, and one of them may use the memory; run the command as root, outside of containers");
		return STATUS_FAILED;
	}
	if (actmem_region_list(&regions, &prune.count))
		return print_library_error();
	prune.regions = regions;
	prune.removed = json_array();
	if (prune.removed)
		named_files_find(prune_file, &prune);
	free(regions);
	err = !prune.removed ? -ENOMEM :
	      as_json ? table_print_json(prune.removed) : print_removed(&prune);
	json_decref(prune.removed);
	if (err)
		warnx("%s", strerror(-err));
	return err || prune.has_failed ? STATUS_FAILED : STATUS_OK;
}
