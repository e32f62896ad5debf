// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Sets environment variables from options, from which the library reads them. */
#include <err.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/config.h"
#include "memory_options.h"
#include "tool.h"

/* Returns the variable that an option sets, or NULL for other options. */
static const char *memory_variable(int option)
{
	switch (option) {
	case 'b':
		return "ACTMEM_BACKEND";
	case 'p':
		return "ACTMEM_PAGES";
	case 'n':
		return "ACTMEM_NODES";
	case 'a':
		return "ACTMEM_ALLOW";
	default:
		return NULL;
	}
}

bool memory_option(int option, const char *value)
{
	const char *variable = memory_variable(option);

	if (!variable)
		return false;
	if (variable_set(variable, value))
		exit(STATUS_FAILED);
	return true;
}

uint64_t memory_page_bytes(const struct actmem_options *options)
{
	return options->pages == ACTMEM_PAGES_1G ? 1ULL << 30 : 2ULL << 20;
}

int memory_options(struct actmem_options *options)
{
	struct reader reader = READER(ACTMEM_NAMES_VARIABLES);

	reader_check_switches(&reader);
	if (*reader.error) {
		warnx("%s", reader.error);
		return STATUS_USAGE;
	}
	ACTMEM_INIT(options);
	if (actmem_options_from_environment(options)) {
		print_library_error();
		return STATUS_USAGE;
	}
	/* Only this process uses these regions, so they have no name. */
	options->heap_name = NULL;
	return STATUS_OK;
}
