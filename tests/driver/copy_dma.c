// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Copying by a DMA engine, one made of software (tests/vm/mover): right also
 * where it fails, refuses, hangs or does not even stop, and counted.
 */
#include <signal.h>

#include "copy_test.h"

#define MOVER		"/vm/modules/mover.ko"
#define WAY		"/sys/module/mover/parameters/way"
#define DMA_COPY	"/sys/module/actmem/parameters/dma_copy"

/* Of the mover. */
#define GOOD		"0"
#define ERRING		"1"
#define REFUSING	"2"
#define HANGING		"3"
#define STUCK		"4"

/* More than are copied at a time. */
#define PAGES	70
#define LENGTH	(PAGES * PAGE_BYTES)

FIXTURE(dma)
{
	int device;
	int to;
	int from;
	char *target;
	char *source;
	long copied;
	long missed;
};

static long copied(void)
{
	return number_in(SYSFS "/dma_copied_bytes");
}

static long missed(void)
{
	return number_in(SYSFS "/dma_missed_bytes");
}

static int load(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

FIXTURE_SETUP(dma)
{
	if (access(MOVER, R_OK))
		SKIP(return, "no " MOVER " for this kernel");
	ASSERT_EQ(0, load(MOVER));
	ASSERT_EQ(0, put(DMA_COPY, "1"));
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	self->to = create_pages(self->device, PAGES);
	self->from = create_pages(self->device, PAGES);
	ASSERT_LE(0, self->to);
	ASSERT_LE(0, self->from);
	self->target = map(self->to, PAGES);
	self->source = map(self->from, PAGES);
	ASSERT_NE(MAP_FAILED, self->target);
	ASSERT_NE(MAP_FAILED, self->source);
	mark(self->source, LENGTH);
	self->copied = copied();
	self->missed = missed();
}

/* The module can go: nobody has kept its channel. */
FIXTURE_TEARDOWN(dma)
{
	if (access(MOVER, R_OK))
		return;
	munmap(self->target, LENGTH);
	munmap(self->source, LENGTH);
	close(self->to);
	close(self->from);
	close(self->device);
	ASSERT_EQ(0, put(DMA_COPY, "0"));
	EXPECT_EQ(0, syscall(SYS_delete_module, "mover", O_NONBLOCK));
}

TEST_F(dma, copies)
{
	struct actmem_ioctl_info now;

	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	EXPECT_TRUE(is_marked(self->target, LENGTH));
	EXPECT_EQ((long)LENGTH, copied() - self->copied);
	EXPECT_EQ(0, missed() - self->missed);
	ASSERT_EQ(0, info(self->to, 0, &now));
	EXPECT_EQ(0, now.pinned_bytes);

	/* To and from any byte; what is too short is not the engine's. */
	memset(self->target, 0, LENGTH);
	ASSERT_EQ(0, copy(self->to, 4097, self->from, 0, LENGTH - PAGE_BYTES));
	EXPECT_TRUE(is_marked(self->target + 4097, LENGTH - PAGE_BYTES));
	EXPECT_TRUE(!self->target[4096] && !self->target[LENGTH - PAGE_BYTES + 4097]);
	EXPECT_EQ((long)(LENGTH + (PAGES - 1) * (PAGE_BYTES - 4097)), copied() - self->copied);
	EXPECT_EQ(0, missed() - self->missed);

	/* Within a page too. */
	self->copied = copied();
	ASSERT_EQ(0, copy(self->to, 4096, self->to, PAGE_BYTES / 2, PAGE_BYTES / 4));
	EXPECT_EQ(0, memcmp(self->target + 4096, self->target + PAGE_BYTES / 2, PAGE_BYTES / 4));
	EXPECT_EQ((long)PAGE_BYTES / 4, copied() - self->copied);
}

TEST_F(dma, is_not_used_unless_asked_for)
{
	ASSERT_EQ(0, put(DMA_COPY, "0"));
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	EXPECT_TRUE(is_marked(self->target, LENGTH));
	EXPECT_EQ(0, copied() - self->copied);
	EXPECT_EQ(0, missed() - self->missed);
}

TEST_F(dma, missing_pages_are_zeros)
{
	struct actmem_ioctl_range middle = {
		.size = sizeof(middle),
		.offset = PAGE_BYTES,
		.length = (PAGES - 2) * PAGE_BYTES,
	};
	size_t i;

	memset(self->target, 0xff, LENGTH);
	ASSERT_EQ(0, munmap(self->source, LENGTH));
	ASSERT_EQ(0, call(self->from, ACTMEM_IOC_DISCARD, &middle));
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	for (i = PAGE_BYTES; i < LENGTH - PAGE_BYTES; i += 8)
		if (*(uint64_t *)(self->target + i))
			break;
	EXPECT_EQ(LENGTH - PAGE_BYTES, i);
	EXPECT_TRUE(is_marked(self->target, PAGE_BYTES));
	EXPECT_EQ(2 * (long)PAGE_BYTES, copied() - self->copied);
	EXPECT_EQ(0, missed() - self->missed);
	self->source = map(self->from, PAGES);
}

TEST_F(dma, errs)
{
	ASSERT_EQ(0, put(WAY, ERRING));
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	EXPECT_TRUE(is_marked(self->target, LENGTH));
	EXPECT_EQ(0, copied() - self->copied);
	EXPECT_EQ((long)LENGTH, missed() - self->missed);
}

TEST_F(dma, refuses)
{
	ASSERT_EQ(0, put(WAY, REFUSING));
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	EXPECT_TRUE(is_marked(self->target, LENGTH));
	EXPECT_EQ(0, copied() - self->copied);
	EXPECT_EQ((long)LENGTH, missed() - self->missed);
}

TEST_F(dma, hangs)
{
	ASSERT_EQ(0, put(WAY, HANGING));
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, 3 * PAGE_BYTES));
	EXPECT_TRUE(is_marked(self->target, 3 * PAGE_BYTES));
	EXPECT_EQ(0, copied() - self->copied);
	EXPECT_EQ(3 * (long)PAGE_BYTES, missed() - self->missed);
}

