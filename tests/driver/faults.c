// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Each allocation and each copy from and to user space fails once, in every
 * call of the driver: the call tells of it by its errno and leaves nothing.
 */
#include "fault_sweep.h"
#include "trace_test.h"

static int unload(struct operation *self, int device)
{
	return unload_module("actmem");
}

static int load(struct operation *self, int device)
{
	return load_module(MODULE);
}

/* What could not be loaded can be at the next time. */
static int load_again(struct operation *self, int device, int result)
{
	return result && load(self, device) ? __LINE__ : 0;
}

/* The only test that has no fixture: nobody may have the device open. */
TEST(load_the_module)
{
	struct operation operation = {
		.where = IN_INIT, .least = 60, .prepare = unload, .act = load,
		.undo = load_again,
	};

	EXPECT_SWEEP(operation, -1);
}

static int create_one(struct operation *self, int device)
{
	self->fd = create_pages(device, PAGES);
	return self->fd < 0 ? self->fd : 0;
}

static int create_interleaved(struct operation *self, int device)
{
	struct actmem_ioctl_create arg = region_of(PAGES);

	arg.policy = ACTMEM_POLICY_INTERLEAVE;
	self->fd = create(device, &arg);
	return self->fd < 0 ? self->fd : 0;
}

/* What was created all the same is whole. */
static int check_created(struct operation *self, int device, int result)
{
	struct actmem_ioctl_info seen;

	if (result)
		return 0;
	CHECK(!info(self->fd, 0, &seen));
	CHECK(seen.allocated_bytes == PAGES * PAGE_BYTES);
	CHECK(seen.pinned_bytes == 0);
	return close_region(self, device, result);
}

TEST_SWEEP(driver, create,
	.where = IN_MODULE, .least = 19, .act = create_one, .undo = check_created)

TEST_SWEEP(driver, create_interleaved,
	.where = IN_MODULE, .least = 19, .act = create_interleaved, .undo = check_created)

static int ask(struct operation *self, int device)
{
	struct actmem_ioctl_info seen;
	int err = info(self->fd, 0, &seen);

	return err ? err : info(device, self->id, &seen);
}

TEST_SWEEP(driver, info,
	.where = IN_MODULE, .least = 6, .prepare = prepare_region, .act = ask,
	.undo = close_region)

static int list_all(struct operation *self, int device)
{
	uint64_t ids[4];
	int count = list(device, ids, 4);

	return count < 0 ? count : 0;
}

TEST_SWEEP(driver, list,
	.where = IN_MODULE, .least = 2, .prepare = prepare_region, .act = list_all,
	.undo = close_region)

static int read_fdinfo(struct operation *self, int device)
{
	char path[64], text[1024];
	int fd, err;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", self->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = read(fd, text, sizeof(text)) < 0 ? -errno : 0;
	close(fd);
	return err;
}

TEST_SWEEP(driver, fdinfo,
	.least = 5, .prepare = prepare_region, .act = read_fdinfo, .undo = close_region)

/* A page fault that lacks memory is tried again, so that no touch fails. */
static int map_all(struct operation *self, int device)
{
	self->memory = map_and_touch(self->fd, PAGES);
	return self->memory == MAP_FAILED ? -errno : 0;
}

static int check_mapped(struct operation *self, int device, int result)
{
	int i;

	if (!result) {
		for (i = 0; i < PAGES; i++)
			CHECK(self->memory[i * PAGE_BYTES] == 1);
		CHECK(!munmap(self->memory, PAGES * PAGE_BYTES));
	}
	return close_region(self, device, result);
}

/* Whether the tree of mappings needs a node more is for the kernel to decide. */
TEST_SWEEP(driver, map,
	.least = 1, .prepare = prepare_region, .act = map_all, .undo = check_mapped)

static int prepare_mapping(struct operation *self, int device)
{
	int line = prepare_region(self, device);

	if (line)
		return line;
	self->memory = mapped(map_and_touch(self->fd, PAGES));
	return 0;
}

static int unmap_the_middle(struct operation *self, int device)
{
	return munmap(self->memory + PAGE_BYTES, PAGE_BYTES) ? -errno : 0;
}

/* Both ends hold what was written, and the middle does if it is still there. */
static int check_unmapped(struct operation *self, int device, int result)
{
	CHECK(self->memory[0] == 1);
	CHECK(self->memory[2 * PAGE_BYTES] == 1);
	CHECK(!result || self->memory[PAGE_BYTES] == 1);
	CHECK(!munmap(self->memory, PAGES * PAGE_BYTES));
	return close_region(self, device, result);
}

TEST_SWEEP(driver, unmap_a_part,
	.least = 1, .prepare = prepare_mapping, .act = unmap_the_middle,
	.undo = check_unmapped)

static int prepare_lazy(struct operation *self, int device)
{
	self->fd = must(create_lazy(device, PAGES));
	return 0;
}

static int populate_all(struct operation *self, int device)
{
	return populate(self->fd, 0, PAGES);
}

static int discard_all(struct operation *self, int device)
{
	return discard(self->fd, 0, PAGES);
}

/* What was not told may have been done; it can be asked for again. */
static int check_populated(struct operation *self, int device, int result)
{
	CHECK(result || pages_held(self->fd) == PAGES);
	CHECK(!populate_all(self, device));
	CHECK(pages_held(self->fd) == PAGES);
	return close_region(self, device, result);
}

static int check_discarded(struct operation *self, int device, int result)
{
	CHECK(result || pages_held(self->fd) == 0);
	CHECK(!discard_all(self, device));
	CHECK(pages_held(self->fd) == 0);
	return close_region(self, device, result);
}

/* The tracer is told each time, once. */
static int check_told(struct operation *self, int device, int result)
{
	read_events();
	CHECK(count("alloc_fail") == (result == -ENOMEM));
	CHECK(!clear_trace());
	return check_populated(self, device, result);
}

TEST_F(driver, populate)
{
	struct operation operation = {
		.where = IN_MODULE, .least = 2, .prepare = prepare_lazy, .act = populate_all,
		.undo = check_told,
	};

	ASSERT_TRUE(!mkdir(INSTANCE, 0755) || errno == EEXIST);
	ASSERT_EQ(0, set_event("alloc_fail", "1"));
	EXPECT_SWEEP(operation, self->device);
	EXPECT_EQ(0, set_event("alloc_fail", "0"));
	EXPECT_EQ(0, rmdir(INSTANCE));
}

TEST_SWEEP(driver, discard,
	.where = IN_MODULE, .least = 2, .prepare = prepare_region, .act = discard_all,
	.undo = check_discarded)

/* Ending a region needs no memory, so that it cannot fail. */
static int close_it(struct operation *self, int device)
{
	return close(self->fd) ? -errno : 0;
}

static int check_closed(struct operation *self, int device, int result)
{
	return result ? __LINE__ : 0;
}

TEST_SWEEP(driver, close,
	.prepare = prepare_region, .act = close_it, .undo = check_closed)

TEST_NOTHING_IS_LEFT

TEST_HARNESS_MAIN
