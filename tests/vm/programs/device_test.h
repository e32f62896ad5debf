/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* What the tests that let a device at a region share. */
#ifndef DEVICE_TEST_H
#define DEVICE_TEST_H

#include <liburing.h>
#include <sys/utsname.h>

#include "driver_test.h"

/* Of `tests/vm/run --nvme`. */
#define DISK "/dev/nvme0n1"

/* Two pages, so that there is an edge between them. */
#define LENGTH (2 * PAGE_BYTES)

struct region {
	int device;
	int fd;
	uint64_t id;
	size_t length;
	unsigned char *memory;
};

/* 0, or a negative errno and nothing left behind. */
static inline int region_make_pages(struct region *region, size_t pages)
{
	struct actmem_ioctl_create arg = region_of(pages);
	int err;

	region->device = open_device();
	if (region->device < 0)
		return -errno;
	region->fd = create(region->device, &arg);
	region->id = arg.id;
	region->length = arg.length;
	err = region->fd < 0 ? region->fd : 0;
	if (!err) {
		region->memory = map(region->fd, pages);
		if (region->memory != MAP_FAILED)
			return 0;
		err = -errno;
		close(region->fd);
	}
	close(region->device);
	return err;
}

static inline int region_make(struct region *region)
{
	return region_make_pages(region, LENGTH / PAGE_BYTES);
}

/* Lets go of the region; the device stays open, to ask about it. */
static inline void region_drop(struct region *region)
{
	if (region->fd < 0)
		return;
	munmap(region->memory, region->length);
	close(region->fd);
	region->fd = -1;
}

static inline int region_info(const struct region *region, struct actmem_ioctl_info *arg)
{
	return info(region->device, region->id, arg);
}

/*
 * Whether the region has gone away. Who held its pages may let go of them a
 * moment after the call that says so has returned.
 */
static inline bool region_gone(const struct region *region)
{
	struct actmem_ioctl_info arg;
	int attempt, err = 0;

	for (attempt = 0; !err && attempt < 10000; attempt++) {
		err = region_info(region, &arg);
		if (!err)
			usleep(10000);
	}
	return err == -ENOENT;
}

/* Linux 6.1 registers no memory that a file other than hugetlbfs backs. */
static inline bool kernel_registers(void)
{
	struct utsname name;
	unsigned int major = 0, minor = 0;

	uname(&name);
	sscanf(name.release, "%u.%u", &major, &minor);
	return major > 6 || (major == 6 && minor > 1);
}

static inline int register_region(struct io_uring *ring, const struct region *region)
{
	struct iovec buffer = { region->memory, region->length };

	return io_uring_register_buffers(ring, &buffer, 1);
}

/* What a ring is to do: from or to a disk, with memory that is registered (@fixed) or not. */
static inline void prepare_disk(struct io_uring *ring, bool fixed, bool write, int disk,
				void *memory, size_t length, off_t at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	if (fixed && write)
		io_uring_prep_write_fixed(sqe, disk, memory, length, at, 0);
	else if (fixed)
		io_uring_prep_read_fixed(sqe, disk, memory, length, at, 0);
	else if (write)
		io_uring_prep_write(sqe, disk, memory, length, at);
	else
		io_uring_prep_read(sqe, disk, memory, length, at);
}

/* One of these; returns the completion's result. */
static inline int disk_transfer(struct io_uring *ring, bool fixed, bool write, int disk,
				void *memory, size_t length, off_t at)
{
	struct io_uring_cqe *cqe;
	int result;

	prepare_disk(ring, fixed, write, disk, memory, length, at);
	if (io_uring_submit_and_wait(ring, 1) != 1 || io_uring_wait_cqe(ring, &cqe))
		return -EIO;
	result = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	return result;
}

/* The byte at @at of a sequence that differs for each @seed and repeats in no power of two. */
static inline unsigned char pattern(uint64_t seed, size_t at)
{
	return (seed * 0x9e3779b97f4a7c15ULL + at * 0xd1342543de82ef95ULL) >> 56;
}

static inline void pattern_fill(unsigned char *memory, size_t length, uint64_t seed)
{
	size_t at;

	for (at = 0; at < length; at++)
		memory[at] = pattern(seed, at);
}

static inline bool pattern_holds(const unsigned char *memory, size_t length, uint64_t seed)
{
	size_t at;

	for (at = 0; at < length; at++)
		if (memory[at] != pattern(seed, at))
			return false;
	return true;
}

#endif
