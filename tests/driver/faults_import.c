// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Each allocation and each copy from and to user space fails once, while memory is
 * made a region and while that is mapped and exported: the call tells of it by its
 * errno and leaves nothing.
 */
#include "dmabuf_test.h"
#include "fault_sweep.h"
#include "import_test.h"

#define PAGES	2
#define BYTES	(PAGES * PAGE_BYTES)

static int memory;

/* All of which is there: what the file system does for more is its own. */
static int prepare_memory(struct operation *self, int device)
{
	memory = memfd_of(0, BYTES);
	CHECK(memory >= 0);
	CHECK(!fallocate(memory, 0, 0, BYTES));
	return 0;
}

static int import_it(struct operation *self, int device)
{
	self->fd = import_all(device, memory, BYTES);
	return self->fd < 0 ? self->fd : 0;
}

static int prepare_import(struct operation *self, int device)
{
	return prepare_memory(self, device) ?: import_it(self, device);
}

/* What could not be imported can be at the next time, and is whole. */
static int check_import(struct operation *self, int device, int result)
{
	struct actmem_ioctl_info seen;

	CHECK(!result || !import_it(self, device));
	CHECK(!info(self->fd, 0, &seen));
	CHECK(seen.allocated_bytes == BYTES && seen.pinned_bytes == 0);
	CHECK(!close(self->fd));
	CHECK(!close(memory));
	return 0;
}

TEST_F(driver, import)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 35, .prepare = prepare_memory, .act = import_it,
		.undo = check_import,
	};

	EXPECT_SWEEP(operation, self->device);
}

static int map_it(struct operation *self, int device)
{
	self->memory = map_and_touch(self->fd, PAGES);
	return self->memory == MAP_FAILED ? -errno : 0;
}

static int check_mapped(struct operation *self, int device, int result)
{
	CHECK(result || !munmap(self->memory, BYTES));
	return check_import(self, device, 0);
}

TEST_F(driver, map_what_was_imported)
{
	struct operation operation = {
		.least = 1, .prepare = prepare_import, .act = map_it, .undo = check_mapped,
	};

	EXPECT_SWEEP(operation, self->device);
}

static int buffer;

static int export_it(struct operation *self, int device)
{
	buffer = export(self->fd, 0, PAGES);
	return buffer < 0 ? buffer : 0;
}

static int check_export(struct operation *self, int device, int result)
{
	CHECK(!result || (pages_exported(self->fd) == 0 && pages_pinned(self->fd) == 0));
	CHECK(!result || !export_it(self, device));
	CHECK(pages_exported(self->fd) == PAGES && pages_pinned(self->fd) == PAGES);
	CHECK(!close(buffer));
	return check_import(self, device, 0);
}

TEST_F(driver, export_what_was_imported)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 6, .prepare = prepare_import, .act = export_it,
		.undo = check_export,
	};

	EXPECT_SWEEP(operation, self->device);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
