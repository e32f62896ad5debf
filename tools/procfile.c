// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Reads small files of /proc and /sys. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "procfile.h"

static int read_text(char *text, size_t size, const char *path)
{
	size_t used = 0;
	ssize_t got;
	int fd, err;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	do {
		got = read(fd, text + used, size - 1 - used);
		if (got > 0)
			used += (size_t)got;
	} while (got > 0 || (got < 0 && errno == EINTR));
	err = got < 0 ? -errno : 0;
	close(fd);
	if (used && text[used - 1] == '\n')
		used--;
	text[used] = '\0';
	return err;
}

static int read_path(char *text, size_t size, const char *format, va_list arguments)
{
	char path[PATH_MAX];
	int length = vsnprintf(path, sizeof(path), format, arguments);

	if (length < 0 || length >= (int)sizeof(path))
		return -ENAMETOOLONG;
	return read_text(text, size, path);
}

int procfile_text(char *text, size_t size, const char *format, ...)
{
	va_list arguments;
	int err;

	va_start(arguments, format);
	err = read_path(text, size, format, arguments);
	va_end(arguments);
	return err;
}

int procfile_number(uint64_t *number, const char *format, ...)
{
	va_list arguments;
	char text[32];
	char *end;
	int err;

	va_start(arguments, format);
	err = read_path(text, sizeof(text), format, arguments);
	va_end(arguments);
	if (err)
		return err;
	if (!strcmp(text, "max")) {
		*number = UINT64_MAX;
		return 0;
	}
	errno = 0;
	*number = strtoull(text, &end, 10);
	return errno || end == text || *end ? -EINVAL : 0;
}

int procfile_choice(char *choice, size_t size, const char *path)
{
	char text[256];
	char *begin, *end;
	int err;

	err = read_text(text, sizeof(text), path);
	if (err)
		return err;
	begin = strchr(text, '[');
	end = begin ? strchr(begin, ']') : NULL;
	if (!end)
		return -EINVAL;
	*end = '\0';
	snprintf(choice, size, "%s", begin + 1);
	return 0;
}
