// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* dma-bufs as the kernel's vgem has them, through PRIME. */
#include "dmabuf_fixture.h"

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

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
