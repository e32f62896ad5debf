/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions as dma-bufs: on the driver one that keeps the region's pages; on memfd an error that says what to use.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "common.h"

static void test_dmabuf(struct actmem *am)
{
	struct actmem_region *region = region_or_bail(am, "exported");
	int whole = -1, part = -1;
	char *memory;

	if (actmem_region_map(region, (void **)&memory))
		tap_bail("actmem_region_map");
	memory[4 * MIB + 5] = 42;
	returns(actmem_region_export(region, 0, LENGTH, &whole), 0);
	returns(actmem_region_export(region, 4 * MIB, 2 * MIB, &part), 0);
	ok(fcntl(whole, F_GETFD) == FD_CLOEXEC && fcntl(part, F_GETFD) == FD_CLOEXEC,
	   "they are closed on exec");
	ok(info_or_bail(region).exported_bytes == LENGTH + 2 * MIB, "what is in both counts twice");
	ok(info_or_bail(region).pinned_bytes == LENGTH, "their pages are pinned");
	close(whole);
	returns(actmem_region_discard(region, 4 * MIB, 2 * MIB), -EBUSY);
	ok(memory[4 * MIB + 5] == 42, "what is exported stays");
	close(part);
	ok(!info_or_bail(region).exported_bytes && !info_or_bail(region).pinned_bytes,
	   "nothing is left of them");
	returns(actmem_region_close(region), 0);
}

static void test_memfd(struct actmem *am)
{
	struct actmem_region *region = region_or_bail(am, "kept");
	int fd = -1;

	returns(actmem_region_export(region, 0, LENGTH, &fd), -EOPNOTSUPP);
	says("use the driver");
	ok(fd == -1, "there is no descriptor");
	ok(!info_or_bail(region).exported_bytes, "nothing is exported");
	returns(actmem_region_close(region), 0);
}

static void test_refusals(struct actmem *am)
{
	struct actmem_region *region = region_or_bail(am, "refused");
	int fd = -1;

	returns(actmem_region_export(NULL, 0, LENGTH, &fd), -EINVAL);
	says("no region");
	returns(actmem_region_export(region, 0, LENGTH, NULL), -EINVAL);
	says("nowhere to put");
	returns(actmem_region_export(region, 0, 0, &fd), -EINVAL);
	says("no range of whole pages");
	returns(actmem_region_export(region, 0, LENGTH + 2 * MIB, &fd), -EINVAL);
	returns(actmem_region_export(region, LENGTH, 2 * MIB, &fd), -EINVAL);
	returns(actmem_region_export(region, 1, 2 * MIB, &fd), -EINVAL);
	ok(fd == -1, "there is no descriptor");
	returns(actmem_region_close(region), 0);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();

	if (on_driver(am))
		test_dmabuf(am);
	else
		test_memfd(am);
	test_refusals(am);
	return end_tests(am, before);
}