/* The engine writes late, to pages that are still there for it. */
TEST_F(dma, does_not_stop)
{
	int other = create_pages(self->device, PAGES);
	struct actmem_ioctl_copy arg = copy_of(100, self->from, 0, 3 * PAGE_BYTES);

	ASSERT_LE(0, other);
	ASSERT_EQ(0, put(WAY, STUCK));
	/* The bytes before, which CPUs were to copy, are not copied either. */
	EXPECT_EQ(-EIO, call(other, ACTMEM_IOC_COPY, &arg));
	EXPECT_EQ(0, arg.done);
	close(other);
	EXPECT_EQ(1, lingering_regions());

	/* Its channel is taken, so that CPUs go on. */
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	EXPECT_TRUE(is_marked(self->target, LENGTH));
	EXPECT_EQ(0, copied() - self->copied);
	EXPECT_EQ((long)LENGTH, missed() - self->missed);

	ASSERT_EQ(0, put(WAY, GOOD));
	while (lingering_regions())
		usleep(10000);
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	EXPECT_EQ((long)LENGTH, copied() - self->copied);
}

TEST_F(dma, of_several_copies_one_has_the_channel)
{
	pid_t children[3];
	int i, j;

	for (i = 0; i < 3; i++) {
		children[i] = fork();
		for (j = 0; !children[i] && j < 10; j++)
			if (copy(self->to, i, self->from, 0, LENGTH - PAGE_BYTES))
				_exit(1);
		if (!children[i])
			_exit(0);
	}
	for (i = 0; i < 3; i++)
		EXPECT_EQ(0, wait_for(children[i]));
	EXPECT_LT(0, copied() - self->copied);
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	EXPECT_TRUE(is_marked(self->target, LENGTH));
}

TEST_F(dma, the_copier_is_killed)
{
	int round, status;

	for (round = 0; round < 10; round++) {
		pid_t child = fork();

		while (!child)
			if (copy(self->to, 0, self->from, 0, LENGTH))
				_exit(1);
		usleep(round * 5000);
		ASSERT_EQ(0, kill(child, SIGKILL));
		ASSERT_EQ(child, waitpid(child, &status, 0));
		EXPECT_TRUE(WIFSIGNALED(status));
	}
	ASSERT_EQ(0, copy(self->to, 0, self->from, 0, LENGTH));
	EXPECT_TRUE(is_marked(self->target, LENGTH));
}

TEST_F(driver, no_channel)
{
	int to = create_pages(self->device, 1), from = create_pages(self->device, 1);
	long before = missed();

	ASSERT_LE(0, to);
	ASSERT_LE(0, from);
	ASSERT_EQ(0, put(DMA_COPY, "1"));
	EXPECT_EQ(0, copy(to, 0, from, 0, PAGE_BYTES));
	EXPECT_EQ(0, put(DMA_COPY, "0"));
	EXPECT_EQ((long)PAGE_BYTES, missed() - before);
	close(to);
	close(from);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
