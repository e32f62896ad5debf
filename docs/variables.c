// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Prints the variables ACTMEM_* of lib/config/table.h, for the manual page actmem(1). */
#include <stdio.h>
#include <string.h>

#include "config/config.h"

static const struct {
	unsigned int part;
	const char *name;
} readers[] = {
	{ PART_OPEN, "the library (if a program opens it without options)" },
	{ PART_LIBRARY, "the library" },
	{ PART_PYTHON | PART_START, "the Python module" },
	{ PART_CUDA, "the preload for CUDA" },
	{ PART_MALLOC, "the preload for malloc" },
	{ PART_PRELOAD, "the preload" },
};

static void print_readers(unsigned int parts)
{
	const char *before = "Read by ";
	size_t i;

	for (i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
		if (readers[i].part & parts) {
			printf("%s%s", before, readers[i].name);
			before = " and ";
		}
	}
	puts(".\n");
}

static void print_variable(enum knob knob)
{
	const struct knob_info *info = &knob_table[knob];
	const char *option = knob_name(knob, ACTMEM_NAMES_RUN);
	char choice[KNOB_CHOICE_MAX];

	printf("*%s*\n\t", knob_name(knob, ACTMEM_NAMES_VARIABLES));
	if (*option == '-')
		printf("*actmem run %.*s* sets it. ", (int)strcspn(option, " "), option);
	printf("%s%sIt may be %s.\n\t", info->about ?: "", info->about ? " " : "",
	       knob_choice(choice, knob));
	if (info->initial)
		printf("Default: %s. ", info->initial);
	print_readers(info->parts);
}

int main(void)
{
	unsigned int knob;

	for (knob = 0; knob < KNOB_VARIABLES; knob++)
		print_variable(knob);
	return ferror(stdout) || fclose(stdout);
}
