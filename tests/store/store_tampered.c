/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store whose spill files are changed or cut off behind its back, or whose disk is
 * full: no wrong byte is handed out, the error is at the block, the others are as they
 * were, and it goes on when what was wrong is right again.
 */
#include <sched.h>
#include <sys/mount.h>

#include "store_folder.h"

#define BYTES	(128 * KIB)
#define BLOCKS	(2 * BUDGET / BYTES)

static struct actmem_store *filled_store(struct actmem *am, const char *const *folder)
{
	struct actmem_store_options options = store_options(BUDGET, folder, 1);
	struct actmem_store *store;
	uint64_t i;

	options.flags |= ACTMEM_STORE_CHECKSUM;
	store = store_or_bail(am, &options);
	for (i = 0; i < BLOCKS; i++)
		if (put_named(store, i, BYTES))
			tap_bail("put");
	await_quiet(store);
	return store;
}

/* Two times give back what was there at first. */
static void change_files(const char *folder)
{
	int fds[SPILL_FILES_MAX];
	unsigned int count = open_spill_files(folder, fds), i;
	char byte;
	off_t at;

	for (i = 0; i < count; i++) {
		for (at = 1000; pread(fds[i], &byte, 1, at) == 1; at += 4096) {
			byte = (char)~byte;
			if (pwrite(fds[i], &byte, 1, at) != 1)
				tap_bail("a spill file cannot be changed: %s", strerror(errno));
		}
		/* A direct write that meets cached pages leaves an error, which is told once. */
		if (fsync(fds[i]) && fsync(fds[i]))
			tap_bail("fsync: %s", strerror(errno));
	}
	close_all(fds, count);
}

static void cut_files_off(const char *folder)
{
	int fds[SPILL_FILES_MAX];
	unsigned int count = open_spill_files(folder, fds), i;

	for (i = 0; i < count; i++)
		if (ftruncate(fds[i], 0))
			tap_bail("ftruncate: %s", strerror(errno));
	close_all(fds, count);
}

/* Takes what can be taken; tells how many failed in a way that is allowed. */
static unsigned int take_all(struct actmem_store *store, int failure[BLOCKS], int error,
			     int other_error)
{
	unsigned int failed = 0, wrong = 0, i;
	int result;

	for (i = 0; i < BLOCKS; i++) {
		result = take_named(store, i, BYTES);
		failure[i] = result == error || result == other_error ? result : 0;
		failed += !!failure[i];
		wrong += result && !failure[i];
	}
	ok(!wrong, "no byte is wrong, and no error another than expected");
	return failed;
}

static void test_changed(struct actmem *am, const char *folder)
{
	struct actmem_store *store = filled_store(am, &folder);
	int failure[BLOCKS];
	unsigned int failed, again = 0, i;

	change_files(folder);
	failed = take_all(store, failure, -EBADMSG, -EBADMSG);
	ok(failed, "%u blocks came back changed, and are refused", failed);
	for (i = 0; i < BLOCKS && !failure[i]; i++)
		;
	returns(take_named(store, i, BYTES), -EBADMSG);
	says("checksum");
	says(folder);
	ok(stats_of(store).blocks == failed, "they stay");
	await_quiet(store);
	change_files(folder);
	for (i = 0; i < BLOCKS; i++)
		if (failure[i])
			again += !take_named(store, i, BYTES);
	ok(again == failed, "and can be taken when they are right again");
	ok(stats_of(store).checksums_total >= BLOCKS, "checksums are counted");
	destroy_empty(store);
}

static void test_cut_off(struct actmem *am, const char *folder)
{
	struct actmem_store *store = filled_store(am, &folder);
	int failure[BLOCKS];
	unsigned int failed, unread = 0, i;

	cut_files_off(folder);
	/* A later spill may have made the file longer again, with a hole in it. */
	failed = take_all(store, failure, -ENODATA, -EBADMSG);
	ok(failed && stats_of(store).blocks == failed,
	   "%u blocks are gone with their file, and stay to be dropped", failed);
	for (i = 0; i < BLOCKS; i++)
		unread += failure[i] == -ENODATA;
	ok(stats_of(store).failed_fills_total >= unread, "those that the file lacks are counted");
	for (i = 0; i < BLOCKS && !failure[i]; i++)
		;
	ok(take_named(store, i, BYTES) < 0, "they fail again");
	says("block");
	says(folder);
	for (i = 0; i < BLOCKS; i++)
		if (failure[i] && actmem_store_drop(store, key_of(i)))
			tap_bail("drop");
	for (i = 0; i < BLOCKS; i++)
		if (put_named(store, i, BYTES))
			tap_bail("put");
	ok(!take_all(store, failure, -ENODATA, -EBADMSG), "new ones make the file anew");
	destroy_empty(store);
}

static void mount_small(const char *folder, unsigned int mib, unsigned long flags)
{
	char size[32];

	snprintf(size, sizeof(size), "mode=0700,size=%uM", mib);
	if (mount("none", folder, "tmpfs", flags, size))
		tap_bail("mount -t tmpfs -o %s: %s", size, strerror(errno));
}

/* Puts until it is refused; how many went well. */
static unsigned int put_until(struct actmem_store *store, unsigned int first, unsigned int end,
			      int *error)
{
	unsigned int i;

	for (i = first, *error = 0; i < end && !*error; i++)
		*error = put_named(store, i, BYTES);
	return i - !!*error;
}

static void test_full(struct actmem *am, const char *folder)
{
	struct actmem_store_options options = store_options(BUDGET, &folder, 1);
	struct actmem_store *store;
	unsigned int well, i;
	int error;

	mount_small(folder, 2, 0);
	store = store_or_bail(am, &options);
	well = put_until(store, 0, 4 * BLOCKS, &error);
	ok(error == -ENOSPC && well * BYTES >= BUDGET, "after %u blocks the disk is full", well);
	says(folder);
	ok(stats_of(store).blocks == well && stats_of(store).failed_spills_total,
	   "the block that found no room is not there, all others are");
	returns(put_named(store, well, BYTES), -ENOSPC);
	mount_small(folder, 64, MS_REMOUNT);
	ok(put_until(store, well, 2 * BLOCKS, &error) == 2 * BLOCKS,
	   "with a larger disk it goes on");
	for (i = 0, error = 0; i < 2 * BLOCKS; i++)
		error |= take_named(store, i, BYTES);
	ok(!error, "and every block is as it was put");
	destroy_empty(store);
	returns(umount(folder), 0);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();
	char path[PATH_MAX];
	const char *folder = make_folder(path);

	test_changed(am, folder);
	test_cut_off(am, folder);
	if (geteuid()) {
		tap_skip("only root can mount a small disk");
	} else {
		if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
			tap_bail("unshare: %s", strerror(errno));
		test_full(am, folder);
	}
	remove_folder(folder);
	return end_tests(am, before);
}
