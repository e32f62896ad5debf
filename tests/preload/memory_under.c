/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Programs that map memory themselves and register it before they touch it, as XLA
 * does on a machine of several nodes; and those whose memory is to be left alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory_test.h"

#define POOLS	5		/* 2 MiB to 32 MiB */

/* As hwloc_alloc_membind() does it. */
static bool prefer_node(void *memory, size_t bytes, unsigned int node)
{
	unsigned long nodes = 1UL << node;

	return !syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, &nodes, 64UL, 0UL);
}

/* Another than this process would have memory of, where there is one. */
static unsigned int last_node(void)
{
	struct actmem_nodes nodes = usable_nodes();
	unsigned int node = 63;

	while (node && !has_node(&nodes, node))
		node--;
	return node;
}

static bool is_untouched_here(const char *memory)
{
	char *page = (char *)((uintptr_t)memory & ~4095UL);
	unsigned char there = 1;

	return !mincore(page, 4096, &there) && !there;
}

static bool as_xla(void)
{
	char *pools[POOLS];
	unsigned int i, flags, node = last_node();
	CUdeviceptr pointer;
	uint64_t listed, live = 0;

	for (i = 0; i < POOLS; i++) {
		pools[i] = map_untouched(2 * MIB << i);
		CHECK(prefer_node(pools[i], 2 * MIB << i, node));
		CHECK(!api.cuMemHostRegister_v2(pools[i], 2 * MIB << i,
						 CU_MEMHOSTREGISTER_PORTABLE));
		CHECK(is_in_region(pools[i]) && is_in_region(pools[i] + (2 * MIB << i) - 1));
		CHECK(!api.cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
						  (CUdeviceptr)(uintptr_t)pools[i] + MIB) && pointer);
		/* The manual knows flags of what CUDA allocated alone. */
		CHECK(!api.standin_counts || (!api.cuMemHostGetFlags(&flags, pools[i]) &&
					       flags == CU_MEMHOSTREGISTER_PORTABLE));
		CHECK(node_of(pools[i]) == (int)node && node_of(pools[i] + MIB) == (int)node);
		fill(pools[i], 2 * MIB << i, i);
		live += 2 * MIB << i;
	}
	CHECK(own_regions(&listed) == POOLS && listed == live);
	CHECK(!api.standin_counts || (counts_now().registered == POOLS &&
				       counts_now().registered_bytes == live));
	for (i = 0; i < POOLS; i++) {
		CHECK(is_filled(pools[i], 2 * MIB << i, i));
		CHECK(!api.cuMemHostUnregister(pools[i]));
		/* What was in it is in it, and it can be used on. */
		CHECK(is_filled(pools[i], 2 * MIB << i, i));
		fill(pools[i], 2 * MIB << i, i + 1);
		CHECK(is_filled(pools[i], 2 * MIB << i, i + 1));
		CHECK(!munmap(pools[i], 2 * MIB << i));
	}
	CHECK(!own_regions(&listed) && !counts_now().registered);
	CHECK(api.cuMemHostUnregister(pools[0]) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	return true;
}

/* Small pages at both ends, and whole huge ones between them. */
static bool at_odd_addresses(void)
{
	char *memory = map_at(8 * MIB, 12288), *first = memory + 2 * MIB - 12288;
	uint64_t listed;

	CHECK(prefer_node(memory, 8 * MIB, 0));
	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, CU_MEMHOSTREGISTER_PORTABLE));
	CHECK(own_regions(&listed) == 1 && listed == 6 * MIB);
	CHECK(!is_in_region(first - 1) && is_in_region(first));
	CHECK(is_in_region(first + 6 * MIB - 1) && !is_in_region(first + 6 * MIB));
	fill(memory, 8 * MIB, 3);
	CHECK(is_filled(memory, 8 * MIB, 3) && !api.cuMemHostUnregister(memory));
	CHECK(is_filled(memory, 8 * MIB, 3) && !munmap(memory, 8 * MIB));
	return true;
}

