// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A region lives as long as a descriptor or a mapping of it does, whichever
 * goes last and however, and the module as long as a region does.
 */
#include <pthread.h>
#include <sys/inotify.h>
#include <sys/socket.h>

#include "driver_test.h"

#define PAGES	3

static int send_descriptor(int socket, int fd)
{
	char space[CMSG_SPACE(sizeof(int))] = "", byte = 0;
	struct iovec vector = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1,
		.msg_control = space, .msg_controllen = sizeof(space),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(socket, &message, 0) == 1 ? 0 : -errno;
}

static int receive_descriptor(int socket)
{
	char space[CMSG_SPACE(sizeof(int))], byte;
	struct iovec vector = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &vector, .msg_iovlen = 1,
		.msg_control = space, .msg_controllen = sizeof(space),
	};
	int fd;

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

TEST_F(driver, close_before_unmap)
{
	int fd = create_pages(self->device, PAGES);
	char *memory = mapped(map_and_touch(fd, PAGES));

	ASSERT_EQ(0, close(fd));
	EXPECT_EQ(1, regions());
	EXPECT_EQ(0, lingering_regions());
	EXPECT_EQ(1, memory[PAGE_BYTES]);
	/* Unmapped pages stay part of the region: they have not been discarded. */
	ASSERT_EQ(0, munmap(memory, PAGE_BYTES));
	EXPECT_EQ((long)(PAGES * PAGE_BYTES), node_sum("region_bytes"));
	ASSERT_EQ(0, munmap(memory + PAGE_BYTES, (PAGES - 1) * PAGE_BYTES));
	EXPECT_EQ(0, regions());
}

struct held {
	int device;
	int mapped_alone;		/* the descriptor is closed */
};

static int hold_pages(void *context)
{
	const struct held *held = context;
	int fd = create_pages(held->device, PAGES);

	CHECK(fd >= 0 && map_and_touch(fd, PAGES) != MAP_FAILED);
	return held->mapped_alone ? close(fd) : 0;
}

TEST_F(driver, kill_of_the_holder)
{
	int i;

	for (i = 0; i < 4; i++) {
		struct held held = { self->device, i % 2 };
		pid_t child = hold_in_child(hold_pages, &held);

		ASSERT_LT(0, child);
		EXPECT_EQ(1, regions());
		ASSERT_EQ(0, kill_child(child));
		EXPECT_EQ(0, regions());
		EXPECT_EQ(0, node_sum("region_bytes"));
	}
}

TEST_F(driver, kill_while_creating)
{
	struct actmem_ioctl_create arg = region_of(64);
	int i;

	for (i = 0; i < 8; i++) {
		pid_t child = fork();

		if (!child) {
			while (!call(self->device, ACTMEM_IOC_CREATE, &arg))
				close(arg.fd);
			_exit(1);
		}
		usleep(20000 + i * 7000);
		ASSERT_EQ(0, kill(child, SIGKILL));
		EXPECT_EQ(-1, wait_for(child));
		EXPECT_EQ(0, regions());
		EXPECT_EQ(0, node_sum("region_bytes"));
	}
}

TEST_F(driver, a_descriptor_is_passed)
{
	int sockets[2], fd;
	char *memory;
	pid_t child;

	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
	child = fork();
	if (!child) {
		fd = create_pages(self->device, PAGES);
		memory = fd < 0 ? MAP_FAILED : map_and_touch(fd, PAGES);
		if (memory == MAP_FAILED)
			_exit(1);
		memory[7] = 77;
		_exit(send_descriptor(sockets[1], fd) ? 2 : 0);
	}
	ASSERT_EQ(0, wait_for(child));
	/* Its maker is gone, and it is still on its way. */
	EXPECT_EQ(1, regions());
	fd = must(receive_descriptor(sockets[0]));
	memory = mapped(map(fd, PAGES));
	EXPECT_EQ(77, memory[7]);
	munmap(memory, PAGES * PAGE_BYTES);
	close(fd);
	EXPECT_EQ(0, regions());

	/* Never received. */
	fd = create_pages(self->device, PAGES);
	ASSERT_EQ(0, send_descriptor(sockets[0], fd));
	close(fd);
	EXPECT_EQ(1, regions());
	close(sockets[0]);
	close(sockets[1]);
	EXPECT_EQ(0, regions());
}

