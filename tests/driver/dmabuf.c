// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Regions as dma-bufs, as programs have them: what can be asked for, and what is
 * there and for how long; and as the kernel's vgem has them, through PRIME.
 */
#include "dmabuf_test.h"

#define PAGES	4

FIXTURE(dmabuf)
{
	int device;
	int fd;
};

FIXTURE_SETUP(dmabuf)
{
	self->device = open_device();
	ASSERT_EQ(0, regions());
	self->fd = must(create_pages(self->device, PAGES));
}

FIXTURE_TEARDOWN(dmabuf)
{
	close(self->fd);
	EXPECT_EQ(0, regions());
	close(self->device);
}

static int refused(int fd, struct actmem_ioctl_export arg)
{
	int err;

	arg.fd = 77;
	err = call(fd, ACTMEM_IOC_EXPORT, &arg);
	if (!err)
		close(arg.fd);
	return err;
}

TEST_F(dmabuf, bad_arguments)
{
	static const struct {
		uint64_t offset;
		uint64_t length;
	} bad[] = {
		{ 0, 0 }, { 0, 1 }, { 1, PAGE_BYTES }, { 0, PAGE_BYTES - 4096 },
		{ 4096, PAGE_BYTES }, { 0, PAGE_BYTES + 4096 }, { PAGE_BYTES, PAGE_BYTES / 2 },
		{ 0, (PAGES + 1) * PAGE_BYTES }, { PAGE_BYTES, PAGES * PAGE_BYTES },
		{ PAGES * PAGE_BYTES, PAGE_BYTES }, { PAGES * PAGE_BYTES, 0 },
		{ -PAGE_BYTES, PAGE_BYTES }, { -PAGE_BYTES, 2 * PAGE_BYTES },
		{ PAGE_BYTES, -PAGE_BYTES }, { 0, -PAGE_BYTES }, { 0, UINT64_MAX },
	};
	struct actmem_ioctl_export arg;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		arg = export_of(0, 1);
		arg.offset = bad[i].offset;
		arg.length = bad[i].length;
		EXPECT_EQ(-EINVAL, refused(self->fd, arg))
			TH_LOG("offset %lld, length %lld", (long long)arg.offset,
			       (long long)arg.length);
	}
	arg = export_of(0, 1);
	arg.flags = 1;
	EXPECT_EQ(-EINVAL, refused(self->fd, arg));
	arg = export_of(0, 1);
	arg.flags = 1U << 31;
	EXPECT_EQ(-EINVAL, refused(self->fd, arg));
	arg = export_of(0, 1);
	arg.reserved = 1;
	EXPECT_EQ(-EINVAL, refused(self->fd, arg));
	arg = export_of(0, 1);
	arg.size--;
	EXPECT_EQ(-EINVAL, refused(self->fd, arg));
	EXPECT_EQ(-EFAULT, call(self->fd, ACTMEM_IOC_EXPORT, NULL));
	EXPECT_EQ(-ENOTTY, refused(self->device, export_of(0, 1)));
	EXPECT_EQ(0, pages_exported(self->fd));
}

/* None is made for it; where one is missing, no other is held either. */
TEST_F(dmabuf, takes_the_pages_that_are_there)
{
	int buffer;

	ASSERT_EQ(0, discard_patiently(self->fd, 2, 1));
	EXPECT_EQ(-ENODATA, refused(self->fd, export_of(0, PAGES)));
	EXPECT_EQ(-ENODATA, refused(self->fd, export_of(2, 1)));
	EXPECT_EQ(PAGES - 1, pages_held(self->fd));
	EXPECT_EQ(0, pages_exported(self->fd));
	EXPECT_EQ(0, pages_pinned(self->fd));
	buffer = must(export(self->fd, 0, 2));
	EXPECT_EQ(2, pages_pinned(self->fd));
	EXPECT_EQ(FD_CLOEXEC, fcntl(buffer, F_GETFD));
	EXPECT_EQ(O_RDWR, fcntl(buffer, F_GETFL) & O_ACCMODE);
	EXPECT_EQ((off_t)(2 * PAGE_BYTES), lseek(buffer, 0, SEEK_END));
	close(buffer);
	EXPECT_EQ(0, pages_pinned(self->fd));
}

