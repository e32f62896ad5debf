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
	char *memory = memory_or_bail(region);
	int whole = -1, part = -1;

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
	static const uint64_t bad[][2] = {
		{ 0, 0 }, { 0, LENGTH + 2 * MIB }, { LENGTH, 2 * MIB }, { 1, 2 * MIB },
	};
	struct actmem_region *region = region_or_bail(am, "refused");
	unsigned int i;
	int fd = -1;

	returns(actmem_region_export(NULL, 0, LENGTH, &fd), -EINVAL);
	says("region or fd is NULL");
	returns(actmem_region_export(region, 0, LENGTH, NULL), -EINVAL);
	says("region or fd is NULL");
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		returns(actmem_region_export(region, bad[i][0], bad[i][1], &fd), -EINVAL);
		says("not a range of whole pages");
	}
	ok(fd == -1, "there is no descriptor");
	returns(actmem_region_close(region), 0);
}

static void test_backend(struct actmem *am)
{
	(on_driver(am) ? test_dmabuf : test_memfd)(am);
}

int main(void)
{
	return RUN_TESTS(test_backend, test_refusals);
}