/* When it has been refused, XLA asks for a tenth less, which is no number of pages. */
static bool of_any_length(void)
{
	const size_t bytes = 8 * MIB / 10 * 9;
	char *memory = map_untouched(8 * MIB);
	uint64_t listed;

	CHECK(bytes % 4096 && prefer_node(memory, 8 * MIB, 0));
	CHECK(!api.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
	CHECK(own_regions(&listed) == 1 && listed == 6 * MIB);
	CHECK(is_in_region(memory + 6 * MIB - 1) && !is_in_region(memory + 6 * MIB));
	fill(memory, 8 * MIB, 5);
	CHECK(is_filled(memory, 8 * MIB, 5) && !api.cuMemHostUnregister(memory));
	CHECK(is_filled(memory, 8 * MIB, 5) && !munmap(memory, 8 * MIB));
	return true;
}

/* What has no whole page of the length in it has none of a region's. */
static bool too_short(void)
{
	char *memory = map_at(2 * MIB, 4096);
	uint64_t listed;

	CHECK(!api.cuMemHostRegister_v2(memory, 2 * MIB, CU_MEMHOSTREGISTER_PORTABLE));
	CHECK(!is_in_region(memory + MIB) && !own_regions(&listed));
	return !api.cuMemHostUnregister(memory) && !munmap(memory, 2 * MIB);
}

static bool too_short_for_giants(void)
{
	return range_is_of_driver(64 * MIB);
}

/* Nothing is registered, and no page is touched. */
static bool is_refused(size_t bytes, CUresult wanted)
{
	char *memory = map_untouched(bytes);

	CHECK(api.cuMemHostRegister_v2(memory, bytes, 0) == wanted);
	CHECK(!is_in_region(memory) && is_untouched_here(memory) && !counts_now().registered);
	return true;
}

static bool too_short_strictly(void)
{
	return is_refused(64 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
}

/* Registered, and just as it was; with @seed in it. */
static bool is_left_alone(char *memory, size_t bytes, unsigned int seed)
{
	uint64_t listed;

	CHECK(!api.cuMemHostRegister_v2(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE));
	CHECK(!own_regions(&listed));
	CHECK(!seed || is_filled(memory, bytes, seed));
	return !api.cuMemHostUnregister(memory);
}

static bool left_alone(void)
{
	char *memory = map_untouched(8 * MIB);
	int file = memfd_create("plain", MFD_CLOEXEC);

	fill(memory, 8 * MIB, 5);
	CHECK(is_left_alone(memory, 8 * MIB, 5) && !is_in_region(memory));
	munmap(memory, 8 * MIB);
	/* One byte in the middle is data. */
	memory = map_untouched(8 * MIB);
	memory[5 * MIB] = 7;
	CHECK(is_left_alone(memory, 8 * MIB, 0) && !is_in_region(memory) && memory[5 * MIB] == 7);
	munmap(memory, 8 * MIB);
	/* So is what was read as zeros: nobody can tell what it was read for. */
	memory = map_untouched(8 * MIB);
	CHECK(!*(volatile char *)(memory + MIB) && is_left_alone(memory, 8 * MIB, 0));
	munmap(memory, 8 * MIB);
	memory = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(is_left_alone(memory, 8 * MIB, 0));
	munmap(memory, 8 * MIB);
	CHECK(file >= 0 && !ftruncate(file, 8 * MIB));
	memory = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	CHECK(is_left_alone(memory, 8 * MIB, 0) && !is_in_region(memory));
	munmap(memory, 8 * MIB);
	close(file);
	/* A part of a larger mapping, without a policy of its own, may be malloc's. */
	memory = map_untouched(16 * MIB);
	CHECK(is_left_alone(memory + 4 * MIB, 8 * MIB, 0) && !is_in_region(memory + 4 * MIB));
	munmap(memory, 16 * MIB);
	memory = malloc(32 * MIB);
	CHECK(is_left_alone(memory, 32 * MIB, 0) && !is_in_region(memory));
	free(memory);
	CHECK(!posix_memalign((void **)&memory, 2 * MIB, 32 * MIB));
	CHECK(is_left_alone(memory, 32 * MIB, 0) && !is_in_region(memory));
	free(memory);
	/* Nothing is there at all. */
	memory = mmap(NULL, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(api.cuMemHostRegister_v2(memory, 8 * MIB, 0) == CUDA_ERROR_INVALID_VALUE ||
	      !api.standin_counts);
	return true;
}

/* Pages are looked at in several reads. */
static bool one_page_touched(void)
{
	static const uint64_t pages[] = { 0, 1, 2047, 2048, 4095, 4096, 6143 };
	int free_descriptor = dup(STDERR_FILENO), next;
	unsigned int i;
	char *memory;

	close(free_descriptor);
	for (i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
		memory = map_untouched(24 * MIB);
		madvise(memory, 24 * MIB, MADV_NOHUGEPAGE);
		memory[pages[i] * 4096 + 7] = 'x';
		CHECK(is_left_alone(memory, 24 * MIB, 0) && memory[pages[i] * 4096 + 7] == 'x');
		CHECK(!is_in_region(memory) && !is_in_region(memory + 24 * MIB - 1));
		CHECK(!munmap(memory, 24 * MIB));
	}
	next = dup(STDERR_FILENO);
	return next == free_descriptor && !close(next);
}

/* Without mbind(2) a mapping of its own will do. */
static bool whole_mapping(void)
{
	char *memory = map_untouched(8 * MIB);

	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, 0) && is_in_region(memory));
	CHECK(api.cuMemHostRegister_v2(memory, 8 * MIB, 0) ==
	      CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	fill(memory, 8 * MIB, 1);
	CHECK(!api.cuMemHostUnregister(memory));
	/* Again, with what is in it by then. */
	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, 0) && is_filled(memory, 8 * MIB, 1));
	CHECK(!api.cuMemHostUnregister(memory) && !munmap(memory, 8 * MIB));
	return true;
}

