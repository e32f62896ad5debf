// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Regions of memory that others made: what will do, where it counts, and how long
 * it is held. What is done to such regions is import_uses.c's, and those of pages
 * of 1 GiB are import_gib.c's.
 */
#include <liburing.h>

#include "import_fixture.h"

TEST_F(import, both_mappings_show_the_same)
{
	struct actmem_ioctl_import arg = import_of(self->memory, 0, BYTES);
	char *theirs = map_bytes(self->memory, BYTES), *ours;
	int fd;

	ASSERT_NE(MAP_FAILED, theirs);
	mark(theirs, BYTES / 2);
	snprintf(arg.name, sizeof(arg.name), "guest");
	fd = import(self->device, &arg);
	ASSERT_LE(0, fd);
	EXPECT_EQ(variant->page_bytes, arg.page_bytes);
	EXPECT_EQ(ACTMEM_WHY_NONE, arg.why.reason);
	EXPECT_EQ(FD_CLOEXEC, fcntl(fd, F_GETFD));

	ours = map_bytes(fd, BYTES);
	ASSERT_NE(MAP_FAILED, ours);
	EXPECT_EQ(0, (uintptr_t)ours % PAGE_BYTES);
	EXPECT_TRUE(is_marked(ours, BYTES / 2));
	EXPECT_TRUE(is_all(ours + BYTES / 2, 0, BYTES / 2));
	mark(ours, BYTES);
	EXPECT_TRUE(is_marked(theirs, BYTES));
	munmap(ours, BYTES);
	munmap(theirs, BYTES);

	/* What was written stays the memory's. */
	close(fd);
	theirs = map_bytes(self->memory, BYTES);
	ASSERT_NE(MAP_FAILED, theirs);
	EXPECT_TRUE(is_marked(theirs, BYTES));
	munmap(theirs, BYTES);
}

