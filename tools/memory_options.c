// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Sets environment variables, which the library reads, from command-line options. */
#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "memory_options.h"
#include "tool.h"

bool memory_option(int option, const char *value)
{
	const char letters[] = "bpna";
	const enum knob knobs[] = { KNOB_BACKEND, KNOB_PAGES, KNOB_NODES, KNOB_ALLOW };
	const char *letter = strchr(letters, option);
	enum knob knob;

	if (!letter)
		return false;
	knob = knobs[letter - letters];
	if (!*value) {
		const char *name = knob_name(knob, ACTMEM_NAMES_RUN);

		warnx("%.*s is empty", (int)strcspn(name, " "), name);
		exit(usage_hint());
	}
	if (variable_set(knob_name(knob, ACTMEM_NAMES_VARIABLES), value))
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

	reader_check_values(&reader);
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
