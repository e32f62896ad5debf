/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A driver that is a function: tests say what it answers, and see what it was asked.
 */
#ifndef UNIT_FAULTS_DRIVER_H
#define UNIT_FAULTS_DRIVER_H

#include "actmem.h"
#include "../../uapi/actmem.h"
#include "faults.h"

#define LENGTH		(4ULL << 20)	/* of its regions */
#define EXPORTED_FD	1234		/* of a dma-buf */

/* What the driver answers next. */
struct driver {
	int error;		/* of QUERY */
	uint32_t abi, abi_oldest;
	uint64_t page_bytes;
	int create_error[2];	/* of the first and the second CREATE */
	struct actmem_ioctl_create create;
	unsigned int created;
	struct actmem_ioctl_create asked[2];
	int range_error;	/* of POPULATE and DISCARD */
	unsigned long changed;	/* which of them was asked for */
	struct actmem_ioctl_range range;
	unsigned int changes;
	unsigned int populate_errors;	/* so many have that error; 0: all */
	int export_error;
	struct actmem_ioctl_export exported;
	uint32_t regions;	/* for LIST: ids 1..regions */
	uint32_t gone;		/* an id that INFO does not know */
};

extern struct driver driver;

/* A test that begins with such a driver. */
#define DRIVER_TEST(test)	cmocka_unit_test_setup_teardown(test, driver_setup, driver_teardown)
int driver_setup(void **state);
int driver_teardown(void **state);

int open_backend(struct actmem **am, enum actmem_backend backend);
struct actmem *open_driver(void);

#endif /* UNIT_FAULTS_DRIVER_H */