TEST_F(import, told_and_counted)
{
	struct actmem_ioctl_import arg = import_of(self->memory, PAGE_BYTES, 2 * PAGE_BYTES);
	uint64_t id, node_bytes[64] = { 0 }, mask = 0, sum = 0;
	struct actmem_ioctl_range range;
	struct actmem_ioctl_info now;
	struct stat stat;
	unsigned int i;
	char *memory;
	int fd;

	snprintf(arg.name, sizeof(arg.name), "guest");
	fd = import(self->device, &arg);
	ASSERT_LE(0, fd);
	ASSERT_EQ(1, list(self->device, &id, 1));
	EXPECT_EQ(arg.id, id);
	memset(&now, 0, sizeof(now));
	now.size = sizeof(now);
	now.node_bytes = (uintptr_t)node_bytes;
	now.node_count = 64;
	ASSERT_EQ(0, call(fd, ACTMEM_IOC_INFO, &now));
	EXPECT_EQ(2 * PAGE_BYTES, now.length);
	EXPECT_EQ(PAGE_BYTES, now.page_bytes);
	EXPECT_EQ(variant->page_bytes, now.imported_page_bytes);
	EXPECT_EQ(2 * PAGE_BYTES, now.allocated_bytes);
	EXPECT_EQ(0, now.mapped_bytes);
	EXPECT_EQ(0, now.pinned_bytes);
	EXPECT_EQ(ACTMEM_INFO_IMPORTED, now.state);
	EXPECT_EQ(ACTMEM_POLICY_BIND, now.policy);
	EXPECT_STREQ("guest", now.name);
	for (i = 0; i < 64; i++) {
		mask |= (uint64_t)!!node_bytes[i] << i;
		sum += node_bytes[i];
		if (node_bytes[i])
			EXPECT_EQ(node_bytes[i], number_in(SYSFS "/node%u/region_bytes", i));
	}
	EXPECT_EQ(2 * PAGE_BYTES, sum);
	EXPECT_EQ(mask, now.nodes[0]);
	EXPECT_EQ(2 * PAGE_BYTES, node_sum("region_bytes"));
	EXPECT_EQ(2 * PAGE_BYTES, user_number(0, "region_bytes"));
	EXPECT_EQ(0, fstat(fd, &stat));
	EXPECT_EQ(2 * PAGE_BYTES, stat.st_size);
	EXPECT_EQ(2 * PAGE_BYTES, stat.st_blocks * 512);

	memory = map_bytes(fd, 2 * PAGE_BYTES);
	ASSERT_NE(MAP_FAILED, memory);
	memory[PAGE_BYTES] = 1;
	ASSERT_EQ(0, info(fd, 0, &now));
	EXPECT_LE(variant->page_bytes, now.mapped_bytes);
	EXPECT_GE(PAGE_BYTES, now.mapped_bytes);
	munmap(memory, 2 * PAGE_BYTES);

	/* All is there, and nothing is the region's to give back. */
	EXPECT_EQ(0, change_range(fd, ACTMEM_IOC_POPULATE, 0, 2, &range));
	EXPECT_EQ(2 * PAGE_BYTES, range.done);
	EXPECT_EQ(-EOPNOTSUPP, change_range(fd, ACTMEM_IOC_DISCARD, 0, 2, &range));
	EXPECT_EQ(0, range.done);
	EXPECT_EQ(-EINVAL, populate(fd, 0, 3));

	/* Memory is a region once. */
	arg = import_of(self->memory, 0, 2 * PAGE_BYTES);
	EXPECT_EQ(-EBUSY, import(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_IMPORT, arg.why.reason);
	arg = import_of(self->memory, 2 * PAGE_BYTES, 2 * PAGE_BYTES);
	EXPECT_EQ(-EBUSY, import(self->device, &arg));
	arg = import_of(self->memory, 3 * PAGE_BYTES, PAGE_BYTES);
	EXPECT_LE(0, import(self->device, &arg));
	EXPECT_EQ(3 * PAGE_BYTES, node_sum("region_bytes"));
	close(arg.fd);
	EXPECT_EQ(2 * PAGE_BYTES, node_sum("region_bytes"));
	close(fd);
	EXPECT_EQ(0, node_sum("region_bytes"));
	EXPECT_EQ(0, user_number(0, "region_bytes"));
}

/* Small pages can be on any nodes, and each is counted where it is. */
TEST_F(import, counted_where_it_is)
{
	size_t bytes = variant->page_bytes, length = bytes < PAGE_BYTES ? 5 * bytes : bytes;
	char *theirs = map_bytes(self->memory, BYTES);
	int fd;

	ASSERT_NE(MAP_FAILED, theirs);
	ASSERT_EQ(0, bind_to(theirs, BYTES, 0));
	ASSERT_EQ(0, bind_to(theirs, length, 1));
	memset(theirs, 1, BYTES);
	fd = import_all(self->device, self->memory, BYTES);
	ASSERT_LE(0, fd);
	EXPECT_EQ(length, number_in(SYSFS "/node1/region_bytes"));
	EXPECT_EQ(BYTES - length, number_in(SYSFS "/node0/region_bytes"));
	EXPECT_EQ(1, number_in(SYSFS "/node0/regions"));
	EXPECT_EQ(1, number_in(SYSFS "/node1/regions"));
	munmap(theirs, BYTES);
	close(fd);

	/* A node's limit is of pages there. */
	ASSERT_EQ(0, set_limit(SYSFS "/node0/limit_bytes", PAGES - 1));
	if (variant->page_bytes == PAGE_BYTES) {
		fd = import_all(self->device, self->memory, BYTES);
		ASSERT_LE(0, fd);
		EXPECT_EQ(-EDQUOT, create(self->device, &(struct actmem_ioctl_create){
			.size = sizeof(struct actmem_ioctl_create), .length = PAGE_BYTES,
			.page_bytes = PAGE_BYTES, .nodes = { 1 } }));
		close(fd);
	}
	ASSERT_EQ(0, set_limit(SYSFS "/node0/limit_bytes", PAGES - 2));
	{
		struct actmem_ioctl_import arg = import_of(self->memory, 0, BYTES);

		EXPECT_EQ(-EDQUOT, import(self->device, &arg));
		EXPECT_EQ(ACTMEM_WHY_NODE_LIMIT, arg.why.reason);
		EXPECT_EQ(0, arg.why.node);
		EXPECT_EQ(BYTES - length, arg.why.wanted);
		EXPECT_EQ((PAGES - 2) * PAGE_BYTES, arg.why.available);
		EXPECT_EQ(-1, arg.fd);
	}
	ASSERT_EQ(0, set_limit(SYSFS "/node0/limit_bytes", -1));
	EXPECT_EQ(0, node_sum("region_bytes"));
}

TEST_F(import, a_mapping_is_enough)
{
	int fd = import_all(self->device, self->memory, BYTES);
	char *memory = map_bytes(fd, BYTES), *part;
	pid_t child;

	ASSERT_NE(MAP_FAILED, memory);
	close(fd);
	close(self->memory);
	self->memory = -1;
	mark(memory, BYTES);
	EXPECT_EQ(1, regions());
	EXPECT_EQ(BYTES, node_sum("region_bytes"));

	/* A child has none of it. */
	child = fork();
	if (!child)
		_exit(!msync(memory, PAGE_BYTES, MS_ASYNC) || errno != ENOMEM);
	EXPECT_EQ(0, wait_for(child));

	/* Parts go, and parts are moved. */
	ASSERT_EQ(0, munmap(memory + PAGE_BYTES, PAGE_BYTES));
	part = mremap(memory + 2 * PAGE_BYTES, 2 * PAGE_BYTES, 2 * PAGE_BYTES,
		      MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
	if (part != MAP_FAILED) {
		EXPECT_TRUE(!memcmp(part, memory + 2 * PAGE_BYTES, 2 * PAGE_BYTES));
		ASSERT_EQ(0, munmap(part, 2 * PAGE_BYTES));
	}
	EXPECT_EQ(1, regions());
	ASSERT_EQ(0, munmap(memory, PAGE_BYTES));
	EXPECT_EQ(1, regions());
	ASSERT_EQ(0, munmap(memory + 2 * PAGE_BYTES, 2 * PAGE_BYTES));
	EXPECT_EQ(0, regions());
}

TEST_F(import, inherited_if_wanted)
{
	struct actmem_ioctl_import arg = import_of(self->memory, 0, BYTES);
	struct actmem_ioctl_info now;
	char *memory;
	pid_t child;

	arg.flags = ACTMEM_CREATE_INHERIT;
	ASSERT_LE(0, import(self->device, &arg));
	ASSERT_EQ(0, info(arg.fd, 0, &now));
	EXPECT_EQ(ACTMEM_INFO_IMPORTED | ACTMEM_INFO_INHERIT, now.state);
	memory = map_bytes(arg.fd, BYTES);
	ASSERT_NE(MAP_FAILED, memory);
	close(arg.fd);
	child = fork();
	if (!child) {
		memory[5] = 5;
		_exit(0);
	}
	EXPECT_EQ(0, wait_for(child));
	EXPECT_EQ(5, memory[5]);
	EXPECT_EQ(1, regions());
	munmap(memory, BYTES);
}

TEST_F(import, what_is_pinned_lingers)
{
	int fd = import_all(self->device, self->memory, BYTES);
	char *memory = map_bytes(fd, BYTES), *theirs;
	struct iovec vector = { memory + PAGE_BYTES, 8192 };
	struct actmem_ioctl_info now;
	struct io_uring ring;
	uint64_t id;
	int err;

	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_EQ(1, list(self->device, &id, 1));
	ASSERT_EQ(0, io_uring_queue_init(4, &ring, 0));
	err = io_uring_register_buffers(&ring, &vector, 1);
	if (err == -EOPNOTSUPP) {
		/* Linux 6.1 takes files for buffers only if they are its own. */
		theirs = map_bytes(self->memory, BYTES);
		ASSERT_NE(MAP_FAILED, theirs);
		vector.iov_base = theirs + PAGE_BYTES;
		err = io_uring_register_buffers(&ring, &vector, 1);
		munmap(theirs, BYTES);
	}
	ASSERT_EQ(0, err);
	ASSERT_EQ(0, info(fd, 0, &now));
	/* Of small pages those that are pinned, of others the whole. */
	if (variant->page_bytes == PAGE_BYTES)
		EXPECT_EQ(PAGE_BYTES, now.pinned_bytes);
	munmap(memory, BYTES);
	close(fd);
	close(self->memory);
	self->memory = -1;
	if (variant->page_bytes == PAGE_BYTES) {
		EXPECT_EQ(1, lingering_regions());
		EXPECT_EQ(PAGE_BYTES, node_sum("region_bytes"));
		EXPECT_EQ(PAGE_BYTES, node_sum("lingering_bytes"));
		EXPECT_EQ(PAGE_BYTES, user_number(0, "lingering_bytes"));
		ASSERT_EQ(0, info(self->device, id, &now));
		EXPECT_EQ(ACTMEM_INFO_LINGERING | ACTMEM_INFO_IMPORTED, now.state);
		EXPECT_EQ(PAGE_BYTES, now.allocated_bytes);
		EXPECT_EQ(PAGE_BYTES, now.pinned_bytes);
	}
	io_uring_unregister_buffers(&ring);
	io_uring_queue_exit(&ring);
	/* Its end is in the background. */
	while (regions())
		usleep(10000);
	EXPECT_EQ(0, lingering_regions());
	EXPECT_EQ(0, node_sum("lingering_bytes"));
}

TEST_F(import, killed_at_any_time)
{
	unsigned int i;

	for (i = 0; i < 12; i++) {
		int ends[2];
		char byte;
		pid_t child;

		ASSERT_EQ(0, pipe(ends));
		child = fork();
		if (!child) {
			if (write(ends[1], "", 1) != 1)
				_exit(1);
			for (;;) {
				int fd = import_all(self->device, self->memory, BYTES);

				if (fd < 0 || map_and_touch(fd, 1) == MAP_FAILED)
					_exit(1);
				if (i % 2)
					continue;
				munmap(map_bytes(fd, BYTES), BYTES);
				close(fd);
			}
		}
		ASSERT_EQ(1, read(ends[0], &byte, 1));
		usleep(i * 3000);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
		close(ends[0]);
		close(ends[1]);
		/* Which is so by the time that the child is seen to have ended. */
		EXPECT_EQ(0, regions());
		EXPECT_EQ(0, node_sum("region_bytes"));
	}
}

static int refusal(int device, int memory, uint64_t offset, uint64_t length,
		   struct actmem_ioctl_import *arg)
{
	*arg = import_of(memory, offset, length);
	return import(device, arg);
}

TEST_F(import, refused)
{
	int pair[2], other = create_pages(self->device, 1), reader;
	struct actmem_ioctl_import arg;
	char path[32];

	EXPECT_EQ(-EBADF, refusal(self->device, -1, 0, BYTES, &arg));
	EXPECT_EQ(-1, arg.fd);
	EXPECT_EQ(-EINVAL, refusal(self->device, self->memory, 0, 0, &arg));
	EXPECT_EQ(-EINVAL, refusal(self->device, self->memory, 4096, PAGE_BYTES, &arg));
	EXPECT_EQ(-EINVAL, refusal(self->device, self->memory, 0, PAGE_BYTES + 4096, &arg));
	EXPECT_EQ(-EINVAL, refusal(self->device, self->memory, -PAGE_BYTES, PAGE_BYTES, &arg));
	EXPECT_EQ(-EINVAL, refusal(self->device, self->memory, 0, -PAGE_BYTES, &arg));
	EXPECT_EQ(ACTMEM_WHY_NONE, arg.why.reason);

	EXPECT_EQ(-EINVAL, refusal(self->device, self->memory, PAGE_BYTES, BYTES, &arg));
	EXPECT_EQ(ACTMEM_WHY_IMPORT, arg.why.reason);
	EXPECT_EQ(BYTES + PAGE_BYTES, arg.why.wanted);
	EXPECT_EQ(BYTES, arg.why.available);

	/* Another region, the device, a pipe, and a file that is on no such file system. */
	EXPECT_EQ(-EINVAL, refusal(self->device, other, 0, PAGE_BYTES, &arg));
	EXPECT_EQ(ACTMEM_WHY_IMPORT, arg.why.reason);
	EXPECT_EQ(0, arg.why.wanted);
	EXPECT_EQ(-EINVAL, refusal(self->device, self->device, 0, PAGE_BYTES, &arg));
	ASSERT_EQ(0, pipe(pair));
	EXPECT_EQ(-EINVAL, refusal(self->device, pair[1], 0, PAGE_BYTES, &arg));
	close(pair[0]);
	close(pair[1]);
	reader = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
	EXPECT_EQ(-EINVAL, refusal(self->device, reader, 0, PAGE_BYTES, &arg));
	close(reader);
	close(other);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", self->memory);
	reader = open(path, O_RDONLY | O_CLOEXEC);
	ASSERT_LE(0, reader);
	EXPECT_EQ(-EBADF, refusal(self->device, reader, 0, PAGE_BYTES, &arg));
	close(reader);

	arg = import_of(self->memory, 0, BYTES);
	arg.flags = ACTMEM_CREATE_LAZY;
	EXPECT_EQ(-EINVAL, import(self->device, &arg));
	arg = import_of(self->memory, 0, BYTES);
	arg.name[0] = '/';
	EXPECT_EQ(-EINVAL, import(self->device, &arg));
	arg = import_of(self->memory, 0, BYTES);
	arg.size -= 8;
	EXPECT_EQ(-EINVAL, import(self->device, &arg));
	EXPECT_EQ(-EFAULT, call(self->device, ACTMEM_IOC_IMPORT, NULL));

	/* Ways to map that no region has. */
	arg = import_of(self->memory, 0, BYTES);
	ASSERT_LE(0, import(self->device, &arg));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, BYTES, PROT_READ, MAP_PRIVATE, arg.fd, 0));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, BYTES + PAGE_BYTES, PROT_READ, MAP_SHARED, arg.fd, 0));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, 4096, PROT_READ, MAP_SHARED, arg.fd, 0));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, arg.fd, BYTES));
	close(arg.fd);
}

