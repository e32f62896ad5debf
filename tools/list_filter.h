/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The rows and columns of `actmem list` that the user wants. */
#ifndef ACTMEM_LIST_FILTER_H
#define ACTMEM_LIST_FILTER_H

#include <stdbool.h>
#include <jansson.h>
#include "table.h"

#define LIST_COLUMNS_MAX	24

struct list_filter {
	const char *name;		/* a pattern for fnmatch(3); NULL: any */
	const char *cgroup;		/* this cgroup and its descendants; NULL: any */
	long long uid, pid, node;	/* -1: any */
	const char *columns;		/* such as "pid,name"; NULL: the usual ones */
};

#define LIST_FILTER_NONE	{ .uid = -1, .pid = -1, .node = -1 }

/* Parse the value of an option. Return false after printing the error message. */
bool filter_user(struct list_filter *filter, const char *text);
bool filter_number(long long *number, const char *option, const char *text);

/*
 * Returns true if the filter has a condition. A filter with a condition selects only regions, so
 * the list then omits the blocks of malloc.
 */
bool filter_is_set(const struct list_filter *filter);

bool filter_takes(const struct list_filter *filter, const json_t *region);

/*
 * Chooses the columns of @all that the filter names by their headings, in lower case and with '_'
 * for a blank. Chooses the first @usual columns if the filter names no column. Returns the number
 * of chosen columns, or 0 after printing the error message.
 */
size_t filter_columns(const struct list_filter *filter, const struct column *all, size_t count,
		      size_t usual, struct column chosen[LIST_COLUMNS_MAX]);

#endif
