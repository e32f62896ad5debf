/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The driver's settings in sysfs, which `actmem pool` and `actmem limit` read and write. saved.h
 * keeps these settings for the next boot.
 */
#ifndef ACTMEM_SETTINGS_H
#define ACTMEM_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"

#define DRIVER_SYSFS	"/sys/class/misc/actmem"
#define NO_LIMIT	UINT64_MAX		/* "max" */

struct settings_options {
	struct actmem_nodes nodes;	/* from --nodes; else empty */
	const char *value;		/* the argument that is not an option */
	bool is_saved;			/* --save */
	bool as_json;
};

#define SETTINGS_OPTIONS				\
	{ "nodes", required_argument, NULL, 'n' },	\
	{ "save", no_argument, NULL, 's' }

/* Because of the '-', getopt_long() returns 1 for each argument that is not an option. */
#define SETTINGS_OPTIONS_SHORT	"-n:sJh"

/* Handles SETTINGS_OPTIONS, and one argument. Returns false after printing the error message. */
bool settings_take(struct settings_options *options, int option, const char *value);

/*
 * Parse a multiple of the driver's page, such as 64G, or "max" if @may_be_max. Return false for any
 * other text; setting_take() also prints an error message.
 */
bool setting_from_text(const char *text, bool may_be_max, uint64_t *bytes);
bool setting_take(const char *text, bool may_be_max, uint64_t *bytes);

/* Formats a setting without rounding. The driver and setting_from_text() accept the text. */
const char *setting_text(char text[32], uint64_t bytes);

#define SETTING_TEXT(bytes)	setting_text((char[32]){0}, (bytes))

/* Returns true if there is a driver with these nodes; otherwise prints an error message. */
bool settings_are_there(const struct actmem_nodes *nodes);

/* Finds the nodes that the driver has files for. */
void settings_nodes(struct actmem_nodes *nodes);

/* Names of the driver's files, relative to DRIVER_SYSFS. */
#define USER_LIMIT		"user_limit_bytes"
#define NODE_LIMIT(node)	setting_name((char[64]){0}, node, "limit_bytes")
#define NODE_USED(node)		setting_name((char[64]){0}, node, "region_bytes")
#define NODE_POOL(node)		setting_name((char[64]){0}, node, "pool_bytes")
const char *setting_name(char name[64], unsigned int node, const char *file);

/* Return 0 or -errno, and print nothing. */
int setting_read(const char *name, uint64_t *bytes);
int setting_write(const char *name, uint64_t bytes);

/* Like setting_write(), for any file @path that accepts a number of bytes or "max". */
int limit_write(const char *path, uint64_t bytes);

/* Prints that a file cannot be written, and the remedy if one is known. */
void setting_tell(const char *name, int err);

/*
 * Finds the value to save: *@given, or the current value if @given is NULL. Returns false after
 * printing the error message.
 */
bool setting_to_save(const char *name, const uint64_t *given, uint64_t *bytes);

/* Returns RLIMIT_FSIZE of this command. A write beyond it would raise SIGXFSZ. */
uint64_t file_bytes_limit(void);

#endif
