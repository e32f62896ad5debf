/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Disks that fail when they are told to: device-mapper's targets over parts of the
 * disk that ACTMEM_TEST_DISK names, which is overwritten; and ext4 on them.
 */
#ifndef TESTS_DISK_H
#define TESTS_DISK_H

#include <stdbool.h>
#include <stdint.h>

#define SECTOR	512ULL

struct disk {
	char name[32];
	char path[32];			/* /dev/dm-N */
	unsigned long long first;	/* byte of the disk below */
	unsigned long long bytes;
};

/* One that works, of @bytes at @first of the disk below. Each bails out. */
struct disk disk_make(const char *name, uint64_t first, uint64_t bytes);
void disk_remove(struct disk *disk);

void disk_work(const struct disk *disk);
/* Every access of these bytes is an error. */
void disk_break(const struct disk *disk, uint64_t at, uint64_t bytes);
/* Every access of any byte is an error, as of a disk that was pulled out. */
void disk_fail(const struct disk *disk);
/* Reads come back with a byte changed in each. */
void disk_corrupt(const struct disk *disk);
/* Each access takes so long. */
void disk_delay(const struct disk *disk, unsigned int milliseconds);
/* Accesses wait until it is told otherwise by one of the calls above. */
void disk_suspend(const struct disk *disk);

/* An empty file system, mounted at @folder, which is made. */
void disk_format(const struct disk *disk, const char *folder);
void disk_mount(const struct disk *disk, const char *folder);
void disk_unmount(const char *folder);

/* Bytes that a file system's user can still have. */
uint64_t disk_free_bytes(const char *folder);

/* Where on the disk a byte of a file lies. */
uint64_t disk_place_of(int fd, uint64_t at);

#endif /* TESTS_DISK_H */
