/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Regions for the tests that let a device at them, by the uapi alone. */
#ifndef TESTS_DRIVER_REGION_H
#define TESTS_DRIVER_REGION_H

#include <stddef.h>
#include <stdint.h>

#include "actmem.h"

struct region {
	int fd;
	uint64_t id;
	size_t length;
	unsigned char *memory;
};

/* The emulated machine is slow, and may share its processor. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	300

/* Of `tests/vm/run --nvme`. */
#define DISK "/dev/nvme0n1"

/* /dev/actmem, opened once; -1 with errno where that fails. */
int device_fd(void);

/* On node 0, mapped. Returns 0, or -1 with errno and nothing left behind. */
int region_make(struct region *region, size_t length);

/* Unmaps and closes it; what was done already is not done again. */
void region_drop(struct region *region);

/* ACTMEM_IOC_INFO of region @id through the device. */
int region_info(uint64_t id, struct actmem_ioctl_info *info);

/*
 * Whether region @id goes away. Who held its pages may let go of them a moment
 * after the call that says so has returned.
 */
int region_gone(uint64_t id);

/* Fills bytes with a pattern that differs for each @seed, and verifies it. */
void pattern_fill(void *memory, size_t length, uint64_t seed);
int pattern_holds(const void *memory, size_t length, uint64_t seed);

#endif
