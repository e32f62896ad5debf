// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem doctor: checks each condition for full speed, the one with the largest gain first. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "checks.h"
#include "facts.h"
#include "table.h"
#include "tool.h"
#include "wrap.h"
#include "config/config.h"
#include "xla/xla.h"

#define STATE_COLUMNS	6

static const char help[] =
	"Finds what slows actmem down on this machine, for this user, and shows the remedy.\n"
	"The largest gain comes first. Changes nothing.\n"
	"\n"
	"  -s, --spill=DIR  a folder to spill to; may be repeated. Default: ACTMEM_SPILL\n"
	"  -a, --all        also show checks that passed\n"
	"  -J, --json       print JSON, with all checks\n"
	"  -h, --help       print this\n"
	"\n"
	"Exit status 1 if there is something to fix.";

struct doctor {
	struct spill_folders spill;
	bool shows_all;
};

static int add_folder(struct spill_folders *folders, char *path)
{
	char **paths = realloc(folders->paths, (folders->count + 1) * sizeof(*paths));

	if (!paths)
		return -ENOMEM;
	paths[folders->count++] = path;
	folders->paths = paths;
	return 0;
}

/*
 * Adds the folders of ACTMEM_SPILL, but none if its value is wrong, which check_environment()
 * reports. The added paths are those of @knobs.
 */
static int add_folders(struct spill_folders *folders, struct knobs *knobs)
{
	struct reader reader = READER(ACTMEM_NAMES_VARIABLES);
	int err = knobs_read_directories(knobs, &reader);
	uint32_t i;

	if (err)
		return err == -EINVAL ? 0 : err;
	for (i = 0; i < knobs->spill_path_count && !err; i++)
		err = add_folder(folders, knobs->spill_paths[i]);
	return err;
}

static int run_checks(json_t *findings, const struct spill_folders *folders)
{
	json_t *driver = facts_driver(), *nodes = facts_nodes();
	int err = driver && nodes ? 0 : -ENOMEM;
	bool has_driver = false;

	err = err ?: check_driver(findings, driver, &has_driver);
	err = err ?: check_pages(findings, nodes, has_driver);
	err = err ?: check_memlock(findings, driver, has_driver);
	err = err ?: check_cgroup(findings);
	err = err ?: check_surplus(findings);
	err = err ?: check_pools(findings, nodes, has_driver);
	json_decref(nodes);
	json_decref(driver);
	err = err ?: check_devices(findings);
	err = err ?: check_spill(findings, folders);
	err = err ?: check_io_uring(findings);
	err = err ?: check_balancing(findings);
	err = err ?: check_placement(findings);
	err = err ?: check_environment(findings);
	return err ?: check_container(findings);
}

static bool is_well(const json_t *finding)
{
	return !strcmp(json_string_value(json_object_get(finding, "state")), CHECK_OK);
}

/*
 * Prints @text after @before, which is padded to @indent columns. If @text is wrapped, all further
 * lines are indented by the same number of columns.
 */
static int print_sentence(const char *before, const char *text, size_t indent)
{
	size_t width = terminal_width();
	char *lines, *line, *next;

	lines = width > 2 * indent ? wrap_text(text, width - indent) : strdup(text);
	next = lines;
	for (line = strsep(&next, "\n"); line; line = strsep(&next, "\n")) {
		printf("%-*s%s\n", (int)indent, before, line);
		before = "";
	}
	free(lines);
	return lines ? 0 : -ENOMEM;
}

static int print_finding(const json_t *finding)
{
	const char *fix = json_string_value(json_object_get(finding, "fix"));
	char *text;
	int err;

	if (asprintf(&text, "%s: %s", json_string_value(json_object_get(finding, "check")),
		     json_string_value(json_object_get(finding, "finding"))) < 0)
		return -ENOMEM;
	err = print_sentence(json_string_value(json_object_get(finding, "state")), text,
			     STATE_COLUMNS);
	free(text);
	/* Print the fix on its own line: most terminals are too narrow for both texts. */
	return err || !fix ? err : print_sentence("", fix, STATE_COLUMNS);
}

static int print_findings(const json_t *findings, bool shows_all)
{
	const json_t *finding;
	size_t i, shown = 0;
	int err;

	json_array_foreach(findings, i, finding) {
		if (is_well(finding) && !shows_all)
			continue;
		shown++;
		err = print_finding(finding);
		if (err)
			return err;
	}
	if (!shown)
		printf("ok    nothing to fix: %zu checks passed\n",
		       json_array_size(findings));
	return 0;
}

static bool doctor_option(void *data, int option, const char *value)
{
	struct doctor *doctor = data;

	if (option != 's') {
		doctor->shows_all = true;
		return true;
	}
	if (!add_folder(&doctor->spill, (char *)value))
		return true;
	warnx("%s", strerror(ENOMEM));
	return false;
}

int cmd_doctor(int argc, char **argv)
{
	static const struct option options[] = {
		{ "spill", required_argument, NULL, 's' },
		{ "all", no_argument, NULL, 'a' },
		COMMON_OPTIONS
	};
	const struct option_table table = { "s:aJh", options, help, doctor_option };
	struct knobs knobs = { 0 };
	bool as_json = false, is_sick = false;
	json_t *findings = json_array();
	struct doctor doctor = { 0 };
	const json_t *finding;
	int status, err = 0;
	size_t i;

	if (!take_options(&table, &doctor, argc, argv, &as_json, &status))
		goto out;
	if (!findings)
		err = -ENOMEM;
	else if (!doctor.spill.count)
		err = add_folders(&doctor.spill, &knobs);
	if (!err)
		err = run_checks(findings, &doctor.spill);
	if (!err)
		err = as_json ? table_print_json(findings)
			      : print_findings(findings, doctor.shows_all);
	json_array_foreach(findings, i, finding)
		is_sick |= !strcmp(json_string_value(json_object_get(finding, "state")),
				   CHECK_FIX);
	if (err)
		warnx("%s", strerror(-err));
	status = err || is_sick ? STATUS_FAILED : STATUS_OK;
out:
	json_decref(findings);
	free(doctor.spill.paths);
	knobs_forget(&knobs);
	return status;
}