TEST_F(import, seals)
{
	int sealed = memfd_of(variant->flags | MFD_ALLOW_SEALING, BYTES);
	struct actmem_ioctl_import arg;

	ASSERT_LE(0, sealed);
	EXPECT_EQ(-EPERM, refusal(self->device, sealed, 0, BYTES, &arg));
	EXPECT_EQ(ACTMEM_WHY_IMPORT, arg.why.reason);
	ASSERT_EQ(0, fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK));
	ASSERT_LE(0, refusal(self->device, sealed, 0, BYTES, &arg));
	/* Nobody can take away what may be written to, also if its pages are others by now. */
	EXPECT_EQ(-1, fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE));
	EXPECT_EQ(0, fallocate(sealed, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES));
	EXPECT_EQ(-1, fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE));
	EXPECT_EQ(EBUSY, errno);
	/* Nobody begins to write any more. */
	ASSERT_EQ(0, fcntl(sealed, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, arg.fd, 0));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, BYTES, PROT_READ, MAP_SHARED, arg.fd, 0));
	EXPECT_EQ(-1, pwrite(arg.fd, "x", 1, 0));
	EXPECT_EQ(EPERM, errno);
	close(arg.fd);
	ASSERT_EQ(0, fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE));
	EXPECT_EQ(-EPERM, refusal(self->device, sealed, 0, BYTES, &arg));
	EXPECT_EQ(ACTMEM_WHY_IMPORT, arg.why.reason);
	close(sealed);
}

