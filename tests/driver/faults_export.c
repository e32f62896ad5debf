// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Each allocation and each copy from and to user space fails once, while a dma-buf is
 * made and while somebody attaches and maps it: the call says so, and leaves nothing.
 */
#include "dmabuf_test.h"
#include "fault_sweep.h"

static int dma_buffer;

static int export_all(struct operation *self, int device)
{
	dma_buffer = export(self->fd, 0, PAGES);
	return dma_buffer < 0 ? dma_buffer : 0;
}

static int check_exported(struct operation *self, int device, int result)
{
	CHECK(!result || (pages_exported(self->fd) == 0 && pages_pinned(self->fd) == 0));
	CHECK(!result || !export_all(self, device));
	CHECK(pages_exported(self->fd) == PAGES);
	CHECK(!close(dma_buffer));
	CHECK(pages_exported(self->fd) == 0 && pages_pinned(self->fd) == 0);
	return close_region(self, device, result);
}

TEST_SWEEP(driver, export,
	.where = IN_MODULE, .least = 6, .prepare = prepare_region, .act = export_all,
	.undo = check_exported)

static int attachment;

static int prepare_export(struct operation *self, int device)
{
	attachment = -1;
	CHECK(!prepare_region(self, device));
	CHECK(!export_all(self, device));
	return 0;
}

static int import_all(struct operation *self, int device)
{
	struct importer_map map;
	struct importer_word word = { .offset = PAGE_BYTES };

	attachment = attach_to(device_in(0), dma_buffer);
	if (attachment < 0)
		return attachment;
	return map_attachment(attachment, IMPORTER_BIDIRECTIONAL, &map) ?:
	       call(attachment, IMPORTER_PEEK, &word);
}

static int check_imported(struct operation *self, int device, int result)
{
	CHECK(attachment < 0 || !close(attachment));
	CHECK(!import_all(self, device));
	CHECK(!close(dma_buffer));
	CHECK(pages_exported(self->fd) == PAGES);
	CHECK(!close(attachment));
	CHECK(pages_exported(self->fd) == 0 && pages_pinned(self->fd) == 0);
	return close_region(self, device, result);
}

/* Faults of the driver while somebody attaches and maps what it has exported. */
TEST_F(driver, import)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 2, .prepare = prepare_export, .act = import_all,
		.undo = check_imported,
	};

	ASSERT_EQ(0, load_module(IMPORTER));
	EXPECT_SWEEP(operation, self->device);
	EXPECT_EQ(0, unload_module("importer"));
}

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
