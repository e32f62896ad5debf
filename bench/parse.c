// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Parses sizes, numbers and choices. */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "base/base.h"
#include "disk.h"
#include "parse.h"
#include "../tools/table.h"

bool option_bytes(const char *option, const char *text, uint64_t least, uint64_t most,
		  uint64_t *bytes)
{
	char *least_text, *most_text;

	if (size_from_text(text, bytes) && *bytes >= least && *bytes <= most)
		return true;
	least_text = bytes_to_text(least, 0);
	most_text = bytes_to_text(most, 0);
	warnx("%s is '%s', but must be a number of bytes from %s to %s, such as 268435456 or 256M",
	      option, text, least_text ? least_text : "", most_text ? most_text : "");
	free(least_text);
	free(most_text);
	return false;
}

bool option_count(const char *option, const char *text, uint64_t least, uint64_t most,
		  uint64_t *count)
{
	char *end;

	errno = 0;
	*count = strtoull(text, &end, 10);
	if (!errno && *text >= '0' && *text <= '9' && !*end && *count >= least && *count <= most)
		return true;
	warnx("%s is '%s', but must be a number from %" PRIu64 " to %" PRIu64, option, text, least,
	      most);
	return false;
}

/* Parses digits with an optional decimal point. *@end points to the character after the number. */
static bool parse_decimal(const char *text, char **end, double *number)
{
	size_t length = strspn(text, "0123456789.");

	*number = strtod(text, end);
	return length && *end == text + length;
}

bool option_number(const char *option, const char *text, double least, double most,
		   double *number)
{
	char *end;

	if (parse_decimal(text, &end, number) && !*end && *number >= least && *number <= most)
		return true;
	warnx("%s is '%s', but must be a number from %g to %g", option, text, least, most);
	return false;
}

bool option_fraction(const char *option, const char *text, double most, double *fraction)
{
	double below = 1;
	char *end;
	bool good = parse_decimal(text, &end, fraction);

	if (good && *end == '/') {
		good = parse_decimal(end + 1, &end, &below) && below > 0;
		*fraction /= below;
	}
	if (good && !*end && *fraction > 0 && *fraction <= most)
		return true;
	warnx("%s is '%s', but must be a number above 0 and up to %g, such as 1/64 or 0.5", option,
	      text, most);
	return false;
}

bool option_folder(const char *path, const char **paths, uint32_t *count)
{
	struct stat folder;

	if (*count == SPILL_FOLDERS_MAX) {
		warnx("--spill is given more than %d times", SPILL_FOLDERS_MAX);
		return false;
	}
	/* Report an unusable folder before measuring anything. */
	if (stat(path, &folder)) {
		warn("--spill '%s'", path);
		return false;
	}
	if (!S_ISDIR(folder.st_mode)) {
		warnx("--spill '%s' is not a folder", path);
		return false;
	}
	paths[(*count)++] = path;
	return true;
}

bool option_choice(const char *option, const char *text, const char *const *choices,
		   unsigned int *choice)
{
	char list[128] = "";
	size_t length = 0;

	for (*choice = 0; choices[*choice]; ++*choice) {
		if (!strcmp(text, choices[*choice]))
			return true;
		length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%s",
					   length ? ", " : "", choices[*choice]);
		if (length >= sizeof(list))
			length = sizeof(list) - 1;
	}
	warnx("%s is '%s', but must be one of %s", option, text, list);
	return false;
}
