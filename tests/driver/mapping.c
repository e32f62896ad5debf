// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Mapping: huge pages and nothing else, whatever is done to the mapping; what
 * would break them up is refused and leaves everything as it was.
 */
#include <linux/futex.h>
#include <linux/mman.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include "driver_test.h"

#define BALANCING		"/proc/sys/kernel/numa_balancing"
#define PAGES			4
#define MAKE_REGION		create_pages
#define FILL_REGION(memory)	fill(memory, LENGTH)

static void fill(char *memory, size_t length)
{
	size_t i;

	for (i = 0; i < length; i += 4096)
		*(uint64_t *)(memory + i) = ~i;
}

#include "region_fixture.h"

static bool is_filled(const char *memory, size_t offset, size_t length)
{
	size_t i;

	for (i = 0; i < length; i += 4096)
		if (*(const uint64_t *)(memory + i) != ~(offset + i))
			return false;
	return true;
}

static bool is_whole(char *memory)
{
	return is_filled(memory, 0, LENGTH) && pmd_mapped(memory, LENGTH) == LENGTH;
}

/* Also where an earlier region had it. */
TEST_F(region, memory_is_aligned_and_begins_as_zeros)
{
	int round;

	for (round = 0; round < 8; round++) {
		int fd = create_pages(self->device, PAGES);
		char *memory = mapped(map(fd, PAGES));
		size_t i, sum = 0;

		EXPECT_EQ(0, (uintptr_t)memory % PAGE_BYTES);
		for (i = 0; i < LENGTH; i += sizeof(uint64_t))
			sum |= *(uint64_t *)(memory + i);
		ASSERT_EQ(0, sum);
		memset(memory, 0xff, LENGTH);
		munmap(memory, LENGTH);
		close(fd);
	}
}

TEST_F(region, two_mappings_show_the_same)
{
	char *other = mapped(map(self->fd, PAGES));
	char *half = mapped(mmap(NULL, LENGTH / 2, PROT_READ, MAP_SHARED, self->fd, LENGTH / 2));

	EXPECT_TRUE(is_whole(other));
	EXPECT_TRUE(is_filled(half, LENGTH / 2, LENGTH / 2));
	EXPECT_EQ(LENGTH / 2, pmd_mapped(half, LENGTH / 2));
	other[LENGTH - 1] = 42;
	EXPECT_EQ(42, self->memory[LENGTH - 1]);
	EXPECT_EQ(42, half[LENGTH / 2 - 1]);
	munmap(other, LENGTH);
	munmap(half, LENGTH / 2);
}

