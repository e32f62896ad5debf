// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Finds the files of mounted actmem file systems, and their regions. */
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "machine/machine.h"
#include "named_files.h"

struct search {
	bool (*see)(void *context, const struct named_file *file);
	void *context;
};

/* Returns the id of a file's region, or 0 if the file has no region yet or cannot be opened. */
static uint64_t region_of(const char *path)
{
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char info[64], text[1024];
	int err;

	if (fd < 0)
		return 0;
	snprintf(info, sizeof(info), "/proc/self/fdinfo/%d", fd);
	err = sysfile_read(info, text, sizeof(text));
	close(fd);
	return err ? 0 : sysfile_number(text, "actmem-id:");
}

static bool find_in_mount(void *context, const struct mount *mount)
{
	char *const roots[] = { (char *)mount->point, NULL };
	struct search *search = context;
	bool is_found = false;
	FTSENT *entry;
	FTS *walk;

	if (strcmp(mount->type, "actmem"))
		return false;
	walk = fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, NULL);
	while (walk && !is_found && (entry = fts_read(walk))) {
		struct named_file file = { .path = entry->fts_path };

		if (entry->fts_info != FTS_F)
			continue;
		file.id = region_of(file.path);
		file.changed = entry->fts_statp->st_ctime;
		is_found = file.id && search->see(search->context, &file);
	}
	if (walk)
		fts_close(walk);
	return is_found;
}

bool named_files_find(bool (*see)(void *context, const struct named_file *file), void *context)
{
	struct search search = { see, context };

	return mounts_find(find_in_mount, &search);
}
