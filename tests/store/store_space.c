/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a store's spill files leave free of a file system: less while much is spilled, and
 * more again when that is over, with files in one directory or striped over two.
 */
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include "store_folder.h"

#define BYTES		MIB
#define MANY		40
#define FEW		8
/* Of that length, to see more than the largest that is known. */
#define STEPS		6
#define DISK		"mode=0700,size=96M"
#define WAIT_US		1000
#define WAITS		5000

static uint64_t free_bytes(const char *folder)
{
	struct statvfs disk;

	if (statvfs(folder, &disk))
		tap_bail("%s: %s", folder, strerror(errno));
	return (uint64_t)disk.f_bfree * disk.f_frsize;
}

static void put_all(struct actmem_store *store, uint64_t count)
{
	uint64_t i;

	for (i = 0; i < count; i++)
		if (put_named(store, i, BYTES))
			tap_bail("block %llu: %s", (unsigned long long)i, actmem_error());
}

static bool run_step(struct actmem_store *store, uint64_t count)
{
	uint64_t i;
	int error = 0;

	put_all(store, count);
	for (i = count; i-- && !error; )
		error = take_named(store, i, BYTES);
	return !error;
}

/* At last; it is given back in the background. */
static bool is_free(const char *folder, uint64_t bytes)
{
	unsigned int wait;

	for (wait = 0; wait < WAITS && free_bytes(folder) < bytes; wait++)
		usleep(WAIT_US);
	return free_bytes(folder) >= bytes;
}

static void try_space(struct actmem *am, const char *folder, const char *const *paths,
		      uint32_t count)
{
	struct actmem_store_options options = store_options(BUDGET, paths, count);
	uint64_t empty = free_bytes(folder), full;
	struct actmem_store *store = store_or_bail(am, &options);
	unsigned int i;
	bool good;

	good = run_step(store, MANY);
	full = free_bytes(folder);
	ok(good && full <= empty - MANY * BYTES + BUDGET, "a large step takes %llu MiB of %u disks",
	   (unsigned long long)(empty - full) / MIB, count);
	for (i = 0; i < STEPS && good; i++)
		good = run_step(store, FEW);
	ok(good && is_free(folder, empty - 2 * FEW * BYTES),
	   "after small ones no more is taken than they need");
	ok(run_step(store, MANY), "another large one finds room again, and every block its own");
	put_all(store, MANY);
	for (i = 0; i < MANY; i++)
		if (actmem_store_drop(store, key_of(i)))
			tap_bail("drop");
	ok(is_free(folder, empty - 64 * KIB), "when all blocks are dropped the disk is free");
	/* Soon after the disk has it. */
	for (i = 0; i < WAITS && stats_of(store).file_bytes; i++)
		usleep(WAIT_US);
	ok(!stats_of(store).file_bytes && stats_of(store).given_back_bytes_total,
	   "which is counted");
	ok(run_step(store, MANY), "and is used again");
	destroy_empty(store);
	ok(is_free(folder, empty), "nothing is left of it");
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();
	char path[PATH_MAX], inside[2][PATH_MAX + 2];
	const char *folder = make_folder(path);
	const char *const paths[] = { inside[0], inside[1] };
	unsigned int i;

	if (geteuid()) {
		tap_skip("only root can mount a disk of its own");
	} else {
		if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", folder, "tmpfs", 0, DISK))
			tap_bail("mount: %s", strerror(errno));
		for (i = 0; i < 2; i++) {
			snprintf(inside[i], sizeof(inside[i]), "%s/%u", folder, i);
			if (mkdir(inside[i], 0700))
				tap_bail("%s: %s", inside[i], strerror(errno));
		}
		try_space(am, folder, &folder, 1);
		try_space(am, folder, paths, 2);
		returns(umount(folder), 0);
	}
	remove_folder(folder);
	return end_tests(am, before);
}
