/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Which rows of `actmem list` are wanted, and which columns of them. */
#ifndef ACTMEM_LIST_FILTER_H
#define ACTMEM_LIST_FILTER_H

#include <stdbool.h>
#include <jansson.h>
#include "table.h"

#define LIST_COLUMNS_MAX	24

struct list_filter {
	const char *name;		/* as fnmatch(3) has it; NULL, and -1: any */
	const char *cgroup;		/* this one, and those below it */
	long long uid, pid, node;
	const char *columns;		/* "pid,name"; NULL: the usual ones */
};

#define LIST_FILTER_NONE	{ .uid = -1, .pid = -1, .node = -1 }

/* False: told why. */
bool filter_user(struct list_filter *filter, const char *text);
bool filter_number(long long *number, const char *option, const char *text);

/* Whether nothing but regions is asked for. */
bool filter_is_set(const struct list_filter *filter);

bool filter_takes(const struct list_filter *filter, const json_t *region);

/*
 * Chooses among @all, whose names are their headings in lower case with '_' for a blank; the
 * first @usual of them unless the filter says which. Their number, or 0: told why.
 */
size_t filter_columns(const struct list_filter *filter, const struct column *all, size_t count,
		      size_t usual, struct column chosen[LIST_COLUMNS_MAX]);

#endif
