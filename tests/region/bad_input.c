/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Bad arguments: each has its errno and its words, and leaves nothing behind.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common.h"

static void try_region(struct actmem *am, const struct actmem_region_options *options,
		       int wanted, const char *words)
{
	struct actmem_region *region;

	returns(actmem_region_create(am, options, &region), wanted);
	says(words);
}

static void test_lengths(struct actmem *am)
{
	const uint64_t lengths[] = { 0, 1, 4095, LENGTH + 1, UINT64_MAX, 1ULL << 63,
				     UINT64_MAX - 2 * MIB + 1 };
	struct actmem_region_options options = { .size = sizeof(options) };
	struct actmem_region *region;
	unsigned int i;
	int error;

	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		options.length = lengths[i];
		try_region(am, &options, -EINVAL, "length is ");
	}
	/* As long as can be said: too long for the machine or for the backend. */
	options.length = (INT64_MAX) / (2 * MIB) * (2 * MIB);
	error = actmem_region_create(am, &options, &region);
	ok(error == -ENOMEM || error == -EINVAL || error == -EFBIG,
	   "8 EiB are refused (%s)", actmem_error());
}

#define GOOD	.size = sizeof(struct actmem_region_options), .length = LENGTH

static void test_values(struct actmem *am)
{
	char name[ACTMEM_NAME_MAX + 1];
	const struct {
		struct actmem_region_options options;
		const char *words;
	} bad[] = {
		{ { GOOD, .flags = 1U << 31 }, "flags 0x80000000" },
		{ { GOOD, .allow = 1U << 30 }, "allow 0x40000000" },
		{ { GOOD, .pages = 17 }, "pages 17" },
		{ { GOOD, .policy = 17 }, "policy 17" },
		{ { GOOD, .name = "a/b" }, "0x2f" },
		{ { GOOD, .name = "line\nbreak" }, "0x0a" },
		{ { GOOD, .name = name }, "63 bytes" },
		{ { .size = 0 }, "ACTMEM_INIT" },
		{ { .size = 1ULL << 40 }, "ACTMEM_INIT" },
	};
	unsigned int i;

	memset(name, 'x', sizeof(name));
	name[ACTMEM_NAME_MAX] = '\0';
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		try_region(am, &bad[i].options, -EINVAL, bad[i].words);
}

/* Of a program that was compiled with a newer header. */
static void test_longer(struct actmem *am)
{
	struct {
		struct actmem_region_options options;
		uint64_t unknown;
	} longer = { .options = { .size = sizeof(longer), .length = LENGTH } };
	struct actmem_region_info info = { .size = 0 };
	struct actmem_region *region;

	returns(actmem_region_create(am, &longer.options, &region), 0);
	returns(actmem_region_get_info(region, &info), -EINVAL);
	returns(actmem_region_close(region), 0);
	longer.unknown = 1;
	try_region(am, &longer.options, -EINVAL, "newer");
}

static void test_pages(struct actmem *am)
{
	struct actmem_region_options options = {
		GOOD, .pages = ACTMEM_PAGES_4K, .allow = ACTMEM_ALLOW_4K | ACTMEM_ALLOW_THP,
	};

	if (!on_driver(am))
		return;
	try_region(am, &options, -EOPNOTSUPP, "the driver has only 2M pages");
	options.pages = ACTMEM_PAGES_THP;
	try_region(am, &options, -EOPNOTSUPP, "the driver has only 2M pages");
}

