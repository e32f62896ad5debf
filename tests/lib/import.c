/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory that others made as a region: of every kind of memory that there is here,
 * what each sees of the other's writes, what is told of it, and what is refused.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common.h"

/* Of this kind, sealed as it has to be; -errno. */
static int memory_of(unsigned int flags, uint64_t bytes)
{
	int fd = memfd_create("others", MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		tap_bail("a memfd: %s", strerror(errno));
	return fd;
}

/* At an aligned address, so that huge pages fit. */
static char *view_of(int fd, uint64_t bytes)
{
	char *room = mmap(NULL, bytes + 2 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *view = room + (-(uintptr_t)room % (2 * MIB));

	if (room == MAP_FAILED)
		tap_bail("mmap: %s", strerror(errno));
	munmap(room, bytes + 2 * MIB);
	view = mmap(view, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
	if (view == MAP_FAILED)
		tap_bail("mmap: %s", strerror(errno));
	return view;
}

/* What the list says of a region of this process; false: it is not there. */
static bool listed(const char *name, struct actmem_region_info *info)
{
	struct actmem_region_info *regions;
	size_t count, i;
	bool found = false;

	if (actmem_list(&regions, &count))
		tap_bail("actmem_list");
	for (i = 0; i < count; i++) {
		if (regions[i].pid == getpid() && !strcmp(regions[i].name, name)) {
			*info = regions[i];
			found = true;
		}
	}
	free(regions);
	return found;
}

static void told_of(struct actmem *am, struct actmem_region *region, enum actmem_pages pages,
		    uint64_t page_bytes)
{
	struct actmem_region_info info = info_or_bail(region);

	ok(info.imported && !info.named && info.length == LENGTH &&
	   info.allocated_bytes == LENGTH, "it is told to be imported, of %llu bytes, all there",
	   (unsigned long long)info.length);
	ok(info.pages == pages && info.page_bytes == page_bytes, "its pages have %llu bytes",
	   (unsigned long long)info.page_bytes);
	ok(listed("import", &info), "it is listed");
	ok(info.imported && info.pages == pages && info.page_bytes == page_bytes &&
	   info.length == LENGTH && info.allocated_bytes == LENGTH &&
	   info.backend == actmem_backend(am), "and told the same of there");
}

/* What the file has is what the region has, and nothing of it stays pinned. */
static void test_memory(struct actmem *am, unsigned int flags, enum actmem_pages pages,
			uint64_t page_bytes)
{
	struct actmem_region *region, *other = region_or_bail(am, "other");
	int fd = memory_of(flags, LENGTH);
	struct actmem_region_info info;
	char *view = view_of(fd, LENGTH), *memory;

	/* Of the other kinds most pages are missing yet. */
	if (pages == ACTMEM_PAGES_THP && (madvise(view, LENGTH, MADV_HUGEPAGE) ||
					  madvise(view, LENGTH, MADV_POPULATE_WRITE)))
		tap_bail("madvise: %s", strerror(errno));
	view[3 * MIB] = 3;
	if (!returns(actmem_region_import(am, fd, 0, LENGTH, "import", &region), 0))
		tap_bail("nothing was imported");
	told_of(am, region, pages, page_bytes);
	memory = memory_or_bail(region);
	ok(memory[3 * MIB] == 3 && !memory[5 * MIB], "it shows the file's bytes");
	memory[5 * MIB] = 5;
	ok(view[5 * MIB] == 5, "and the file the region's");
	returns(actmem_region_copy(other, 0, region, 0, LENGTH), 0);
	memory_or_bail(other)[7 * MIB] = 7;
	returns(actmem_region_copy(region, 5 * MIB + 1, other, 3 * MIB, 4 * MIB - 1 - 2 * MIB), 0);
	ok(view[5 * MIB + 1] == 3, "it is copied from and to");
	returns(actmem_region_populate(region, 0, LENGTH), 0);
	returns(actmem_region_discard(region, 0, 2 * MIB), -EOPNOTSUPP);
	says("owner of its file");
	ok(view[3 * MIB] == 3, "nothing is discarded");
	returns(actmem_region_unmap(region), 0);
	returns(actmem_region_seal(region), -EOPNOTSUPP);
	returns(actmem_region_close(region), 0);
	ok(!listed("import", &info), "it is listed no more");
	ok(view[3 * MIB] == 3, "the file keeps its bytes");
	returns(actmem_region_import(am, fd, 0, LENGTH, NULL, &region), 0);
	ok(memory_or_bail(region)[5 * MIB] == 5, "they are found again");
	returns(actmem_region_close(region), 0);
	returns(actmem_region_close(other), 0);
	munmap(view, LENGTH);
	close(fd);
}

static void test_whole_or_part(struct actmem *am)
{
	struct actmem_region *region = NULL, *rest = NULL;
	int fd = memory_of(0, LENGTH);

	if (on_driver(am)) {
		returns(actmem_region_import(am, fd, 2 * MIB, 4 * MIB, "part", &region), 0);
		ok(actmem_region_length(region) == 4 * MIB, "a part is imported");
		returns(actmem_region_import(am, fd, 0, LENGTH, "again", &rest), -EBUSY);
		says("pass that region's descriptor");
		returns(actmem_region_import(am, fd, 6 * MIB, 2 * MIB, "rest", &rest), 0);
		returns(actmem_region_import(am, fd, 4096, 4096, NULL, &rest), -EINVAL);
		says("2 MiB at least");
		returns(actmem_region_close(rest), 0);
	} else {
		returns(actmem_region_import(am, fd, 2 * MIB, 4 * MIB, "part", &region), -EINVAL);
		says("whole files alone");
		returns(actmem_region_import(am, fd, 0, LENGTH, "one", &region), 0);
		returns(actmem_region_import(am, fd, 0, LENGTH, "two", &rest), 0);
		memory_or_bail(region)[9] = 9;
		ok(memory_or_bail(rest)[9] == 9, "both are the same memory");
		returns(actmem_region_close(rest), 0);
	}
	returns(actmem_region_close(region), 0);
	close(fd);
}

/* What the owner must not do; the driver notices. */
static void test_hole(struct actmem *am)
{
	struct actmem_region *region, *other = region_or_bail(am, "other");
	int fd = memory_of(0, LENGTH);

	returns(actmem_region_import(am, fd, 0, LENGTH, NULL, &region), 0);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * MIB, 2 * MIB))
		tap_bail("fallocate: %s", strerror(errno));
	returns(actmem_region_copy(other, 0, region, 2 * MIB, 4 * MIB), -ESTALE);
	says("import the memory again; the first 2097152 of 4194304 bytes are copied");
	returns(actmem_region_copy(other, 0, region, 2 * MIB, 2 * MIB), 0);
	returns(actmem_region_close(region), 0);
	returns(actmem_region_close(other), 0);
	close(fd);
}

static void test_refusals(struct actmem *am)
{
	struct actmem_region *region = NULL;
	int fd, read_only, none;
	char own[64];

	fd = memory_of(0, LENGTH);
	returns(actmem_region_import(NULL, fd, 0, LENGTH, NULL, &region), -EINVAL);
	returns(actmem_region_import(am, fd, 0, LENGTH, NULL, NULL), -EINVAL);
	returns(actmem_region_import(am, fd, 0, 0, NULL, &region), -EINVAL);
	says("1 byte at least");
	returns(actmem_region_import(am, fd, INT64_MAX, LENGTH, NULL, &region), -EINVAL);
	returns(actmem_region_import(am, fd, 0, LENGTH, "a/b", &region), -EINVAL);
	says("name has a byte");
	returns(actmem_region_import(am, fd, 0, LENGTH + 2 * MIB, NULL, &region), -EINVAL);
	says("ends at 8388608 bytes, before the 10485760");
	returns(actmem_region_import(am, -1, 0, LENGTH, NULL, &region), -EBADF);
	says("not open for reading and writing");
	snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
	read_only = open(own, O_RDONLY | O_CLOEXEC);
	returns(actmem_region_import(am, read_only, 0, LENGTH, NULL, &region), -EBADF);
	close(read_only);
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE))
		tap_bail("F_SEAL_WRITE: %s", strerror(errno));
	returns(actmem_region_import(am, fd, 0, LENGTH, NULL, &region), -EPERM);
	says("F_SEAL_SHRINK");
	close(fd);

	fd = memfd_create("others", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0 || ftruncate(fd, LENGTH))
		tap_bail("a memfd: %s", strerror(errno));
	returns(actmem_region_import(am, fd, 0, LENGTH, NULL, &region), -EPERM);
	says("sealed");
	close(fd);

	none = open("/dev/zero", O_RDWR | O_CLOEXEC);
	returns(actmem_region_import(am, none, 0, LENGTH, NULL, &region), -EINVAL);
	says("neither a memfd nor");
	close(none);
	ok(!region, "there is no region");
}

/* The machine in which there is a driver is the test's own. */
static void lend_pages(const char *number)
{
	int fd = open("/proc/sys/vm/nr_hugepages", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, number, strlen(number)) < 0)
		tap_bail("nr_hugepages: %s", strerror(errno));
	close(fd);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();

	test_memory(am, 0, ACTMEM_PAGES_4K, 4096);
	if (!on_driver(am) && pages_wanted() == ACTMEM_PAGES_THP)
		test_memory(am, 0, ACTMEM_PAGES_THP, 2 * MIB);
	if (on_driver(am))
		lend_pages("4");
	if (on_driver(am) || pages_wanted() == ACTMEM_PAGES_2M)
		test_memory(am, MFD_HUGETLB | MFD_HUGE_2MB, ACTMEM_PAGES_2M, 2 * MIB);
	if (on_driver(am)) {
		lend_pages("0");
		test_hole(am);
	}
	test_whole_or_part(am);
	test_refusals(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	return tap_end();
}
