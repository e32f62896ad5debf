/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads small files of /proc and /sys.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "machine/sysfile.h"

int sysfile_read(const char *path, char *text, size_t size)
{
	size_t used = 0;
	ssize_t got;
	int error = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	while (used < size - 1) {
		got = read(fd, text + used, size - 1 - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			error = -errno;
		if (got <= 0)
			break;
		used += (size_t)got;
	}
	text[used] = '\0';
	close(fd);
	return error;
}

int sysfile_value(uint64_t *value, const char *format, ...)
{
	char path[PATH_MAX], text[32], *end;
	va_list arguments;
	int length, error;

	va_start(arguments, format);
	length = vsnprintf(path, sizeof(path), format, arguments);
	va_end(arguments);
	if (length < 0 || length >= (int)sizeof(path))
		return -ENAMETOOLONG;
	error = sysfile_read(path, text, sizeof(text));
	if (error)
		return error;
	text[strcspn(text, "\n")] = '\0';
	if (!strcmp(text, "max")) {
		*value = UINT64_MAX;
		return 0;
	}
	errno = 0;
	*value = strtoull(text, &end, 10);
	return errno || end == text || *end ? -EINVAL : 0;
}

int sysfile_choice(char *choice, size_t size, const char *path)
{
	char text[256], *begin, *end;
	int error = sysfile_read(path, text, sizeof(text));

	if (error)
		return error;
	begin = strchr(text, '[');
	end = begin ? strchr(begin, ']') : NULL;
	if (!end)
		return -EINVAL;
	*end = '\0';
	snprintf(choice, size, "%s", begin + 1);
	return 0;
}

uint64_t sysfile_number(const char *text, const char *label)
{
	const char *at = strstr(text, label);

	return at ? strtoull(at + strlen(label), NULL, 10) : 0;
}
