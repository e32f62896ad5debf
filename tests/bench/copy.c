// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * copy		ACTMEM_IOC_COPY from a region of one node to one of another,
 *		against memcpy of the same bytes between the two regions,
 *		mapped and touched
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "actmem.h"
#include "bench.h"

#define FROM	0
#define TO	1

static int source_fd, target_fd;
static char *source, *target;

static int copy(size_t bytes)
{
	struct actmem_ioctl_copy arg = {
		.size = sizeof(arg),
		.length = bytes,
		.source_fd = source_fd,
	};

	return ioctl(target_fd, ACTMEM_IOC_COPY, &arg) ? -errno : 0;
}

/* Of other bytes each time, so that it is seen if nothing is copied. */
static double timed(const struct contest *contest, int (*move)(size_t bytes))
{
	static char seed;
	double spent;
	size_t at;
	int err;

	seed++;
	for (at = 0; at < contest->bytes; at += PAGE_BYTES / 8)
		source[at] = seed + at / PAGE_BYTES;
	spent = bench_seconds();
	err = move(contest->bytes);
	spent = bench_seconds() - spent;
	if (err) {
		errno = -err;
		return bench_fail("copy");
	}
	for (at = 0; at < contest->bytes; at += PAGE_BYTES / 8) {
		if (target[at] != (char)(seed + at / PAGE_BYTES)) {
			fprintf(stderr, "bench: byte %zu is not copied\n", at);
			return -1;
		}
	}
	return spent;
}

static int copy_by_memcpy(size_t bytes)
{
	memcpy(target, source, bytes);
	return 0;
}

static double ours(const struct contest *contest)
{
	return timed(contest, copy);
}

static double peer(const struct contest *contest)
{
	return timed(contest, copy_by_memcpy);
}

static int prepare(size_t bytes)
{
	source_fd = bench_region(FROM, bytes);
	target_fd = source_fd < 0 ? -1 : bench_region(TO, bytes);
	if (target_fd < 0)
		return 1;
	source = bench_map(source_fd, bytes, 0);
	target = source ? bench_map(target_fd, bytes, 0) : NULL;
	if (!target)
		return 1;
	bench_touch(source, bytes);
	bench_touch(target, bytes);
	return 0;
}

int main(int argc, char **argv)
{
	struct contest contest = {
		.bench = "copy",
		.peer_name = "memcpy of mapped memory, node 0 to node 1",
		.unit = "GiB/s",
		.rounds = 15,
		.ours = ours,
		.peer = peer,
	};

	bench_begin(argc, argv, NULL);
	contest.bytes = bench_size(512UL << 20, 16UL << 20);
	if (prepare(contest.bytes))
		return 1;
	if (copy(PAGE_BYTES) == -ENOTTY) {
		bench_leave_out(contest.bench, "this driver has no ACTMEM_IOC_COPY");
		return 0;
	}
	return bench_run(&contest);
}