static int limited(int device)
{
	struct actmem_ioctl_import arg;
	int memory = memfd_of(0, BYTES);

	CHECK(memory >= 0);
	CHECK(!set_memlock(BYTES - 4096));
	CHECK(refusal(device, memory, 0, BYTES, &arg) == -ENOMEM);
	CHECK(arg.why.reason == ACTMEM_WHY_MEMLOCK && arg.why.wanted == BYTES);
	CHECK(arg.why.available == BYTES - 4096);
	CHECK(refusal(device, memory, 0, BYTES - PAGE_BYTES, &arg) >= 0);
	CHECK(user_number(USER, "region_bytes") == (long)(BYTES - PAGE_BYTES));
	CHECK(create_pages(device, 1) == -ENOMEM);
	CHECK(!close(arg.fd));
	CHECK(refusal(device, memory, PAGE_BYTES, BYTES - PAGE_BYTES, &arg) >= 0);
	return 0;
}

static int limited_by_administrator(int device)
{
	struct actmem_ioctl_import arg;
	int memory = memfd_of(0, BYTES);

	CHECK(memory >= 0);
	CHECK(!set_memlock(0));
	CHECK(refusal(device, memory, 0, BYTES, &arg) == -EDQUOT);
	CHECK(arg.why.reason == ACTMEM_WHY_USER_LIMIT && arg.why.wanted == BYTES);
	CHECK(refusal(device, memory, 0, 2 * PAGE_BYTES, &arg) >= 0);
	return 0;
}

TEST_F(import, limits_hold)
{
	EXPECT_EQ(0, as_user(USER, limited, self->device));
	ASSERT_EQ(0, set_limit(SYSFS "/user_limit_bytes", PAGES - 1));
	EXPECT_EQ(0, as_user(USER, limited_by_administrator, self->device));
	ASSERT_EQ(0, set_limit(SYSFS "/user_limit_bytes", -1));
}

/* Which is so before any page is pinned, and where one cannot be had. */
TEST_F(import, too_few_pages)
{
	int memory = memfd_of(MFD_HUGETLB | MFD_HUGE_2MB, (HUGE_TOTAL + 1) * PAGE_BYTES);
	struct actmem_ioctl_import arg;

	ASSERT_LE(0, memory);
	EXPECT_EQ(-ENOMEM, refusal(self->device, memory, 0, (HUGE_TOTAL + 1) * PAGE_BYTES, &arg));
	EXPECT_EQ(ACTMEM_WHY_IMPORT, arg.why.reason);
	EXPECT_EQ((HUGE_TOTAL + 1) * PAGE_BYTES, arg.why.wanted);
	EXPECT_GT(arg.why.wanted, arg.why.available);
	EXPECT_EQ(0, regions());
	close(memory);
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