/* Registered memory that is unmapped is lost; what comes there next is another region. */
static bool never_unregistered(void)
{
	char *memory = map_untouched(8 * MIB);
	uint64_t listed;

	if (!api.standin_fail)
		return true;
	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, 0));
	CHECK(!munmap(memory, 8 * MIB));
	CHECK(!api.cuDevicePrimaryCtxReset_v2(0));
	CHECK(!api.cuDevicePrimaryCtxRetain(&primary, 0) && !api.cuCtxSetCurrent(primary));
	CHECK(mmap(memory, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
		   -1, 0) == memory);
	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, 0) && is_in_region(memory));
	CHECK(own_regions(&listed) == 1 && listed == 8 * MIB);
	CHECK(!api.cuMemHostUnregister(memory) && !munmap(memory, 8 * MIB));
	CHECK(!own_regions(&listed));
	return true;
}

/* A child has no part of a region, neither while it is registered nor later. */
static bool in_a_child(void)
{
	char *memory = map_untouched(8 * MIB);
	unsigned int round;
	int status;

	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, 0));
	fill(memory, 8 * MIB, 1);
	for (round = 0; round < 2; round++) {
		pid_t child = fork();

		if (!child) {
			signal(SIGSEGV, SIG_DFL);
			memory[4 * MIB] = 7;
			_exit(0);
		}
		CHECK(child > 0 && waitpid(child, &status, 0) == child);
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		CHECK(is_filled(memory, 8 * MIB, 1));
		CHECK(round || !api.cuMemHostUnregister(memory));
	}
	return true;
}

