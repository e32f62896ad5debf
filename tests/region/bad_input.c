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

static struct actmem_region_options good(void)
{
	struct actmem_region_options options = { .size = sizeof(options), .length = LENGTH };

	return options;
}

static void test_lengths(struct actmem *am)
{
	const uint64_t lengths[] = { 0, 1, 4095, LENGTH + 1, UINT64_MAX, 1ULL << 63,
				     UINT64_MAX - 2 * MIB + 1 };
	struct actmem_region_options options = good();
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

static void test_values(struct actmem *am)
{
	struct actmem_region_options options = good();
	char name[ACTMEM_NAME_MAX + 1];

	options.flags = 1U << 31;
	try_region(am, &options, -EINVAL, "flags 0x80000000");
	options = good();
	options.allow = 1U << 30;
	try_region(am, &options, -EINVAL, "allow 0x40000000");
	options = good();
	options.pages = 17;
	try_region(am, &options, -EINVAL, "pages 17");
	options = good();
	options.policy = 17;
	try_region(am, &options, -EINVAL, "policy 17");
	options = good();
	options.name = "a/b";
	try_region(am, &options, -EINVAL, "0x2f");
	options.name = "line\nbreak";
	try_region(am, &options, -EINVAL, "0x0a");
	memset(name, 'x', sizeof(name));
	name[ACTMEM_NAME_MAX] = '\0';
	options.name = name;
	try_region(am, &options, -EINVAL, "63 bytes");
}

static void test_sizes(struct actmem *am)
{
	struct longer {
		struct actmem_region_options options;
		uint64_t unknown;
	} longer;
	struct actmem_region_options options = good();
	struct actmem_region_info info;
	struct actmem_region *region;

	options.size = 0;
	try_region(am, &options, -EINVAL, "ACTMEM_INIT");
	options.size = 1ULL << 40;
	try_region(am, &options, -EINVAL, "ACTMEM_INIT");
	memset(&longer, 0, sizeof(longer));
	longer.options = good();
	longer.options.size = sizeof(longer);
	returns(actmem_region_create(am, &longer.options, &region), 0);
	memset(&info, 0, sizeof(info));
	returns(actmem_region_get_info(region, &info), -EINVAL);
	returns(actmem_region_close(region), 0);
	longer.unknown = 1;
	try_region(am, &longer.options, -EINVAL, "newer");
}

static void test_pages(struct actmem *am)
{
	struct actmem_region_options options = good();

	if (!on_driver(am))
		return;
	options.pages = ACTMEM_PAGES_4K;
	options.allow = ACTMEM_ALLOW_4K | ACTMEM_ALLOW_THP;
	try_region(am, &options, -EOPNOTSUPP, "the driver has pages of 2M alone");
	options.pages = ACTMEM_PAGES_THP;
	try_region(am, &options, -EOPNOTSUPP, "the driver has pages of 2M alone");
}

static void try_descriptor(struct actmem *am, int fd, const char *what)
{
	struct actmem_region *region;

	ok(actmem_region_from_fd(am, fd, &region) == -EINVAL && strstr(actmem_error(), "descriptor"),
	   "%s is refused: %s", what, actmem_error());
	if (fd >= 0)
		close(fd);
}

/* Like a region's, but for its seals or its opening. */
static int forged(bool sealed, int flags)
{
	int fd = memfd_create("actmem:forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char path[64];
	int again;

	if (fd < 0 || ftruncate(fd, 4096) || write(fd, "x", 1) != 1 ||
	    (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW)))
		tap_bail("memfd_create");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, flags | O_CLOEXEC);
	close(fd);
	return again;
}

static void test_descriptors(struct actmem *am)
{
	struct actmem_region *region;
	int pipes[2];

	if (pipe(pipes))
		tap_bail("pipe");
	returns(actmem_region_from_fd(am, -1, &region), -EINVAL);
	returns(actmem_region_from_fd(am, 999, &region), -EBADF);
	try_descriptor(am, open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null");
	try_descriptor(am, open("/proc/self/maps", O_RDONLY | O_CLOEXEC), "a proc file");
	try_descriptor(am, open(".", O_RDONLY | O_CLOEXEC), "a folder");
	try_descriptor(am, memfd_create("other", MFD_CLOEXEC), "another memfd");
	try_descriptor(am, forged(false, O_RDWR), "a memfd that can shrink");
	try_descriptor(am, forged(true, O_RDONLY), "a memfd open for reading");
	try_descriptor(am, pipes[0], "a pipe");
	try_descriptor(am, eventfd(0, EFD_CLOEXEC), "a file of no type");
	try_descriptor(am, open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "a program");
	close(pipes[1]);
}

static void test_open(void)
{
	struct actmem_options options;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.backend = 9;
	returns(actmem_open(&am, &options), -EINVAL);
	says("backend 9");
	ACTMEM_INIT(&options);
	options.reserved = 1;
	returns(actmem_open(&am, &options), -EINVAL);
	says("reserved");
	ACTMEM_INIT(&options);
	options.allow = 1U << 8;
	returns(actmem_open(&am, &options), -EINVAL);
	returns(actmem_open(NULL, NULL), -EINVAL);
	returns(actmem_close(NULL), -EINVAL);
	ok(actmem_describe(NULL) && actmem_get_backend(NULL) == ACTMEM_BACKEND_AUTO,
	   "no handle can be described");
}

static void try_variable(const char *name, const char *value)
{
	const char *was = getenv(name);
	char *kept = was ? strdup(was) : NULL;
	struct actmem *am;
	int error;

	setenv(name, value, 1);
	error = actmem_open(&am, NULL);
	ok(error == -EINVAL && strstr(actmem_error(), name) && strstr(actmem_error(), value),
	   "%s=%s is refused by name", name, value);
	if (kept)
		setenv(name, kept, 1);
	else
		unsetenv(name);
	free(kept);
}

static void test_environment(void)
{
	try_variable("ACTMEM_BACKEND", "best");
	try_variable("ACTMEM_PAGES", "1M");
	try_variable("ACTMEM_POLICY", "local");
	try_variable("ACTMEM_NODES", "0,");
	try_variable("ACTMEM_NODES", "3-1");
	try_variable("ACTMEM_NODES", "1024");
	try_variable("ACTMEM_NODES", "99999999999999999999");
	try_variable("ACTMEM_NODES", "a");
	try_variable("ACTMEM_ALLOW", "thp,");
	try_variable("ACTMEM_ALLOW", "4k;thp");
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
	says("grow_bytes is for that");
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
	struct actmem_region_options options = good();
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
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();

	test_lengths(am);
	test_values(am);
	test_sizes(am);
	test_pages(am);
	test_descriptors(am);
	test_open();
	test_environment();
	test_heap(am);
	test_no_handle(am);
	return end_tests(am, before);
}
