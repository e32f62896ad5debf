// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Finds the folder of the running command. The command finds its other files relative to this
 * folder.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "tool.h"

bool own_folder(char folder[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
	char *slash;

	if (length < 0)
		return false;
	folder[length] = '\0';
	slash = strrchr(folder, '/');
	if (!slash) {
		errno = ENOENT;
		return false;
	}
	*slash = '\0';
	return true;
}
