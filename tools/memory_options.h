/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Options of the subcommands that create regions themselves. `actmem run` has the same options.
 * Each option sets an environment variable, which the library reads.
 */
#ifndef ACTMEM_MEMORY_OPTIONS_H
#define ACTMEM_MEMORY_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"

#define MEMORY_OPTIONS					\
	{ "backend", required_argument, NULL, 'b' },	\
	{ "pages", required_argument, NULL, 'p' },	\
	{ "nodes", required_argument, NULL, 'n' },	\
	{ "allow", required_argument, NULL, 'a' }

#define MEMORY_OPTIONS_SHORT	"b:p:n:a:"

#define MEMORY_OPTIONS_HELP							\
	"Place:\n"								\
	"  -b, --backend auto|driver|memfd  as for 'actmem run'\n"		\
	"  -n, --nodes LIST            NUMA nodes, such as 0,2-3\n"			\
	"\n"									\
	"Pages:\n"								\
	"  -p, --pages 1G|2M|thp|4K    of regions; default: 2M\n"		\
	"  -a, --allow 2m,thp,4k,node,unlocked|any\n"				\
	"                              fallbacks that may be used if the requested memory\n" \
	"                              is not available\n"			\
	"\n"

/* Handles one of these options; exits on an error. Returns false for any other option. */
bool memory_option(int option, const char *value);

/* Returns the page size that a region's length must be a multiple of. */
uint64_t memory_page_bytes(const struct actmem_options *options);

/* Reads the current environment. Returns an enum exit_status after printing any error message. */
int memory_options(struct actmem_options *options);

#endif
