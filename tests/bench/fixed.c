// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * fixed_read, fixed_write	io_uring's READ_FIXED and WRITE_FIXED with O_DIRECT
 *				between an NVMe disk and all of a region of 1 GiB
 *				that is registered as one buffer, against hugetlb
 *				memory registered the same way
 *
 *	fixed [--smoke] DISK	overwrites the disk
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/fs.h>

#include "bench.h"

#define NODE	0
#define DEPTH	8
#define BLOCK	((size_t)1 << 20)

enum buffer { OURS, PEER };

static struct io_uring ring;
static struct iovec buffers[2];
static size_t disk_bytes, buffer_bytes;
static const char *disk_path;
static int disk;
static bool writes;

static int submit(enum buffer buffer, size_t at)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	char *memory = (char *)buffers[buffer].iov_base + at;

	if (!sqe)
		return -EBUSY;
	if (writes)
		io_uring_prep_write_fixed(sqe, disk, memory, BLOCK, at % disk_bytes, buffer);
	else
		io_uring_prep_read_fixed(sqe, disk, memory, BLOCK, at % disk_bytes, buffer);
	return 0;
}

/* The next part of the buffer, @DEPTH blocks at a time. */
static int transfer(enum buffer buffer, size_t bytes)
{
	static size_t at[2];
	size_t begun = 0, ended = 0;
	struct io_uring_cqe *cqe;
	int err;

	while (ended < bytes) {
		while (begun < bytes && begun - ended < DEPTH * BLOCK) {
			err = submit(buffer, at[buffer]);
			if (err)
				return err;
			at[buffer] = (at[buffer] + BLOCK) % buffer_bytes;
			begun += BLOCK;
		}
		err = io_uring_submit_and_wait(&ring, 1);
		if (err < 0)
			return err;
		while (!io_uring_peek_cqe(&ring, &cqe)) {
			if (cqe->res != (int)BLOCK)
				return cqe->res < 0 ? cqe->res : -EIO;
			io_uring_cqe_seen(&ring, cqe);
			ended += BLOCK;
		}
	}
	return 0;
}

static double timed(enum buffer buffer, size_t bytes)
{
	double begun = bench_seconds();
	int err = transfer(buffer, bytes);

	if (!err)
		return bench_seconds() - begun;
	errno = -err;
	return bench_fail(disk_path);
}

static double ours(const struct contest *contest)
{
	return timed(OURS, contest->bytes);
}

static double peer(const struct contest *contest)
{
	return timed(PEER, contest->bytes);
}

static int prepare(size_t bytes)
{
	unsigned long long size;
	int fds[2], i;

	/* Not one that is in use otherwise. */
	disk = open(disk_path, O_RDWR | O_DIRECT | O_EXCL | O_CLOEXEC);
	if (disk < 0 || ioctl(disk, BLKGETSIZE64, &size))
		return (int)bench_fail(disk_path);
	disk_bytes = size / BLOCK * BLOCK;
	buffer_bytes = bytes;
	if (bench_reserve(NODE, bytes))
		return -1;
	fds[OURS] = bench_region(NODE, bytes);
	fds[PEER] = fds[OURS] < 0 ? -1 : bench_hugetlb(bytes);
	if (fds[PEER] < 0)
		return -1;
	for (i = 0; i < 2; i++) {
		buffers[i].iov_base = bench_map(fds[i], bytes, 0);
		buffers[i].iov_len = bytes;
		if (!buffers[i].iov_base)
			return -1;
		memset(buffers[i].iov_base, i + 1, bytes);
		close(fds[i]);
	}
	errno = -io_uring_queue_init(DEPTH, &ring, 0);
	return errno ? (int)bench_fail("io_uring_queue_init") : 0;
}

/* Many short rounds: what else goes on in the host comes and goes. */
static int measure(const char *bench, bool write, size_t bytes)
{
	const struct contest contest = {
		.bench = bench,
		.peer_name = "hugetlb memory, registered the same way",
		.unit = "GiB/s",
		.bytes = bytes,
		.rounds = 151,
		.ours = ours,
		.peer = peer,
	};

	writes = write;
	return bench_run(&contest);
}

int main(int argc, char **argv)
{
	static const char why[] = "this kernel registers no memory but anonymous and hugetlb";
	size_t bytes;
	int failed = 1, err, i;

	disk_path = bench_begin(argc, argv, "DISK");
	bench_run_on(NODE);
	bytes = bench_size(1UL << 30, 16UL << 20);
	if (prepare(bytes))
		return 1;
	err = io_uring_register_buffers(&ring, buffers, 2);
	if (err == -EOPNOTSUPP) {
		bench_leave_out("fixed_write", why);
		bench_leave_out("fixed_read", why);
		failed = 0;
	} else if (err) {
		errno = -err;
		bench_fail("io_uring_register_buffers");
	} else {
		failed = measure("fixed_write", true, bytes / 16) |
			 measure("fixed_read", false, bytes / 16);
	}
	/* At once, where the end of the ring may be a moment later. */
	io_uring_unregister_buffers(&ring);
	io_uring_queue_exit(&ring);
	for (i = 0; i < 2; i++)
		munmap(buffers[i].iov_base, bytes);
	return failed | !!bench_reserve(NODE, 0);
}
