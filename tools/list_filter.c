// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Chooses rows and columns of `actmem list`. */
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <fnmatch.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include "list_filter.h"
#include "tool.h"

bool filter_number(long long *number, const char *option, const char *text)
{
	char *end;

	errno = 0;
	*number = strtoll(text, &end, 10);
	if (end != text && !*end && !errno && *number >= 0)
		return true;
	warnx("'%s' is not a number (%s)", text, option);
	return false;
}

bool filter_user(struct list_filter *filter, const char *text)
{
	const struct passwd *user = getpwnam(text);

	if (user) {
		filter->uid = user->pw_uid;
		return true;
	}
	if (isdigit((unsigned char)*text))
		return filter_number(&filter->uid, "--user", text);
	warnx("there is no user '%s' (--user)", text);
	return false;
}

bool filter_is_set(const struct list_filter *filter)
{
	return filter->name || filter->cgroup || filter->uid >= 0 || filter->pid >= 0 ||
	       filter->node >= 0;
}

static bool is_on_node(const json_t *region, long long node)
{
	const json_t *each;
	size_t i;

	json_array_foreach(json_object_get(region, "nodes"), i, each)
		if (json_integer_value(json_object_get(each, "node")) == node)
			return true;
	return false;
}

static bool is_number(const json_t *region, const char *key, long long wanted)
{
	const json_t *value = json_object_get(region, key);

	return json_is_integer(value) && json_integer_value(value) == wanted;
}

static bool is_in_cgroup(const json_t *region, const char *wanted)
{
	const char *path = json_string_value(json_object_get(region, "cgroup"));
	size_t length = strlen(wanted);

	while (length && wanted[length - 1] == '/')
		length--;
	return path && !strncmp(path, wanted, length) && (!path[length] || path[length] == '/');
}

bool filter_takes(const struct list_filter *filter, const json_t *region)
{
	return (filter->uid < 0 || is_number(region, "uid", filter->uid)) &&
	       (filter->pid < 0 || is_number(region, "pid", filter->pid)) &&
	       (filter->node < 0 || is_on_node(region, filter->node)) &&
	       (!filter->cgroup || is_in_cgroup(region, filter->cgroup)) &&
	       (!filter->name || !fnmatch(filter->name, json_string_value(
				json_object_get(region, "name")), 0));
}

static bool is_heading(const char *heading, const char *name, size_t length)
{
	size_t i;

	for (i = 0; i < length && heading[i]; i++)
		if ((heading[i] == ' ' ? '_' : tolower((unsigned char)heading[i])) != name[i])
			return false;
	return i == length && !heading[i];
}

static const struct column *column_of(const struct column *all, size_t count, const char *name,
				      size_t length)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (is_heading(all[i].heading, name, length))
			return &all[i];
	return NULL;
}

size_t filter_columns(const struct list_filter *filter, const struct column *all, size_t count,
		      size_t usual, struct column chosen[LIST_COLUMNS_MAX])
{
	const char *name = filter->columns;
	size_t taken = 0;

	if (!name) {
		memcpy(chosen, all, usual * sizeof(*all));
		return usual;
	}
	for (;;) {
		size_t length = strcspn(name, ",");
		const struct column *column = column_of(all, count, name, length);

		if (!column || taken == LIST_COLUMNS_MAX) {
			warnx("'%.*s' is not a column: use the names in the heading, in lower case, or cgroup, age or id (--output)",
			      (int)length, name);
			return 0;
		}
		chosen[taken++] = *column;
		if (!name[length])
			return taken;
		name += length + 1;
	}
}
