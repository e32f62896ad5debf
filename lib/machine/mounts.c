/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads /proc/self/mountinfo:
 *   36 35 0:32 / /mnt/act1 rw,relatime shared:1 - actmem none rw,size=64G
 */
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "machine/mounts.h"

#define FILE_SYSTEM	" - "

/*
 * Decodes octal escapes: in paths, the kernel writes a blank as \040, and escapes a few other
 * bytes.
 */
static void unescape(char *text)
{
	char *to = text;

	for (; *text; text++) {
		if (text[0] == '\\' && strspn(text + 1, "01234567") >= 3) {
			*to++ = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 |
				       (text[3] - '0'));
			text += 3;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

/* Fills @mount from a line. Returns false if the line describes no mount. */
static bool take_line(char *line, struct mount *mount)
{
	char *rest = strstr(line, FILE_SYSTEM), *word = NULL, *state, *flags;
	unsigned int major, minor;
	unsigned int i;

	if (!rest || sscanf(line, "%*u %*u %u:%u", &major, &minor) != 2)
		return false;
	*rest = '\0';
	rest += strlen(FILE_SYSTEM);
	for (i = 0; i < 5; i++)
		word = strtok_r(i ? NULL : line, " ", &state);
	flags = strtok_r(NULL, " ", &state);
	if (!word || !flags)
		return false;
	mount->read_only = !strcmp(flags, "ro") || !strncmp(flags, "ro,", 3);
	unescape(word);
	mount->device = makedev(major, minor);
	mount->point = word;
	mount->type = strtok_r(rest, " ", &state);
	strtok_r(NULL, " ", &state);
	mount->options = strtok_r(NULL, " \n", &state);
	return mount->type && mount->options;
}

bool mounts_find(bool (*see)(void *context, const struct mount *mount), void *context)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	struct mount mount;
	bool found = false;
	char *line = NULL;
	size_t room = 0;

	if (!file)
		return false;
	while (!found && getline(&line, &room, file) > 0)
		found = take_line(line, &mount) && see(context, &mount);
	free(line);
	fclose(file);
	return found;
}

bool mount_option(const struct mount *mount, const char *option, char *value, size_t size)
{
	const char *at = mount->options;
	size_t length = strlen(option);

	for (; *at; at += strcspn(at, ",")) {
		at += *at == ',';
		if (strncmp(at, option, length))
			continue;
		snprintf(value, size, "%.*s", (int)strcspn(at + length, ","), at + length);
		return true;
	}
	return false;
}

const char *memory_file_system(const char *path)
{
	struct statfs files;

	if (statfs(path, &files))
		return NULL;
	return files.f_type == TMPFS_MAGIC ? "tmpfs" : files.f_type == RAMFS_MAGIC ? "ramfs" : NULL;
}
