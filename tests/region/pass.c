/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A region's descriptor goes to another process over SCM_RIGHTS; both see the
 * same memory, and it lives until the last of them closes it.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common.h"

union control {
	struct cmsghdr header;
	char space[CMSG_SPACE(sizeof(int))];
};

static bool send_descriptor(int socket, int fd)
{
	union control control = { 0 };
	char byte = 'r';
	struct iovec data = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(socket, &message, 0) == 1;
}

static int receive_descriptor(int socket)
{
	union control control = { 0 };
	char byte;
	struct iovec data = { &byte, 1 };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1,
		.msg_control = &control, .msg_controllen = sizeof(control),
	};
	struct cmsghdr *header;
	int fd;

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1)
		return -1;
	header = CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&fd, CMSG_DATA(header), sizeof(fd));
	return fd;
}

static bool told(int socket)
{
	char byte;

	return read(socket, &byte, 1) == 1;
}

static bool tell(int socket)
{
	return write(socket, "t", 1) == 1;
}

/* Sees the parent's writing, answers, and goes on after the parent closed. */
static bool receiver(void *context)
{
	int socket = *(int *)context;
	struct actmem_region *region;
	struct actmem *am;
	char *memory;
	int fd = receive_descriptor(socket);
	bool passed;

	if (fd < 0 || actmem_open(&am, NULL) || actmem_region_from_fd(am, fd, &region))
		return false;
	close(fd);
	passed = !actmem_region_map(region, (void **)&memory) &&
		 actmem_region_length(region) == LENGTH &&
		 !strcmp(memory, "from the parent") && !memory[LENGTH - 1];
	strcpy(memory, "from the child");
	passed = tell(socket) && told(socket) && passed;
	/* The parent has closed its own: all is still here. */
	passed = passed && !strcmp(memory, "from the child") && !memory[LENGTH - 1];
	memset(memory, 1, LENGTH);
	return !actmem_region_close(region) && !actmem_close(am) && passed;
}

static void test_pass(struct actmem *am, int socket)
{
	struct actmem_region *region = region_or_bail(am, "passed");
	char *memory;

	returns(actmem_region_map(region, (void **)&memory), 0);
	strcpy(memory, "from the parent");
	ok(send_descriptor(socket, actmem_region_fd(region)), "the descriptor is sent");
	ok(told(socket), "the child has it mapped");
	ok(!strcmp(memory, "from the child"), "both have the same memory");
	returns(actmem_region_close(region), 0);
	ok(tell(socket), "the parent has closed it");
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am;
	int sockets[2];
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets))
		tap_bail("socketpair");
	child = fork();
	if (!child) {
		close(sockets[0]);
		_exit(!receiver(&sockets[1]));
	}
	close(sockets[1]);
	am = open_or_bail();
	test_pass(am, sockets[0]);
	ok(child_passed(child), "the child saw and wrote what it should");
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	close(sockets[0]);
	same_usage(before);
	return tap_end();
}