TEST_F(dmabuf, needs_a_descriptor_for_it)
{
	int reader = must(reopen(self->fd, O_RDONLY)), writer = must(reopen(self->fd, O_WRONLY));

	EXPECT_EQ(-EBADF, export(reader, 0, 1));
	EXPECT_EQ(-EBADF, export(writer, 0, 1));
	close(reader);
	close(writer);
}

/* A process maps the region: the dma-buf of a part gives access to no other part. */
TEST_F(dmabuf, is_not_mapped)
{
	int buffer = must(export(self->fd, 1, 1));

	EXPECT_ERRNO(EINVAL, map(buffer, 1));
	close(buffer);
}

TEST_F(dmabuf, counts_each)
{
	int whole = must(export(self->fd, 0, PAGES)), part = must(export(self->fd, 1, 2));

	EXPECT_EQ(PAGES + 2, pages_exported(self->fd));
	EXPECT_EQ(PAGES, pages_pinned(self->fd));
	close(whole);
	EXPECT_EQ(2, pages_exported(self->fd));
	EXPECT_EQ(2, pages_pinned(self->fd));
	close(part);
	EXPECT_EQ(0, pages_exported(self->fd));
}

TEST_F(dmabuf, is_not_discarded)
{
	struct actmem_ioctl_range arg;
	char *memory = mapped(map(self->fd, PAGES));
	int buffer, i;

	memset(memory, 7, PAGES * PAGE_BYTES);
	buffer = must(export(self->fd, 1, 2));
	EXPECT_EQ(-EBUSY, change_range(self->fd, ACTMEM_IOC_DISCARD, 1, 2, &arg));
	EXPECT_EQ(0, arg.done);
	EXPECT_EQ(0, discard_patiently(self->fd, 0, 1));
	EXPECT_EQ(0, discard_patiently(self->fd, 3, 1));
	EXPECT_EQ(2, pages_held(self->fd));
	for (i = 0; i < PAGES; i++)
		EXPECT_EQ(i == 1 || i == 2 ? 7 : 0, memory[i * PAGE_BYTES + 99]);
	close(buffer);
	EXPECT_EQ(0, discard_patiently(self->fd, 0, PAGES));
	EXPECT_EQ(0, pages_held(self->fd));
	munmap(memory, PAGES * PAGE_BYTES);
}

enum { REGION, MAPPING, BUFFER, HOLDERS };

struct holders {
	int fd;
	int buffer;
	char *memory;
};

static int make_holders(int device, struct holders *holders)
{
	holders->fd = must(create_pages(device, PAGES));
	holders->buffer = must(export(holders->fd, 1, 2));
	holders->memory = mapped(map(holders->fd, PAGES));
	holders->memory[PAGE_BYTES + 1] = 66;
	return 0;
}

static void drop_holder(struct holders *holders, int which)
{
	if (which == REGION)
		close(holders->fd);
	else if (which == BUFFER)
		close(holders->buffer);
	else
		munmap(holders->memory, PAGES * PAGE_BYTES);
}

static int check_holders(const struct holders *holders, unsigned int left)
{
	int exported = left & 1 << BUFFER ? 2 : 0;

	CHECK(regions() == 2 && lingering_regions() == 0);
	CHECK(!(left & 1 << MAPPING) || holders->memory[PAGE_BYTES + 1] == 66);
	CHECK(!(left & 1 << REGION) || (pages_exported(holders->fd) == exported &&
					pages_pinned(holders->fd) == exported));
	return 0;
}

