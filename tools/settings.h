/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What an administrator sets of the driver, in its files in sysfs: what `actmem pool` and
 * `actmem limit` share. saved.h has how it is kept for the next boot.
 */
#ifndef ACTMEM_SETTINGS_H
#define ACTMEM_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include "actmem.h"

#define DRIVER_SYSFS	"/sys/class/misc/actmem"
#define NO_LIMIT	UINT64_MAX		/* "max" */

struct settings_options {
	struct actmem_nodes nodes;	/* --nodes; empty without */
	const char *value;		/* what is no option */
	bool is_saved;			/* --save */
	bool as_json;
};

#define SETTINGS_OPTIONS				\
	{ "nodes", required_argument, NULL, 'n' },	\
	{ "save", no_argument, NULL, 's' }

/* The minus has getopt_long() hand over what is no option, as option 1. */
#define SETTINGS_OPTIONS_SHORT	"-n:sJh"

/* Takes those, and an argument; false: it told why. */
bool settings_take(struct settings_options *options, int option, const char *value);

/*
 * A multiple of the driver's page, as 64G, or, where there may be none, "max". False: it
 * is not, which the second function tells.
 */
bool setting_from_text(const char *text, bool may_be_max, uint64_t *bytes);
bool setting_take(const char *text, bool may_be_max, uint64_t *bytes);

/* As the kernel and setting_from_text() read it, exactly. */
const char *setting_text(char text[32], uint64_t bytes);

#define SETTING_TEXT(bytes)	setting_text((char[32]){0}, (bytes))

/* Whether there is a driver, with these nodes; false: it told what is missing. */
bool settings_are_there(const struct actmem_nodes *nodes);

/* The nodes that the driver has files of. */
void settings_nodes(struct actmem_nodes *nodes);

/* Names of files, below DRIVER_SYSFS. */
#define USER_LIMIT		"user_limit_bytes"
#define NODE_LIMIT(node)	setting_name((char[64]){0}, node, "limit_bytes")
#define NODE_USED(node)		setting_name((char[64]){0}, node, "region_bytes")
#define NODE_POOL(node)		setting_name((char[64]){0}, node, "pool_bytes")
const char *setting_name(char name[64], unsigned int node, const char *file);

/* 0 or -errno, without words. */
int setting_read(const char *name, uint64_t *bytes);
int setting_write(const char *name, uint64_t bytes);

/* Tells that a file cannot be written, with the remedy if one is known. */
void setting_tell(const char *name, int err);

/* What there is to save: @given, unless it is NULL; else what the file has. False: it told why. */
bool setting_to_save(const char *name, const uint64_t *given, uint64_t *bytes);

#endif
