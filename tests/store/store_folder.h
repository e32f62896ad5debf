/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What the random tests of stores, and those of their faults, share: a folder of their
 * own to spill to, a hold on the files in it, and blocks of any length.
 */
#ifndef TESTS_STORE_FOLDER_H
#define TESTS_STORE_FOLDER_H

#include <sys/stat.h>

#include "random.h"
#include "store_test.h"

#define BUDGET	(4 * MIB)

/* A new folder beside this program, where the file system of the build lies, or in SPILL=. */
static inline const char *make_folder(char path[PATH_MAX])
{
	const char *given = getenv("SPILL");

	snprintf(path, PATH_MAX, "%.3900s/store-XXXXXX", given ? given : spill_path());
	if (!mkdtemp(path))
		tap_bail("%s: %s", path, strerror(errno));
	return path;
}

static inline void remove_folder(const char *path)
{
	ok(!count_files(path), "no spill file is left");
	if (rmdir(path))
		tap_bail("%s: %s", path, strerror(errno));
}

/* Blocks whose content is told by their name. */
static inline int put_named(struct actmem_store *store, uint64_t name, uint64_t bytes)
{
	return put_block(store, name, bytes, name);
}

static inline void tell_difference(uint64_t name, const uint64_t *words, uint64_t bytes)
{
	uint64_t count = bytes / sizeof(*words), first = count, last = 0, differ = 0, i;

	for (i = 0; i < count; i++) {
		if (words[i] == block_word(name, i))
			continue;
		differ++;
		first = first < i ? first : i;
		last = i;
	}
	if (differ)
		printf("# block %llu: %llu words differ, from byte %llu (%llx) to %llu (%llx)\n",
		       (unsigned long long)name, (unsigned long long)differ,
		       (unsigned long long)first * 8, (unsigned long long)words[first],
		       (unsigned long long)last * 8, (unsigned long long)words[last]);
}

/* -EILSEQ: other bytes than were put; the block is held then. */
static inline int take_named(struct actmem_store *store, uint64_t name, uint64_t bytes)
{
	const void *memory;
	uint64_t has;
	int error = hold_block(store, name, &memory, &has);

	if (error)
		return error;
	if (has != bytes || !is_block(memory, bytes, name)) {
		tell_difference(name, memory, has);
		return -EILSEQ;
	}
	return actmem_store_release(store, key_of(name));
}

/*
 * Waits until the store has not changed for half a second. A write that a busy disk delays for
 * longer would overwrite what a test changes in the file.
 */
static inline void await_quiet(struct actmem_store *store)
{
	struct actmem_store_stats before, now = stats_of(store);
	unsigned int same = 0;

	while (same < 25) {
		before = now;
		usleep(20000);
		now = stats_of(store);
		same = memcmp(&before, &now, sizeof(now)) ? 0 : same + 1;
	}
}

#define SPILL_FILES_MAX	64

/*
 * The files without a name that this process has in @folder, opened once more, not
 * for direct I/O. To be closed.
 */
static inline unsigned int open_spill_files(const char *folder, int fds[SPILL_FILES_MAX])
{
	char names[SPILL_FILES_MAX][32], link[PATH_MAX];
	unsigned int count = 0, i;
	ssize_t length;
	int fd;

	for (fd = 3; fd < 1024 && count < SPILL_FILES_MAX; fd++) {
		snprintf(names[count], sizeof(names[0]), "/proc/self/fd/%d", fd);
		length = readlink(names[count], link, sizeof(link) - 1);
		link[length > 0 ? length : 0] = '\0';
		count += !strncmp(link, folder, strlen(folder));
	}
	for (i = 0; i < count; i++) {
		fds[i] = open(names[i], O_RDWR | O_CLOEXEC);
		if (fds[i] < 0)
			tap_bail("%s: %s", names[i], strerror(errno));
	}
	if (!count)
		tap_bail("there is no spill file in %s", folder);
	return count;
}

static inline void close_all(const int *fds, unsigned int count)
{
	while (count--)
		close(fds[count]);
}

#endif /* TESTS_STORE_FOLDER_H */
