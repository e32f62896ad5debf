// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Parses the options of the subcommands that only print. */
#include <err.h>
#include <getopt.h>
#include <stdio.h>
#include "table.h"
#include "tool.h"

bool take_print_options(struct print_options *options, int argc, char **argv,
			const char *help, int *status)
{
	static const struct option long_options[] = {
		{ "json", no_argument, NULL, 'J' },
		{ "bytes", no_argument, NULL, 'b' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	ignore_closed_pipes();
	*options = (struct print_options){ 0 };
	while ((option = getopt_long(argc, argv, "Jbh", long_options, NULL)) != -1) {
		switch (option) {
		case 'J':
			options->as_json = true;
			break;
		case 'b':
			options->table_flags |= TABLE_EXACT_BYTES;
			break;
		case 'h':
			puts(help);
			*status = STATUS_OK;
			return false;
		default:
			*status = usage_hint();
			return false;
		}
	}
	if (optind < argc) {
		warnx("unexpected argument '%s'", argv[optind]);
		*status = usage_hint();
		return false;
	}
	return true;
}