/* Like a region's, but for its seals or its opening. */
static int forged(int seals, int flags)
{
	int fd = memfd_create("actmem:forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[64];
	int again;

	if (fd < 0 || ftruncate(fd, 4096) || write(fd, "x", 1) != 1 ||
	    fcntl(fd, F_ADD_SEALS, seals))
		tap_bail("memfd_create");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	close(fd);
	return again;
}

static void test_descriptors(struct actmem *am)
{
	int pipes[2], error = pipe(pipes);
	const struct {
		int fd;
		const char *what;
	} others[] = {
		{ open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null" },
		{ open("/proc/self/maps", O_RDONLY | O_CLOEXEC), "a proc file" },
		{ open(".", O_RDONLY | O_CLOEXEC), "a folder" },
		{ memfd_create("other", MFD_CLOEXEC), "another memfd" },
		{ forged(0, O_RDWR), "a memfd that can shrink and grow" },
		{ forged(F_SEAL_SEAL | F_SEAL_GROW, O_RDWR), "a memfd that can shrink" },
		{ forged(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW, O_RDONLY), "a memfd open for reading" },
		{ pipes[0], "a pipe" },
		{ eventfd(0, EFD_CLOEXEC), "a file of no type" },
		{ open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "a program" },
	};
	struct actmem_region *region;
	unsigned int i;

	if (error)
		tap_bail("pipe");
	returns(actmem_region_from_fd(am, -1, &region), -EINVAL);
	returns(actmem_region_from_fd(am, 999, &region), -EBADF);
	for (i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		ok(actmem_region_from_fd(am, others[i].fd, &region) == -EINVAL &&
		   strstr(actmem_error(), "descriptor"), "%s is refused: %s", others[i].what,
		   actmem_error());
		close(others[i].fd);
	}
	close(pipes[1]);
}

static void test_open(struct actmem *unused)
{
	static const struct {
		struct actmem_options options;
		const char *words;
	} bad[] = {
		{ { .size = sizeof(bad->options), .backend = 9 }, "backend 9" },
		{ { .size = sizeof(bad->options), .reserved = 1 }, "reserved" },
		{ { .size = sizeof(bad->options), .allow = 1U << 8 }, "allow" },
	};
	struct actmem *am;
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		returns(actmem_open(&am, &bad[i].options), -EINVAL);
		says(bad[i].words);
	}
	returns(actmem_open(NULL, NULL), -EINVAL);
	returns(actmem_close(NULL), -EINVAL);
	ok(actmem_describe(NULL) && actmem_get_backend(NULL) == ACTMEM_BACKEND_AUTO,
	   "no handle can be described");
}

static bool is_refused_by_name(void *context)
{
	const char *const *variable = context;
	struct actmem *am;

	setenv(variable[0], variable[1], 1);
	return actmem_open(&am, NULL) == -EINVAL && strstr(actmem_error(), variable[0]) &&
	       strstr(actmem_error(), variable[1]);
}

static void test_environment(struct actmem *am)
{
	static const char *variables[][2] = {
		{ "ACTMEM_BACKEND", "best" }, { "ACTMEM_PAGES", "1M" }, { "ACTMEM_POLICY", "local" },
		{ "ACTMEM_NODES", "0," }, { "ACTMEM_NODES", "3-1" }, { "ACTMEM_NODES", "1024" },
		{ "ACTMEM_NODES", "99999999999999999999" }, { "ACTMEM_NODES", "a" },
		{ "ACTMEM_ALLOW", "thp," }, { "ACTMEM_ALLOW", "4k;thp" },
	};
	unsigned int i;

	for (i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		ok(in_child(is_refused_by_name, variables[i]), "%s=%s is refused by name",
		   variables[i][0], variables[i][1]);
}

static void test_heap(struct actmem *am)
{
	struct actmem_region_options region = { .size = sizeof(region) };
	struct actmem_heap_options options;
	struct actmem_heap *heap;
	void *block;

	ACTMEM_INIT(&options);
	options.grow_bytes = 1;
	returns(actmem_heap_create(am, &options, &heap), -EINVAL);
	says("grow_bytes is 1");
	ACTMEM_INIT(&options);
	options.region = &region;
	region.flags = 1U << 20;
	returns(actmem_heap_create(am, &options, &heap), -EINVAL);
	region.flags = 0;
	region.length = LENGTH;
	returns(actmem_heap_create(am, &options, &heap), -EINVAL);
	says("set grow_bytes instead");
	region.length = 0;
	region.size = 0;
	returns(actmem_heap_create(am, &options, &heap), -EINVAL);
	says("ACTMEM_INIT");
	ACTMEM_INIT(&options);
	options.grow_bytes = LENGTH;
	returns(actmem_heap_create(am, &options, &heap), 0);
	returns(actmem_heap_alloc(heap, 0, 0, &block), -EINVAL);
	returns(actmem_heap_alloc(heap, UINT64_MAX, 0, &block), -EINVAL);
	returns(actmem_heap_alloc(heap, 1, 3, &block), -EINVAL);
	says("align is 3");
	returns(actmem_heap_alloc(heap, 1, 4 * MIB, &block), -EINVAL);
	returns(actmem_heap_alloc(heap, 1, 0, NULL), -EINVAL);
	returns(actmem_heap_alloc(NULL, 1, 0, &block), -EINVAL);
	returns(actmem_heap_free(NULL, NULL), -EINVAL);
	returns(actmem_heap_locate(NULL, NULL, NULL, NULL), -EINVAL);
	returns(actmem_heap_locate(heap, heap, NULL, NULL), -EINVAL);
	returns(actmem_close(am), -EBUSY);
	says("1 heaps");
	returns(actmem_heap_destroy(heap), 0);
	returns(actmem_heap_destroy(NULL), -EINVAL);
}

static void test_no_handle(struct actmem *am)
{
	struct actmem_region_options options = { GOOD };
	struct actmem_region *region;
	void *address;

	returns(actmem_region_create(NULL, &options, &region), -EINVAL);
	returns(actmem_region_create(am, NULL, &region), -EINVAL);
	returns(actmem_region_create(am, &options, NULL), -EINVAL);
	returns(actmem_region_map(NULL, &address), -EINVAL);
	returns(actmem_region_unmap(NULL), -EINVAL);
	returns(actmem_region_get_info(NULL, NULL), -EINVAL);
	returns(actmem_region_fd(NULL), -EINVAL);
	returns(actmem_region_close(NULL), -EINVAL);
	returns(actmem_get_counters(am, NULL), -EINVAL);
}

int main(void)
{
	return RUN_TESTS(test_lengths, test_values, test_longer, test_pages, test_descriptors,
			 test_open, test_environment, test_heap, test_no_handle);
}
