/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What this process's memory cgroup still lets it have, in both versions of
 * the cgroup file system where they are usually mounted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cgroup.h"
#include "sysfile.h"

struct layout {
	const char *line;	/* how /proc/self/cgroup names the controller */
	const char *root;
	const char *limit;
	const char *usage;
	const char *cache[2];	/* lines of memory.stat: cache that can be dropped */
};

static const struct layout layouts[] = {
	{ "0::", "/sys/fs/cgroup", "memory.max", "memory.current",
	  { "\ninactive_file ", "\nactive_file " } },
	{ ":memory:", "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
	  "memory.usage_in_bytes", { "\ntotal_inactive_file ", "\ntotal_active_file " } },
};

static int read_in(const char *directory, const char *file, char *text, size_t size)
{
	char path[CGROUP_PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", directory, file) >= sizeof(path))
		return -1;
	return sysfile_read(path, text, size);
}

static uint64_t available_in(const struct layout *layout, const char *directory)
{
	char text[8192];
	uint64_t limit, used, cache = 0;
	unsigned int i;

	if (read_in(directory, layout->limit, text, sizeof(text)) ||
	    text[0] < '0' || text[0] > '9')
		return UINT64_MAX;
	limit = strtoull(text, NULL, 10);
	/* Version 1 says "no limit" by a number near the largest. */
	if (limit >= (1ULL << 62) ||
	    read_in(directory, layout->usage, text, sizeof(text)))
		return UINT64_MAX;
	used = strtoull(text, NULL, 10);
	if (!read_in(directory, "memory.stat", text, sizeof(text)))
		for (i = 0; i < 2; i++)
			cache += sysfile_number(text, layout->cache[i]);
	used -= cache < used ? cache : used;
	return used < limit ? limit - used : 0;
}

uint64_t cgroup_available_bytes(char knob[CGROUP_PATH_MAX])
{
	uint64_t available, narrowest = UINT64_MAX;
	char text[4096], directory[CGROUP_PATH_MAX - 64];
	const struct layout *layout;
	char *path, *slash;
	unsigned int i;

	if (sysfile_read("/proc/self/cgroup", text, sizeof(text)))
		return UINT64_MAX;
	for (i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		layout = &layouts[i];
		path = strstr(text, layout->line);
		if (!path)
			continue;
		path += strlen(layout->line);
		if ((size_t)snprintf(directory, sizeof(directory), "%s%.*s", layout->root,
				     (int)strcspn(path, "\n"), path) >= sizeof(directory))
			continue;
		/* From the process's own group up to the root. */
		for (;;) {
			available = available_in(layout, directory);
			if (available < narrowest) {
				narrowest = available;
				snprintf(knob, CGROUP_PATH_MAX, "%s/%s", directory, layout->limit);
			}
			slash = strrchr(directory, '/');
			if (!slash || (size_t)(slash - directory) < strlen(layout->root))
				break;
			*slash = '\0';
		}
	}
	return narrowest;
}