TEST_F(driver, reopened_through_proc)
{
	int fd = create_pages(self->device, PAGES), again, readable;
	struct actmem_ioctl_info now;
	char *memory, *other;

	again = must(reopen(fd, O_RDWR));
	readable = must(reopen(fd, O_RDONLY));
	EXPECT_EQ(-EPERM, reopen(fd, O_RDWR | O_TRUNC));
	memory = mapped(map_and_touch(fd, PAGES));
	close(fd);

	EXPECT_EQ(0, info(again, 0, &now));
	EXPECT_EQ(PAGES * PAGE_BYTES, now.length);
	EXPECT_ERRNO(EACCES, map(readable, PAGES));
	other = mapped(mmap(NULL, PAGES * PAGE_BYTES, PROT_READ, MAP_SHARED, readable, 0));
	memory[9] = 99;
	EXPECT_EQ(99, other[9]);
	EXPECT_EQ(0, other[PAGE_BYTES * (PAGES - 1) + 1]);
	EXPECT_EQ(2 * PAGE_BYTES, pmd_mapped(other, PAGES * PAGE_BYTES));
	EXPECT_EQ(-1, mprotect(other, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE));
	munmap(memory, PAGES * PAGE_BYTES);
	close(again);
	close(readable);
	EXPECT_EQ(1, regions());
	munmap(other, PAGES * PAGE_BYTES);
	EXPECT_EQ(0, regions());
}

/* Watches the file of a region, which the watch must not keep. */
static int watch(int watcher, int fd, uint32_t events)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return inotify_add_watch(watcher, path, events) < 0 ? -errno : 0;
}

TEST_F(driver, watched_to_the_end)
{
	int watcher = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	int fd = must(create_pages(self->device, PAGES));
	struct inotify_event event;

	ASSERT_LE(0, watcher);
	ASSERT_EQ(0, watch(watcher, fd, IN_DELETE_SELF));
	EXPECT_EQ(1, regions());
	close(fd);
	EXPECT_EQ(0, regions());
	ASSERT_EQ(sizeof(event), read(watcher, &event, sizeof(event)));
	EXPECT_EQ(IN_DELETE_SELF, event.mask);
	close(watcher);
	close(self->device);
	EXPECT_EQ(0, number_in("/sys/module/actmem/refcnt"));
	self->device = open_device();
}

struct closer {
	int fd;
	pthread_barrier_t *start;
};

static void *close_one(void *context)
{
	struct closer *closer = context;

	pthread_barrier_wait(closer->start);
	close(closer->fd);
	return NULL;
}

/* Either may be the last to let go of the file. */
TEST_F(driver, a_watch_goes_with_its_region)
{
	pthread_barrier_t start;
	struct closer closer;
	pthread_t thread;
	int round, fd;

	ASSERT_EQ(0, pthread_barrier_init(&start, NULL, 2));
	for (round = 0; round < 200; round++) {
		fd = must(create_pages(self->device, 1));
		closer = (struct closer){ inotify_init1(IN_CLOEXEC), &start };
		ASSERT_EQ(0, watch(closer.fd, fd, IN_ALL_EVENTS));
		ASSERT_EQ(0, pthread_create(&thread, NULL, close_one, &closer));
		pthread_barrier_wait(&start);
		close(fd);
		ASSERT_EQ(0, pthread_join(thread, NULL));
		ASSERT_EQ(0, regions());
	}
}

TEST_F(driver, opened_by_its_path_alone)
{
	int fd = create_pages(self->device, PAGES), only_path, other, again;
	struct actmem_ioctl_info now;

	only_path = must(reopen(fd, O_PATH));
	close(fd);
	EXPECT_EQ(1, regions());
	other = must(create_pages(self->device, 1));
	again = must(reopen(only_path, O_RDWR));
	close(only_path);
	close(other);
	EXPECT_EQ(1, regions());
	EXPECT_EQ(0, info(again, 0, &now));
	EXPECT_EQ(PAGES * PAGE_BYTES, now.allocated_bytes);
	close(again);
	EXPECT_EQ(0, regions());
	close(self->device);
	EXPECT_EQ(0, number_in("/sys/module/actmem/refcnt"));
	self->device = open_device();
}

TEST_F(driver, the_module_stays_while_it_is_used)
{
	int fd = must(create_pages(self->device, PAGES));
	void *memory;

	EXPECT_EQ(-EAGAIN, unload_module("actmem"));
	close(self->device);
	EXPECT_EQ(-EAGAIN, unload_module("actmem"));
	memory = map_and_touch(fd, PAGES);
	close(fd);
	EXPECT_EQ(-EAGAIN, unload_module("actmem"));
	munmap(memory, PAGES * PAGE_BYTES);
	EXPECT_EQ(0, number_in("/sys/module/actmem/refcnt"));
	self->device = open_device();
	EXPECT_EQ(1, number_in("/sys/module/actmem/refcnt"));
	EXPECT_EQ(-EAGAIN, unload_module("actmem"));
}

TEST_F(driver, the_module_goes_and_comes)
{
	int round, fd;

	for (round = 0; round < 3; round++) {
		fd = must(create_pages(self->device, PAGES));
		close(fd);
		close(self->device);
		ASSERT_EQ(0, unload_module("actmem"));
		EXPECT_EQ(-1, access(SYSFS, F_OK));
		ASSERT_EQ(0, load_module(MODULE));
		self->device = open_device();
	}
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