/* In each order of the three that hold it; the last one ends it. */
TEST_F(dmabuf, ends_in_any_order)
{
	static const int orders[][HOLDERS] = {
		{ REGION, MAPPING, BUFFER }, { REGION, BUFFER, MAPPING },
		{ MAPPING, REGION, BUFFER }, { MAPPING, BUFFER, REGION },
		{ BUFFER, REGION, MAPPING }, { BUFFER, MAPPING, REGION },
	};
	struct holders holders;
	unsigned int left;
	size_t number;
	int i;

	for (number = 0; number < sizeof(orders) / sizeof(orders[0]); number++) {
		ASSERT_EQ(0, make_holders(self->device, &holders));
		left = (1 << HOLDERS) - 1;
		for (i = 0; i < HOLDERS; i++) {
			ASSERT_EQ(0, check_holders(&holders, left))
				TH_LOG("order %zu, step %d", number, i);
			drop_holder(&holders, orders[number][i]);
			left &= ~(1 << orders[number][i]);
		}
		ASSERT_EQ(1, regions())
			TH_LOG("order %zu", number);
		ASSERT_EQ((long)(PAGES * PAGE_BYTES), node_sum("region_bytes"));
	}
}

/* All but the first page. */
#define SHARED	(PAGES - 1)

/* What the kernel's headers for DRM have. */
struct prime_handle {
	uint32_t handle;
	uint32_t flags;
	int32_t fd;
};

struct gem_close {
	uint32_t handle;
	uint32_t pad;
};

#define PRIME_HANDLE_TO_FD	_IOWR('d', 0x2d, struct prime_handle)
#define PRIME_FD_TO_HANDLE	_IOWR('d', 0x2e, struct prime_handle)
#define GEM_CLOSE		_IOW('d', 0x09, struct gem_close)

/* The device of vgem, which is the only one that DRM has in the machine. */
static int open_vgem(void)
{
	return open("/dev/dri/card0", O_RDWR | O_CLOEXEC);
}

static int close_handle(int vgem, uint32_t handle)
{
	struct gem_close arg = { .handle = handle };

	return call(vgem, GEM_CLOSE, &arg);
}

/* A handle of DRM's; and back from it, without the descriptor that it was made of. */
TEST_F(dmabuf, by_vgem)
{
	struct prime_handle arg = { .fd = export(self->fd, 1, SHARED) }, again = arg, back;
	int vgem = open_vgem();

	if (vgem < 0)
		SKIP(return, "no vgem in this kernel");
	ASSERT_EQ(0, call(vgem, PRIME_FD_TO_HANDLE, &arg));
	ASSERT_EQ(0, call(vgem, PRIME_FD_TO_HANDLE, &again));
	EXPECT_EQ(arg.handle, again.handle);
	close(arg.fd);
	EXPECT_EQ(SHARED, pages_exported(self->fd));

	back = (struct prime_handle){ .handle = arg.handle, .flags = O_RDWR | O_CLOEXEC };
	ASSERT_EQ(0, call(vgem, PRIME_HANDLE_TO_FD, &back));
	EXPECT_EQ((off_t)(SHARED * PAGE_BYTES), lseek(back.fd, 0, SEEK_END));
	close(back.fd);

	EXPECT_EQ(-EBUSY, discard(self->fd, 1, 1));
	EXPECT_EQ(SHARED, pages_pinned(self->fd));
	EXPECT_EQ(0, close_handle(vgem, arg.handle));
	EXPECT_EQ(0, pages_exported(self->fd));
	EXPECT_EQ(0, discard_patiently(self->fd, 0, PAGES));
	close(vgem);
}

TEST_F(dmabuf, keeps_the_module)
{
	int buffer = must(export(self->fd, 0, 1));

	close(self->fd);
	close(self->device);
	EXPECT_LT(0, number_in("/sys/module/actmem/refcnt"));
	EXPECT_ERRNO(EAGAIN, syscall(SYS_delete_module, "actmem", O_NONBLOCK));
	close(buffer);
	EXPECT_EQ(0, number_in("/sys/module/actmem/refcnt"));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
