// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Finds the device and file system of a folder in /proc/self/mountinfo. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "../tools/table.h"
#include "disk.h"

/* Parses a line such as "36 35 98:0 /root /point options tags... - type source options". */
static bool is_mount_of(const char *line, dev_t device, char type[64], char source[256])
{
	unsigned int found_major, found_minor;
	const char *rest = strstr(line, " - ");

	return rest && sscanf(line, "%*u %*u %u:%u", &found_major, &found_minor) == 2 &&
	       makedev(found_major, found_minor) == device &&
	       sscanf(rest, " - %63s %255s", type, source) == 2;
}

static json_t *disk_to_json(const char *path)
{
	char type[64], source[256], *line = NULL;
	FILE *mounts = fopen("/proc/self/mountinfo", "re");
	bool found = false;
	struct stat stat_of;
	size_t size = 0;

	if (mounts && !stat(path, &stat_of))
		while (!found && getline(&line, &size, mounts) >= 0)
			found = is_mount_of(line, stat_of.st_dev, type, source);
	free(line);
	if (mounts)
		fclose(mounts);
	return json_pack("{s:o, s:o, s:o}", "path", text_to_json(path),
			 "device", found ? text_to_json(source) : json_null(),
			 "file_system", found ? text_to_json(type) : json_null());
}

json_t *disks_to_json(const char *const *paths, uint32_t count)
{
	json_t *disks = json_array();
	uint32_t i;

	for (i = 0; i < count; i++)
		disks = append_item(disks, disk_to_json(paths[i]));
	return disks;
}
