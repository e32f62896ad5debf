/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * See disk.h. A table is loaded beside the one in use and takes its place when the
 * device is resumed, so that what is mounted on it stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dm-ioctl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "disk.h"
#include "tap.h"

#define UUID		"4ac73e3a-0000-4000-8000-000000000000"
#define TRIES		500
#define PAUSE_US	20000
#define CONTROL		"/dev/mapper/control"
#define TARGETS_MAX	3
/* A target's description, with its parameters behind it. */
#define TARGET_BYTES	256

struct target {
	uint64_t first, bytes;
	const char *type;
	char parameters[TARGET_BYTES - sizeof(struct dm_target_spec)];
};

struct command {
	struct dm_ioctl head;
	char targets[TARGETS_MAX * TARGET_BYTES];
};

static const char *disk_below(void)
{
	const char *path = getenv("ACTMEM_TEST_DISK");

	if (!path)
		tap_bail("ACTMEM_TEST_DISK names no disk");
	return path;
}

/* See actmem_file_close() for why a disk may be busy for a moment. */
static bool is_busy_for_now(unsigned int *tries)
{
	return errno == EBUSY && (*tries)++ < TRIES && !usleep(PAUSE_US);
}

static void control(const struct disk *disk, unsigned long operation, struct command *command)
{
	int fd = open(CONTROL, O_RDWR | O_CLOEXEC);
	unsigned int tries = 0;

	command->head.version[0] = DM_VERSION_MAJOR;
	command->head.data_size = sizeof(*command);
	command->head.data_start = offsetof(struct command, targets);
	strcpy(command->head.name, disk->name);
	if (fd < 0)
		tap_bail(CONTROL ": %s", strerror(errno));
	while (ioctl(fd, operation, command) < 0)
		if (!is_busy_for_now(&tries))
			tap_bail("device-mapper refuses %s: %s", disk->name, strerror(errno));
	close(fd);
}

static void suspend(const struct disk *disk)
{
	struct command command = {
		.head.flags = DM_SUSPEND_FLAG | DM_SKIP_LOCKFS_FLAG | DM_NOFLUSH_FLAG,
	};

	control(disk, DM_DEV_SUSPEND, &command);
}

static void load(const struct disk *disk, const struct target *targets, unsigned int count)
{
	struct command table = { .head.target_count = count }, resume = { 0 };
	unsigned int i;

	for (i = 0; i < count; i++) {
		struct dm_target_spec *target = (void *)&table.targets[i * TARGET_BYTES];

		target->sector_start = targets[i].first / SECTOR;
		target->length = targets[i].bytes / SECTOR;
		target->next = TARGET_BYTES;
		strcpy(target->target_type, targets[i].type);
		strcpy((char *)(target + 1), targets[i].parameters);
	}
	control(disk, DM_TABLE_LOAD, &table);
	suspend(disk);
	control(disk, DM_DEV_SUSPEND, &resume);
}

static struct target linear(const struct disk *disk, uint64_t first, uint64_t bytes)
{
	struct target target = { .first = first, .bytes = bytes, .type = "linear" };

	snprintf(target.parameters, sizeof(target.parameters), "%s %llu", disk_below(),
		 (disk->first + first) / SECTOR);
	return target;
}

void disk_work(const struct disk *disk)
{
	struct target whole = linear(disk, 0, disk->bytes);

	load(disk, &whole, 1);
}

void disk_break(const struct disk *disk, uint64_t at, uint64_t bytes)
{
	struct target targets[TARGETS_MAX] = {
		linear(disk, 0, at),
		{ .first = at, .bytes = bytes, .type = "error" },
		linear(disk, at + bytes, disk->bytes - at - bytes),
	};

	if (at)
		load(disk, targets, TARGETS_MAX);
	else
		load(disk, targets + 1, TARGETS_MAX - 1);
}

/* Never up, and down for longer than any test takes. */
static void flakey(const struct disk *disk, const char *features)
{
	struct target whole = { .bytes = disk->bytes, .type = "flakey" };

	snprintf(whole.parameters, sizeof(whole.parameters), "%s %llu 0 100000 %s", disk_below(),
		 disk->first / SECTOR, features);
	load(disk, &whole, 1);
}

void disk_fail(const struct disk *disk)
{
	flakey(disk, "0");
}

void disk_corrupt(const struct disk *disk)
{
	flakey(disk, "5 corrupt_bio_byte 100 r 90 0");
}

void disk_delay(const struct disk *disk, unsigned int milliseconds)
{
	struct target whole = { .bytes = disk->bytes, .type = "delay" };

	snprintf(whole.parameters, sizeof(whole.parameters), "%s %llu %u", disk_below(),
		 disk->first / SECTOR, milliseconds);
	load(disk, &whole, 1);
}

void disk_suspend(const struct disk *disk)
{
	suspend(disk);
}

struct disk disk_make(const char *name, uint64_t first, uint64_t bytes)
{
	struct disk disk = { .first = first, .bytes = bytes };
	struct command command = { 0 };

	snprintf(disk.name, sizeof(disk.name), "%s", name);
	control(&disk, DM_DEV_CREATE, &command);
	snprintf(disk.path, sizeof(disk.path), "/dev/dm-%u", minor(command.head.dev));
	disk_work(&disk);
	return disk;
}

void disk_remove(struct disk *disk)
{
	struct command command = { 0 };

	control(disk, DM_DEV_REMOVE, &command);
}

void disk_format(const struct disk *disk, const char *folder)
{
	/* It takes seconds to make numbers up where the kernel has no random ones yet. */
	const char *const words[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-U", UUID,
				      "-E", "hash_seed=" UUID ",nodiscard,lazy_itable_init=0",
				      disk->path, NULL };
	char *const nothing[] = { NULL };
	int status = 0, error;
	pid_t child;

	error = posix_spawn(&child, "/sbin/mke2fs", NULL, NULL, (char *const *)words, nothing);
	if (error || waitpid(child, &status, 0) != child || status)
		tap_bail("mke2fs: %s, status %d", strerror(error), status);
	if (mkdir(folder, 0755) && errno != EEXIST)
		tap_bail("%s: %s", folder, strerror(errno));
	disk_mount(disk, folder);
}

void disk_mount(const struct disk *disk, const char *folder)
{
	if (mount(disk->path, folder, "ext4", 0, NULL))
		tap_bail("cannot mount %s: %s", disk->path, strerror(errno));
}

void disk_unmount(const char *folder)
{
	unsigned int tries = 0;

	while (umount(folder))
		if (!is_busy_for_now(&tries))
			tap_bail("cannot unmount %s: %s", folder, strerror(errno));
}

uint64_t disk_free_bytes(const char *folder)
{
	struct statvfs status;

	if (statvfs(folder, &status))
		tap_bail("%s: %s", folder, strerror(errno));
	return (uint64_t)status.f_bavail * status.f_frsize;
}

uint64_t disk_place_of(int fd, uint64_t at)
{
	union {
		struct fiemap map;
		char room[sizeof(struct fiemap) + sizeof(struct fiemap_extent)];
	} u = { .map = { .fm_start = at, .fm_length = 1, .fm_flags = FIEMAP_FLAG_SYNC,
			 .fm_extent_count = 1 } };
	const struct fiemap_extent *extent = u.map.fm_extents;

	if (ioctl(fd, FS_IOC_FIEMAP, &u.map) || u.map.fm_mapped_extents != 1)
		tap_bail("FIEMAP: %s", strerror(errno));
	return extent->fe_physical + (at - extent->fe_logical);
}