TEST_F(region, info_tells_what_is_mapped)
{
	struct actmem_ioctl_info now;

	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(LENGTH, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
	ASSERT_EQ(0, munmap(self->memory + LENGTH / 2, LENGTH / 2));
	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(LENGTH / 2, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
	ASSERT_EQ(0, munmap(self->memory, LENGTH / 2));
	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(0, now.mapped_bytes);
	EXPECT_EQ(LENGTH, now.allocated_bytes);
}

TEST_F(region, what_small_pages_map_is_counted_too)
{
	struct actmem_ioctl_info now;
	char *small = mapped(map(self->fd, PAGES));

	ASSERT_EQ(0, munmap(self->memory, LENGTH));
	ASSERT_EQ(0, madvise(small, LENGTH, MADV_NOHUGEPAGE));
	small[0] = 1;
	small[8192] = 1;
	small[LENGTH - 1] = 1;
	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(2 * PAGE_BYTES, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
	munmap(small, LENGTH);
	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(0, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
}

TEST_F(region, what_must_not_be_mapped_is_refused)
{
	const int read_write = PROT_READ | PROT_WRITE;
	static const struct {
		size_t length;
		int protection;
		int flags;
		off_t offset;
		int error;
	} bad[] = {
		{ LENGTH, PROT_READ, MAP_PRIVATE, 0, EINVAL },
		{ LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0, EINVAL },
		{ LENGTH, PROT_READ | PROT_EXEC, MAP_SHARED, 0, EPERM },
		{ 4096, PROT_READ, MAP_SHARED, 0, EINVAL },
		{ LENGTH - 4096, PROT_READ, MAP_SHARED, 0, EINVAL },
		{ LENGTH + 4096, PROT_READ, MAP_SHARED, 0, EINVAL },
		{ LENGTH + PAGE_BYTES, PROT_READ, MAP_SHARED, 0, EINVAL },
		{ PAGE_BYTES, PROT_READ, MAP_SHARED, 4096, EINVAL },
		{ PAGE_BYTES, PROT_READ, MAP_SHARED, LENGTH, EINVAL },
		{ LENGTH, PROT_READ, MAP_SHARED, PAGE_BYTES, EINVAL },
		{ PAGE_BYTES, PROT_READ, MAP_SHARED, LENGTH << 20, EINVAL },
		{ 1UL << 46, PROT_READ, MAP_SHARED, 0, EINVAL },
	};
	char *room;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		errno = 0;
		EXPECT_EQ(MAP_FAILED, mmap(NULL, bad[i].length, bad[i].protection,
					   bad[i].flags, self->fd, bad[i].offset));
		EXPECT_EQ(bad[i].error, errno)
			TH_LOG("case %zu", i);
	}

	/* A mapping at a fixed address survives. */
	room = mapped(mmap(NULL, 2 * LENGTH, read_write, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	memset(room, 7, 2 * LENGTH);
	room = (char *)(((uintptr_t)room + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1));
	EXPECT_ERRNO(EINVAL, mmap(room + 4096, PAGE_BYTES, read_write,
				  MAP_SHARED | MAP_FIXED, self->fd, 0));
	EXPECT_EQ(MAP_FAILED, mmap(room, PAGE_BYTES, read_write,
				   MAP_PRIVATE | MAP_FIXED, self->fd, 0));
	EXPECT_EQ(MAP_FAILED, mmap(room, PAGE_BYTES, read_write,
				   MAP_SHARED | MAP_FIXED, self->fd, LENGTH));
	for (i = 0; i < PAGE_BYTES; i++)
		ASSERT_EQ(7, room[i]);
}

TEST_F(region, hints_and_fixed_addresses)
{
	char *room = mapped(mmap(NULL, 4 * LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *memory;

	ASSERT_EQ(0, munmap(room, 4 * LENGTH));
	memory = mapped(mmap(room + 4096, LENGTH, PROT_READ, MAP_SHARED, self->fd, 0));
	EXPECT_EQ(0, (uintptr_t)memory % PAGE_BYTES);
	EXPECT_TRUE(is_whole(memory));
	munmap(memory, LENGTH);

	room = (char *)(((uintptr_t)room + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1));
	memory = mmap(room, LENGTH, PROT_READ, MAP_SHARED | MAP_FIXED, self->fd, 0);
	ASSERT_EQ(room, memory);
	EXPECT_TRUE(is_whole(memory));
	munmap(memory, LENGTH);
}

TEST_F(region, a_page_is_unmapped_whole_or_not_at_all)
{
	char *memory = self->memory;

	EXPECT_ERRNO(EINVAL, munmap(memory, 4096));
	EXPECT_EQ(-1, munmap(memory + 4096, LENGTH - 4096));
	EXPECT_EQ(-1, munmap(memory + PAGE_BYTES, PAGE_BYTES / 2));
	EXPECT_ERRNO(EINVAL, mprotect(memory, 4096, PROT_READ));
	EXPECT_EQ(-1, mprotect(memory + PAGE_BYTES + 8192, LENGTH / 2, PROT_READ));
	EXPECT_TRUE(is_whole(memory));

	EXPECT_EQ(0, mprotect(memory + PAGE_BYTES, PAGE_BYTES, PROT_READ));
	EXPECT_EQ(PAGE_BYTES, pmd_mapped(memory + PAGE_BYTES, PAGE_BYTES));
	EXPECT_EQ(0, mprotect(memory + PAGE_BYTES, PAGE_BYTES, PROT_READ | PROT_WRITE));
	EXPECT_EQ(0, munmap(memory, PAGE_BYTES));
	EXPECT_TRUE(is_filled(memory + PAGE_BYTES, PAGE_BYTES, LENGTH - PAGE_BYTES));
	EXPECT_EQ(LENGTH - PAGE_BYTES, pmd_mapped(memory + PAGE_BYTES, LENGTH - PAGE_BYTES));
}

TEST_F(region, remapping_keeps_huge_pages)
{
	char *room, *moved;

	EXPECT_ERRNO(EFAULT, mremap(self->memory, LENGTH, 2 * LENGTH, MREMAP_MAYMOVE));
	EXPECT_ERRNO(EINVAL, mremap(self->memory, LENGTH, LENGTH - 4096, 0));
	EXPECT_EQ(MAP_FAILED, mremap(self->memory, 0, LENGTH + PAGE_BYTES, MREMAP_MAYMOVE));

	room = mapped(mmap(NULL, 4 * LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	room = (char *)(((uintptr_t)room + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1));
	EXPECT_ERRNO(EINVAL, mremap(self->memory, LENGTH, LENGTH,
				    MREMAP_MAYMOVE | MREMAP_FIXED, room + 4096));
	EXPECT_ERRNO(EINVAL, mremap(self->memory + 4096, PAGE_BYTES, PAGE_BYTES,
				    MREMAP_MAYMOVE | MREMAP_FIXED, room));
	EXPECT_TRUE(is_whole(self->memory));

	moved = mremap(self->memory, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED,
		       room + LENGTH);
	ASSERT_EQ(room + LENGTH, moved);
	EXPECT_TRUE(is_whole(moved));
	self->memory = mremap(moved, LENGTH, LENGTH / 2, 0);
	EXPECT_EQ(moved, self->memory);
	EXPECT_TRUE(is_filled(moved, 0, LENGTH / 2));
	EXPECT_EQ(LENGTH / 2, pmd_mapped(moved, LENGTH / 2));
}

TEST_F(region, a_child_inherits_only_what_was_created_so)
{
	struct actmem_ioctl_create arg = region_of(PAGES);
	struct actmem_ioctl_info now;
	char *memory;
	pid_t child;
	int fd;

	arg.flags = ACTMEM_CREATE_INHERIT;
	fd = must(create(self->device, &arg));
	memory = mapped(map(fd, PAGES));
	fill(memory, LENGTH);
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_EQ(ACTMEM_INFO_INHERIT, now.state);
	ASSERT_EQ(0, info(self->fd, 0, &now));
	EXPECT_EQ(0, now.state);

	child = fork();
	if (!child) {
		unsigned char resident;

		/* The one is not there, the other is shared. */
		if (!mincore(self->memory, 4096, &resident) || errno != ENOMEM)
			_exit(1);
		if (!is_whole(memory))
			_exit(2);
		memory[1] = 43;
		_exit(0);
	}
	EXPECT_EQ(0, wait_for(child));
	EXPECT_EQ(43, memory[1]);
	EXPECT_EQ(LENGTH, pmd_mapped(memory, LENGTH));
	EXPECT_TRUE(is_whole(self->memory));
	munmap(memory, LENGTH);
	close(fd);
}

TEST_F(region, advice_does_no_harm)
{
	static const int advices[] = {
		MADV_DONTNEED, MADV_COLD, MADV_PAGEOUT, MADV_COLLAPSE, MADV_FREE,
		MADV_MERGEABLE, MADV_DONTNEED_LOCKED, MADV_WILLNEED,
		MADV_RANDOM, MADV_NORMAL, MADV_POPULATE_WRITE,
	};
	size_t i;

	for (i = 0; i < sizeof(advices) / sizeof(advices[0]); i++) {
		madvise(self->memory, LENGTH, advices[i]);
		EXPECT_TRUE(is_whole(self->memory))
			TH_LOG("advice %d", advices[i]);
		madvise(self->memory + 8192, 4096, advices[i]);
		EXPECT_TRUE(is_filled(self->memory, 0, LENGTH))
			TH_LOG("advice %d to a part", advices[i]);
	}
	EXPECT_EQ(0, mlock(self->memory, LENGTH));
	EXPECT_EQ(0, munlock(self->memory, LENGTH));
	EXPECT_TRUE(is_filled(self->memory, 0, LENGTH));
}

TEST_F(region, collapse_with_no_writer)
{
	char *memory;
	int fd;

	/* A file that nobody may write to is one that the kernel might collapse. */
	fd = must(reopen(self->fd, O_RDONLY));
	ASSERT_EQ(0, munmap(self->memory, LENGTH));
	close(self->fd);
	self->fd = fd;
	memory = mapped(mmap(NULL, LENGTH, PROT_READ, MAP_SHARED, fd, 0));
	EXPECT_NE(0, madvise(memory, LENGTH, MADV_COLLAPSE));
	EXPECT_TRUE(is_whole(memory));
	munmap(memory, LENGTH);
}

TEST_F(region, a_mapping_is_not_dumped)
{
	char line[512], begin[32];
	bool here = false, dd = false, de = false, dc = false;
	FILE *file = fopen("/proc/self/smaps", "re");

	ASSERT_NE(NULL, file);
	snprintf(begin, sizeof(begin), "%lx-", (unsigned long)self->memory);
	while (fgets(line, sizeof(line), file)) {
		if (!strncmp(line, begin, strlen(begin))) {
			here = true;
		} else if (here && !strncmp(line, "VmFlags:", 8)) {
			dd = strstr(line, " dd");
			de = strstr(line, " de");
			dc = strstr(line, " dc");
			break;
		}
	}
	fclose(file);
	EXPECT_TRUE(dd);
	EXPECT_TRUE(de);
	EXPECT_TRUE(dc);
}

/* Reads how many huge pages NUMA balancing has unmapped since the start of the machine. */
static long balanced_pages(void)
{
	const char *name = "numa_huge_pte_updates ";
	FILE *file = fopen("/proc/vmstat", "re");
	char line[128];
	long number = -1;

	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			number = atol(line + strlen(name));
	if (file)
		fclose(file);
	return number;
}

static void *sleep_forever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

TEST_F_TIMEOUT(region, numa_balancing_leaves_it_alone, 150)
{
	char *room = mapped(mmap(NULL, LENGTH + PAGE_BYTES, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *other = (char *)(((uintptr_t)room + PAGE_BYTES - 1) & -PAGE_BYTES);
	time_t begun = time(NULL), spent;
	long before = balanced_pages();
	pthread_t thread;

	ASSERT_LE(0, before);
	/* Newer kernels leave local memory of a process with a single thread alone. */
	ASSERT_EQ(0, pthread_create(&thread, NULL, sleep_forever, NULL));
	ASSERT_EQ(0, madvise(other, LENGTH, MADV_HUGEPAGE));
	ASSERT_EQ(0, put(BALANCING, "1"));
	/* The kernel looks at all memory of a process in turn, here three times. */
	while (balanced_pages() < before + 3 * PAGES) {
		fill(other, LENGTH);
		fill(self->memory, LENGTH);
		ASSERT_GT(60, time(NULL) - begun);
	}
	ASSERT_EQ(0, munmap(room, LENGTH + PAGE_BYTES));
	before = balanced_pages();
	spent = time(NULL) - begun + 1;
	begun = time(NULL);
	while (time(NULL) - begun <= spent)
		fill(self->memory, LENGTH);
	EXPECT_EQ(before, balanced_pages());
	EXPECT_EQ(0, put(BALANCING, "0"));
	EXPECT_TRUE(is_whole(self->memory));
}

TEST_F(region, the_file_cannot_change)
{
	struct stat status;

	ASSERT_EQ(0, fstat(self->fd, &status));
	EXPECT_EQ((off_t)LENGTH, status.st_size);
	EXPECT_EQ((blksize_t)PAGE_BYTES, status.st_blksize);
	EXPECT_TRUE(S_ISREG(status.st_mode));
	EXPECT_EQ(0600, status.st_mode & 07777);
	EXPECT_ERRNO(EPERM, ftruncate(self->fd, 0));
	EXPECT_EQ(-1, ftruncate(self->fd, 2 * LENGTH));
	EXPECT_EQ(-1, fchmod(self->fd, 0666));
	EXPECT_ERRNO(EPERM, fchown(self->fd, USER, USER));
	EXPECT_TRUE(is_whole(self->memory));
}

/* As actmem(4) says: between the threads of a process, and not between processes. */
TEST_F(region, futexes)
{
	uint32_t *word = (uint32_t *)self->memory, other = *word + 1;

	EXPECT_EQ(0, syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
	EXPECT_ERRNO(EAGAIN, syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, other, NULL, NULL, 0));
	EXPECT_ERRNO(EFAULT, syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0));
	EXPECT_ERRNO(EFAULT, syscall(SYS_futex, word, FUTEX_WAIT, other, NULL, NULL, 0));
}

TEST_F(region, works_with_transparent_huge_pages_off)
{
	const char *path = "/sys/kernel/mm/transparent_hugepage/enabled";
	char before[64], *word, *memory;
	int file = open(path, O_RDWR);
	ssize_t size;

	ASSERT_LE(0, file);
	size = pread(file, before, sizeof(before) - 1, 0);
	ASSERT_LT(0, size);
	before[size] = 0;
	word = strchr(before, '[') + 1;
	*strchr(word, ']') = 0;

	ASSERT_EQ(5, write(file, "never", 5));
	memory = map_and_touch(self->fd, PAGES);
	EXPECT_NE(MAP_FAILED, memory);
	EXPECT_EQ(LENGTH, pmd_mapped(memory, LENGTH));
	EXPECT_LT(0, pwrite(file, word, strlen(word), 0));
	munmap(memory, LENGTH);
	close(file);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
