/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A region's life: made, mapped, written, told of, closed; in every order.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static void check_info(struct actmem *am, struct actmem_region *region, uint64_t mapped)
{
	struct actmem_region_info info = info_or_bail(region);
	uint64_t sum = bytes_on_nodes(&info);

	ok(info.length == LENGTH && sum == LENGTH, "all %llu bytes are on some node (%llu are)",
	   LENGTH, (unsigned long long)sum);
	ok(info.page_bytes == page_bytes_wanted() && info.pages == pages_wanted(),
	   "its pages are of the size asked for");
	ok(info.backend == actmem_get_backend(am), "its backend is the open one");
	ok(info.mapped_bytes == mapped, "%llu bytes are mapped (%llu are)",
	   (unsigned long long)mapped, (unsigned long long)info.mapped_bytes);
	ok(info.pinned_bytes == (on_driver(am) ? 0 : LENGTH),
	   "nobody else pins it (driver), all of it is locked (memfd)");
	ok(info.uid == getuid() && info.pid == getpid() && !info.lingering,
	   "it is this process's");
	ok(!strcmp(info.name, "life") && !strcmp(info.command, "region"),
	   "its name and command are told");
}

static void test_life(struct actmem *am)
{
	struct actmem_region *region = region_or_bail(am, "life");
	struct actmem_counters counters;
	unsigned char *memory, *again;
	int fd = actmem_region_fd(region);

	ok(!*actmem_error(), "no step down was taken");
	ok(actmem_region_length(region) == LENGTH, "its length is what was asked for");
	ok(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC, "its descriptor closes on exec");
	check_info(am, region, 0);
	returns(actmem_region_map(region, (void **)&memory), 0);
	ok(!((uintptr_t)memory % (2 * MIB)), "it is mapped at a multiple of 2 MiB");
	ok(all_bytes(memory, LENGTH, 0), "it is zeroed");
	memset(memory, 0xa5, LENGTH);
	check_info(am, region, LENGTH);
	returns(actmem_region_map(region, (void **)&again), 0);
	ok(again == memory, "a second mapping is the same");
	counters = counters_of(am);
	ok(counters.regions == 1 && counters.region_bytes == LENGTH && counters.regions_mapped == 1,
	   "one mapped region is counted");
	returns(actmem_region_unmap(region), 0);
	ok(memory[LENGTH - 1] == 0xa5, "it is mapped until the last unmap");
	returns(actmem_region_unmap(region), 0);
	returns(actmem_region_unmap(region), -EINVAL);
	check_info(am, region, 0);
	returns(actmem_region_map(region, (void **)&memory), 0);
	ok(memory[0] == 0xa5 && memory[LENGTH - 1] == 0xa5, "what was written is still there");
	returns(actmem_close(am), -EBUSY);
	says("1 region");
	returns(actmem_region_close(region), 0);
}

/* The memory of a closed region must not come back with its contents. */
static void test_zeroed_again(struct actmem *am)
{
	struct actmem_region *region;
	unsigned char *memory;
	unsigned int round;
	bool zero = true;

	for (round = 0; round < 4; round++) {
		region = region_or_bail(am, "again");
		memory = (unsigned char *)memory_or_bail(region);
		zero = zero && all_bytes(memory, LENGTH, 0);
		memset(memory, 0xff, LENGTH);
		actmem_region_close(region);
	}
	ok(zero, "every new region is zeroed");
}

static void test_own_descriptor(struct actmem *am)
{
	struct actmem_region *region = region_or_bail(am, "own"), *second;
	struct actmem_region_info info;
	int fd = dup(actmem_region_fd(region));

	strcpy(memory_or_bail(region), "written before");
	returns(actmem_region_from_fd(am, fd, &second), 0);
	returns(actmem_region_close(region), 0);
	returns(close(fd), 0);
	ok(!strcmp(memory_or_bail(second), "written before"), "a region lives as long as one has it");
	info = info_or_bail(second);
	ok(info.length == LENGTH && !strcmp(info.name, "own") && info.pages == pages_wanted(),
	   "length, name and pages come with the descriptor");
	returns(actmem_region_close(second), 0);
}

int main(void)
{
	return RUN_TESTS(test_life, test_zeroed_again, test_own_descriptor);
}
