// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Parses the options of the subcommands that print tables or JSON. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include "table.h"
#include "tool.h"

bool take_options(const struct option_table *table, void *data, int argc, char **argv,
		  bool *as_json, int *status)
{
	int option;

	ignore_closed_pipes();
	while ((option = getopt_long(argc, argv, table->letters, table->options, NULL)) != -1) {
		if (option == 'h') {
			printf("Usage: %s [OPTION]...\n\n%s\n", program_invocation_short_name,
			       table->help);
			*status = STATUS_OK;
			return false;
		}
		if (option == 'J') {
			*as_json = true;
		} else if (option == '?' || !table->take(data, option, optarg)) {
			*status = usage_hint();
			return false;
		}
	}
	if (optind == argc)
		return true;
	warnx("unexpected argument '%s'", argv[optind]);
	*status = usage_hint();
	return false;
}

static bool take_bytes(void *data, int option, const char *value)
{
	struct print_options *options = data;

	options->table_flags |= TABLE_EXACT_BYTES;
	return true;
}

bool take_print_options(struct print_options *options, int argc, char **argv,
			const char *help, int *status)
{
	static const struct option long_options[] = {
		{ "bytes", no_argument, NULL, 'b' },
		COMMON_OPTIONS
	};
	const struct option_table table = { "bJh", long_options, help, take_bytes };

	*options = (struct print_options){ 0 };
	return take_options(&table, options, argc, argv, &options->as_json, status);
}