/* The range is as it was, policy and all, and the driver has it. */
static bool pages_refused(void)
{
	char *memory = map_untouched(8 * MIB);
	int mode = 0;
	uint64_t listed;

	CHECK(prefer_node(memory, 8 * MIB, 0));
	api.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, 0));
	CHECK(!is_in_region(memory) && !own_regions(&listed));
	CHECK(!syscall(SYS_get_mempolicy, &mode, NULL, 0UL, memory, (unsigned long)MPOL_F_ADDR) &&
	      mode == MPOL_PREFERRED);
	CHECK(counts_now().registered == 1 && !api.cuMemHostUnregister(memory));
	return true;
}

static bool refused_strictly(void)
{
	char *memory = map_untouched(8 * MIB);

	api.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(api.cuMemHostRegister_v2(memory, 8 * MIB, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(!is_in_region(memory) && !counts_now().registered);
	return true;
}

/* Another process may map the file, so it stays. */
static bool in_shared_memory(void)
{
	char path[64], *memory;
	int fd;

	snprintf(path, sizeof(path), "/dev/shm/actmem-test-%d", getpid());
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CHECK(fd >= 0 && !unlink(path) && !ftruncate(fd, 8 * MIB));
	memory = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(is_left_alone(memory, 8 * MIB, 0) && is_left_alone(memory, 8 * MIB, 0));
	return !close(fd) && !munmap(memory, 8 * MIB);
}

/* As in confidential computing: no region is made for the second request. */
static bool refuses_all(void)
{
	uint64_t asked;

	setenv("STANDIN_CUDA_REGISTER_MOST", "0", 1);
	CHECK(is_refused(8 * MIB, CUDA_ERROR_NOT_SUPPORTED));
	asked = counts_now().own_registrations;
	CHECK(asked == 2 && is_refused(8 * MIB, CUDA_ERROR_NOT_SUPPORTED));
	CHECK(counts_now().own_registrations == asked + 1);
	/* Another context is asked again. */
	CHECK(!api.cuDevicePrimaryCtxReset_v2(0));
	CHECK(!api.cuDevicePrimaryCtxRetain(&primary, 0) && !api.cuCtxSetCurrent(primary));
	unsetenv("STANDIN_CUDA_REGISTER_MOST");
	return whole_mapping();
}

/* The driver refuses the program's own memory too: its word, and no failure of ours. */
static bool refused_both(void)
{
	api.standin_fail("cuMemHostRegister_v2", 1, 2, CUDA_ERROR_NOT_PERMITTED);
	return is_refused(8 * MIB, CUDA_ERROR_NOT_PERMITTED);
}

/* A socket is in the way of the kernel's file, which is as good as none. */
static bool hide_pagemap(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(name.sun_path, sizeof(name.sun_path), "/dev/shm/actmem-%d", getpid());
	CHECK(!bind(fd, (struct sockaddr *)&name, sizeof(name)));
	CHECK(!unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	CHECK(!mount(name.sun_path, "/proc/self/pagemap", NULL, MS_BIND, NULL));
	CHECK(open("/proc/self/pagemap", O_RDONLY) < 0);
	return !unlink(name.sun_path) && !close(fd);
}

static bool unseen(void)
{
	char *memory = map_untouched(8 * MIB);

	CHECK(hide_pagemap());
	CHECK(is_left_alone(memory, 8 * MIB, 0) && !is_in_region(memory));
	return is_left_alone(memory, 8 * MIB, 0);
}

static bool without_pages(void)
{
	char *memory = map_untouched(8 * MIB);

	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, 0) && !is_in_region(memory));
	fill(memory, 8 * MIB, 1);
	CHECK(is_filled(memory, 8 * MIB, 1) && !api.cuMemHostUnregister(memory));
	CHECK(!api.cuMemHostRegister_v2(map_untouched(8 * MIB), 8 * MIB, 0));
	return true;
}

static bool without_pages_strictly(void)
{
	return is_refused(8 * MIB, CUDA_ERROR_OUT_OF_MEMORY);
}

static char *written_to;

/* In place of the C library's: as another thread might write, while a region is made. */
__attribute__((visibility("default"))) int memfd_create(const char *name, unsigned int flags)
{
	if (written_to)
		*written_to = 'x';
	return (int)syscall(SYS_memfd_create, name, flags);
}

static bool written_meanwhile(void)
{
	char *memory = map_untouched(8 * MIB);
	uint64_t listed;

	written_to = memory + 3 * MIB;
	CHECK(!api.cuMemHostRegister_v2(memory, 8 * MIB, 0));
	CHECK(*written_to == 'x' && !is_in_region(memory) && !own_regions(&listed));
	return !api.cuMemHostUnregister(memory) && !munmap(memory, 8 * MIB);
}

int main(void)
{
	skip_without_cuda();
	run_quiet("what XLA maps, binds and registers gets regions", as_xla, NULL);
	run_case("ends that are no whole huge pages stay as they are", at_odd_addresses, NULL);
	run_case("a length may be any number of bytes", of_any_length, NULL);
	run_quiet("memory that holds data is left alone", left_alone, NULL);
	run_quiet("and so is a range of which one page was written to", one_page_touched, NULL);
	run_quiet("and what is written while a region is made", written_meanwhile, NULL);
	run_case("a mapping without a policy gets a region", whole_mapping, NULL);
	run_told("the range is shared memory in /dev/shm", "a file in /dev/shm stays as it is",
		 in_shared_memory, "ACTMEM_VERBOSE=1", NULL);
	run_quiet("and without -v no line says so", in_shared_memory, NULL);
	run_told("cuMemHostRegister of 2.0 MiB at ", "what has no whole huge page stays as it is",
		 too_short, "ACTMEM_STRICT=1", NULL);
	run_told("actmem run --pages 2M", "and what has no giant page", too_short_for_giants,
		 "ACTMEM_PAGES=1G", NULL);
	run_told("no whole page of 1 GiB", "which strictly is an error", too_short_strictly,
		 "ACTMEM_PAGES=1G", "ACTMEM_STRICT=1", NULL);
	run_case("how short it may be is told", too_short_for_giants, "ACTMEM_PAGES=1G",
		 "ACTMEM_VERBOSE=1", NULL);
	told(2, "ranges of 1.0 GiB and more");
	run_case("what was unmapped under its registration is not held", never_unregistered, NULL);
	run_case("a forked child cannot write to it", in_a_child, NULL);
	run_told("cuMemHostRegister of 8.0 MiB uses the CUDA driver's own memory instead of a region: ",
		 "without pages the driver has the program's own", without_pages,
		 "ACTMEM_NODES=1023", NULL);
	run_told("ACTMEM_STRICT=1", "strictly that is an error", without_pages_strictly,
		 "ACTMEM_NODES=1023", "ACTMEM_STRICT=1", NULL);
	if (geteuid()) {
		tap_skip("only root can hide a file of /proc");
	} else {
			run_told("/proc/self/pagemap", "memory of which nothing is known is left alone",
			 unseen, "ACTMEM_STRICT=1", NULL);
	}
	run_told("registers before it touches them", "who wants to know is told", whole_mapping,
		 "ACTMEM_VERBOSE=1", NULL);
	if (!stand_in_is_there()) {
		tap_skip("the real GPU does not fail when asked to");
		return tap_end();
	}
	run_told("CUDA_ERROR_OUT_OF_MEMORY",
		 "pages that CUDA refuses give way to the program's own", pages_refused, NULL);
	run_told("CUDA_ERROR_OUT_OF_MEMORY", "strictly that is an error, too", refused_strictly,
		 "ACTMEM_STRICT=1", NULL);
	run_quiet("what CUDA refuses in any case is told by its result", refused_both, NULL);
	run_quiet("and no region is made again for what it never registers", refuses_all, NULL);
	return tap_end();
}
