// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Regions for the tests that let a device at them, by the uapi alone. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "region.h"

int device_fd(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	return fd;
}

int region_make(struct region *region, size_t length)
{
	struct actmem_ioctl_create create = {
		.size = sizeof(create),
		.length = length,
		.page_bytes = ACTMEM_PAGE_BYTES,
		.policy = ACTMEM_POLICY_BIND,
		.nodes = { 1 },
	};
	int error;

	if (ioctl(device_fd(), ACTMEM_IOC_CREATE, &create) < 0)
		return -1;
	region->fd = create.fd;
	region->id = create.id;
	region->length = length;
	region->memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, create.fd, 0);
	if (region->memory == MAP_FAILED) {
		error = errno;
		region->memory = NULL;
		region_drop(region);
		errno = error;
		return -1;
	}
	return 0;
}

void region_drop(struct region *region)
{
	if (region->memory)
		munmap(region->memory, region->length);
	region->memory = NULL;
	if (region->fd >= 0)
		close(region->fd);
	region->fd = -1;
}

int region_info(uint64_t id, struct actmem_ioctl_info *info)
{
	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	info->id = id;
	return ioctl(device_fd(), ACTMEM_IOC_INFO, info);
}

int region_gone(uint64_t id)
{
	struct actmem_ioctl_info info;
	int attempt;

	for (attempt = 0; attempt < 1000; attempt++) {
		if (region_info(id, &info) < 0)
			return errno == ENOENT;
		usleep(10000);
	}
	return 0;
}

/* The byte at @at, of a sequence that repeats in no power of two. */
static unsigned char pattern(uint64_t seed, size_t at)
{
	return (seed * 0x9e3779b97f4a7c15ULL + at * 0xd1342543de82ef95ULL) >> 56;
}

void pattern_fill(void *memory, size_t length, uint64_t seed)
{
	unsigned char *bytes = memory;
	size_t at;

	for (at = 0; at < length; at++)
		bytes[at] = pattern(seed, at);
}

int pattern_holds(const void *memory, size_t length, uint64_t seed)
{
	const unsigned char *bytes = memory;
	size_t at;

	for (at = 0; at < length; at++)
		if (bytes[at] != pattern(seed, at))
			return 0;
	return 1;
}
