// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Regions of memory that others made: memfds of small pages, of transparent huge
 * pages and of hugetlb's. Those of 1 GiB are import_gib.c's.
 */
#include <linux/falloc.h>
#include <liburing.h>

#include "import_test.h"

#define PAGES		4
#define BYTES		(PAGES * PAGE_BYTES)
#define HUGE_NUMBER	HUGE_PAGES("2048") "nr_hugepages"
#define HUGE_FREE	HUGE_PAGES("2048") "free_hugepages"
#define HUGE_TOTAL	12
#define THP_OF_SHMEM	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"

FIXTURE(import)
{
	int device;
	int memory;
	size_t page_bytes;
};

FIXTURE_VARIANT(import)
{
	unsigned int flags;
	bool huge;
	size_t page_bytes;
};

FIXTURE_VARIANT_ADD(import, small)
{
	.page_bytes = 4096,
};

FIXTURE_VARIANT_ADD(import, transparent)
{
	.huge = true,
	.page_bytes = PAGE_BYTES,
};

FIXTURE_VARIANT_ADD(import, hugetlb)
{
	.flags = MFD_HUGETLB | MFD_HUGE_2MB,
	.page_bytes = PAGE_BYTES,
};

FIXTURE_SETUP(import)
{
	char number[16];

	snprintf(number, sizeof(number), "%d", HUGE_TOTAL);
	ASSERT_EQ(0, put(HUGE_NUMBER, number));
	ASSERT_EQ(HUGE_TOTAL, number_in(HUGE_FREE));
	ASSERT_EQ(0, put(THP_OF_SHMEM, variant->huge ? "always" : "never"));
	self->device = open("/dev/actmem", O_RDWR | O_CLOEXEC);
	ASSERT_LE(0, self->device);
	self->memory = memfd_of(variant->flags, BYTES);
	ASSERT_LE(0, self->memory);
}

/* What was imported is its owner's again, to the last page. */
FIXTURE_TEARDOWN(import)
{
	if (self->memory >= 0)
		close(self->memory);
	close(self->device);
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, put(THP_OF_SHMEM, "never"));
	EXPECT_EQ(HUGE_TOTAL, number_in(HUGE_FREE));
	EXPECT_EQ(0, put(HUGE_NUMBER, "0"));
	EXPECT_EQ(0, number_in(HUGE_NUMBER));
}

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

/* Bytes of each of three regions, of which the first was imported. */
struct model {
	int fd[3];
	unsigned char *memory[3];
	unsigned char *bytes[3];
};

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005 + 1442695040888963407;
	return *state >> 33;
}

static int copy_as_model(struct model *model, uint64_t *random)
{
	size_t length = next_random(random) % (next_random(random) % 2 ? BYTES : 9000) + 1;
	size_t to = next_random(random) % (BYTES - length + 1);
	size_t from = next_random(random) % (BYTES - length + 1);
	unsigned int into = next_random(random) % 3, out_of = (into + 1 + next_random(random) % 2) % 3;
	unsigned int mapped = next_random(random) % 3;

	memset(model->memory[mapped] + from, (int)length, length % 5000);
	memset(model->bytes[mapped] + from, (int)length, length % 5000);
	memcpy(model->bytes[into] + to, model->bytes[out_of] + from, length);
	return copy(model->fd[into], to, model->fd[out_of], from, length);
}

TEST_F(import, copied_as_others)
{
	int other = memfd_of(0, BYTES);
	struct model model = { .fd = {
		import_all(self->device, self->memory, BYTES),
		create_lazy(self->device, PAGES),
		import_all(self->device, other, BYTES),
	} };
	uint64_t random = 7;
	unsigned int i;

	for (i = 0; i < 3; i++) {
		ASSERT_LE(0, model.fd[i]);
		model.bytes[i] = calloc(1, BYTES);
		model.memory[i] = (unsigned char *)map_bytes(model.fd[i], BYTES);
		ASSERT_NE(MAP_FAILED, model.memory[i]);
	}
	for (i = 0; i < 40; i++)
		ASSERT_EQ(0, copy_as_model(&model, &random));
	for (i = 0; i < 3; i++) {
		EXPECT_EQ(0, memcmp(model.memory[i], model.bytes[i], BYTES));
		munmap(model.memory[i], BYTES);
		close(model.fd[i]);
		free(model.bytes[i]);
	}
	close(other);
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

TEST_F(import, a_disk_reads_into_it)
{
	int fd = import_all(self->device, self->memory, BYTES);
	int disk = open("/dev/nvme0n1", O_RDWR | O_DIRECT | O_CLOEXEC);
	int ordinary = create_pages(self->device, PAGES);
	char *memory = map_bytes(fd, BYTES), *source = map_bytes(ordinary, BYTES);

	ASSERT_LE(0, disk);
	ASSERT_NE(MAP_FAILED, memory);
	ASSERT_NE(MAP_FAILED, source);
	mark(source, BYTES);
	ASSERT_EQ(BYTES, pwrite(disk, source, BYTES, 0));
	ASSERT_EQ(BYTES, pread(disk, memory, BYTES, 0));
	EXPECT_TRUE(is_marked(memory, BYTES));
	munmap(source, BYTES);
	munmap(memory, BYTES);
	close(disk);
	close(ordinary);
	close(fd);
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

TEST_F(import, what_its_owner_takes_is_missed)
{
	int fd = import_all(self->device, self->memory, BYTES);
	int ordinary = create_pages(self->device, PAGES);
	char *memory = map_bytes(fd, BYTES);

	ASSERT_NE(MAP_FAILED, memory);
	memset(memory, 7, BYTES);
	ASSERT_EQ(0, fallocate(self->memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			       PAGE_BYTES, PAGE_BYTES));
	EXPECT_TRUE(is_all(memory + PAGE_BYTES, 0, PAGE_BYTES));
	EXPECT_TRUE(is_all(memory, 7, PAGE_BYTES));
	EXPECT_EQ(0, copy(ordinary, 0, fd, 0, PAGE_BYTES));
	EXPECT_EQ(-ESTALE, copy(ordinary, PAGE_BYTES, fd, PAGE_BYTES, PAGE_BYTES));
	EXPECT_EQ(-ESTALE, copy(fd, 2 * PAGE_BYTES - 1, ordinary, 0, 1));
	EXPECT_EQ(0, copy(fd, 2 * PAGE_BYTES, ordinary, 0, PAGE_BYTES));

	ASSERT_EQ(0, ftruncate(self->memory, 2 * PAGE_BYTES));
	EXPECT_EQ(-ESTALE, copy(fd, 3 * PAGE_BYTES, ordinary, 0, 1));
	EXPECT_EQ(BYTES, node_sum("region_bytes") - BYTES);
	munmap(memory, BYTES);
	close(ordinary);
	close(fd);
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
	/* Nobody can take away what may be written to. */
	EXPECT_EQ(-1, fcntl(sealed, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_WRITE));
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
