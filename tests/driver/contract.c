// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The contract: every field of every call, good and bad. What is refused has
 * its errno and leaves nothing behind.
 */
#include <stddef.h>

#include "driver_test.h"

#define ABSURD	(~0ULL / PAGE_BYTES * PAGE_BYTES)

TEST_F(driver, query_answers)
{
	struct actmem_ioctl_query arg = query_arg();

	ASSERT_EQ(0, call(self->device, ACTMEM_IOC_QUERY, &arg));
	EXPECT_EQ(sizeof(arg), arg.size);
	EXPECT_EQ(ACTMEM_ABI_VERSION, arg.abi);
	EXPECT_EQ(ACTMEM_ABI_OLDEST, arg.abi_oldest);
	EXPECT_EQ(0, arg.features & ~ACTMEM_FEATURE_DMEM);
	EXPECT_EQ(PAGE_BYTES, arg.page_bytes);
	EXPECT_LE(1UL << 40, arg.max_region_bytes);
	EXPECT_EQ(0, arg.max_region_bytes % PAGE_BYTES);
	EXPECT_LE(1, arg.node_count);
}

TEST_F(driver, query_refuses_a_peer_that_is_too_old)
{
	struct actmem_ioctl_query arg = query_arg();

	arg.abi = ACTMEM_ABI_OLDEST - 1;
	EXPECT_EQ(-EPROTONOSUPPORT, call(self->device, ACTMEM_IOC_QUERY, &arg));
	EXPECT_EQ(ACTMEM_ABI_VERSION, arg.abi);
	EXPECT_EQ(PAGE_BYTES, arg.page_bytes);

	arg = query_arg();
	arg.abi_oldest = ACTMEM_ABI_VERSION + 1;
	arg.abi = ACTMEM_ABI_VERSION + 1;
	EXPECT_EQ(-EPROTONOSUPPORT, call(self->device, ACTMEM_IOC_QUERY, &arg));
	EXPECT_EQ(ACTMEM_ABI_VERSION, arg.abi);
	EXPECT_EQ(ACTMEM_ABI_OLDEST, arg.abi_oldest);

	/* Newer, but content with this one. */
	arg = query_arg();
	arg.abi = ACTMEM_ABI_VERSION + 1;
	EXPECT_EQ(0, call(self->device, ACTMEM_IOC_QUERY, &arg));
}

/*
 * The requests, the sizes of their structs now and in the oldest version, and whether they are
 * requests of a region's descriptor.
 */
static const struct {
	unsigned long request;
	uint32_t size, oldest;
	bool on_region;
} requests[] = {
#define SIZE(name)	sizeof(struct actmem_ioctl_##name)
	{ ACTMEM_IOC_QUERY, SIZE(query), SIZE(query), false },
	{ ACTMEM_IOC_CREATE, SIZE(create), SIZE(create), false },
	{ ACTMEM_IOC_INFO, SIZE(info), offsetof(struct actmem_ioctl_info, surplus_bytes), false },
	{ ACTMEM_IOC_LIST, SIZE(list), SIZE(list), false },
	{ ACTMEM_IOC_DISCARD, SIZE(range), SIZE(range), true },
	{ ACTMEM_IOC_POPULATE, SIZE(range), SIZE(range), true },
};

#define REQUESTS	(sizeof(requests) / sizeof(requests[0]))

/* The arguments of any of them, with room for what a later version adds. */
union argument {
	uint32_t size;
	struct actmem_ioctl_query query;
	struct actmem_ioctl_create create;
	struct actmem_ioctl_info info;
	struct actmem_ioctl_list list;
	struct actmem_ioctl_range range;
	uint64_t words[8192 / 8];
};

/* Fills in arguments with which the request succeeds. */
static void make_good(unsigned long request, union argument *arg, uint64_t id, uint64_t *ids)
{
	memset(arg, 0, 4096);
	switch (request) {
	case ACTMEM_IOC_QUERY:
		arg->query = query_arg();
		break;
	case ACTMEM_IOC_CREATE:
		arg->create = region_of(1);
		break;
	case ACTMEM_IOC_INFO:
		arg->info.size = sizeof(arg->info);
		arg->info.id = id;
		break;
	case ACTMEM_IOC_DISCARD:
	case ACTMEM_IOC_POPULATE:
		arg->range = range_of(0, 1);
		break;
	default:
		arg->list.size = sizeof(arg->list);
		arg->list.ids = (uintptr_t)ids;
		arg->list.count = 1;
	}
}

TEST_F(driver, sizes)
{
	struct actmem_ioctl_create kept = region_of(1);
	union argument arg;
	uint64_t ids[1];
	size_t i;

	ASSERT_LE(0, create(self->device, &kept));
	for (i = 0; i < REQUESTS; i++) {
		const uint32_t size = requests[i].size, oldest = requests[i].oldest;
		const uint32_t too_small[] = { 0, 1, 4, 8, oldest - 8, oldest - 1 };
		int fd = requests[i].on_region ? kept.fd : self->device;
		size_t j;

		for (j = 0; j < sizeof(too_small) / sizeof(too_small[0]); j++) {
			make_good(requests[i].request, &arg, kept.id, ids);
			arg.size = too_small[j];
			EXPECT_EQ(-EINVAL, call(fd, requests[i].request, &arg))
				TH_LOG("request %zu, size %u", i, too_small[j]);
		}

		/* An older caller, to whom the driver writes no newer field. */
		make_good(requests[i].request, &arg, kept.id, ids);
		arg.size = oldest;
		arg.words[oldest / 8] = 7;
		EXPECT_EQ(0, call(fd, requests[i].request, &arg));
		EXPECT_EQ(7, arg.words[oldest / 8]);
		if (requests[i].request == ACTMEM_IOC_CREATE)
			close(arg.create.fd);

		/* A newer caller, who wants nothing new. */
		make_good(requests[i].request, &arg, kept.id, ids);
		arg.size = size + 64;
		EXPECT_EQ(0, call(fd, requests[i].request, &arg));
		EXPECT_EQ(size + 64, arg.size);
		if (requests[i].request == ACTMEM_IOC_CREATE)
			close(arg.create.fd);

		/* One who does want something. */
		make_good(requests[i].request, &arg, kept.id, ids);
		arg.size = size + 64;
		arg.words[size / 8 + 7] = 1;
		EXPECT_EQ(-E2BIG, call(fd, requests[i].request, &arg));

		make_good(requests[i].request, &arg, kept.id, ids);
		arg.size = 4097;
		EXPECT_EQ(-E2BIG, call(fd, requests[i].request, &arg));
		arg.size = UINT32_MAX;
		EXPECT_EQ(-E2BIG, call(fd, requests[i].request, &arg));
	}
	EXPECT_EQ(1, regions());
	close(kept.fd);
}

TEST_F(driver, pointers)
{
	struct actmem_ioctl_create kept = region_of(1);
	uint64_t ids[1];
	char *pages;
	size_t i;

	ASSERT_LE(0, create(self->device, &kept));
	pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, pages);
	ASSERT_EQ(0, munmap(pages + 4096, 4096));
	for (i = 0; i < REQUESTS; i++) {
		void *across = pages + 4096 - requests[i].size / 2;
		int fd = requests[i].on_region ? kept.fd : self->device;

		EXPECT_EQ(-EFAULT, call(fd, requests[i].request, NULL));
		EXPECT_EQ(-EFAULT, call(fd, requests[i].request, (void *)-8L));
		memcpy(across, &requests[i].size, sizeof(uint32_t));
		EXPECT_EQ(-EFAULT, call(fd, requests[i].request, across));

		/* Can be read, but not be answered to. */
		make_good(requests[i].request, (union argument *)pages, kept.id, ids);
		ASSERT_EQ(0, mprotect(pages, 4096, PROT_READ));
		EXPECT_EQ(-EFAULT, call(fd, requests[i].request, pages));
		ASSERT_EQ(0, mprotect(pages, 4096, PROT_READ | PROT_WRITE));
	}
	EXPECT_EQ(1, regions());
	close(kept.fd);
}

TEST_F(driver, unknown_requests)
{
	/* 0x07 and 0x0A were requests until version 3. */
	static const unsigned long unknown[] = {
		0, 3, ~0U, _IOWR(ACTMEM_IOC_MAGIC, 0x07, __u32),
		_IOWR(ACTMEM_IOC_MAGIC, 0x0A, __u32), _IOWR(ACTMEM_IOC_MAGIC, 0x7f, __u32),
		_IOWR(ACTMEM_IOC_MAGIC, 0xff, __u32), _IOWR(ACTMEM_IOC_MAGIC, 0x01, __u64),
		_IOR(ACTMEM_IOC_MAGIC, 0x01, __u32), _IOWR(ACTMEM_IOC_MAGIC, 0x05, __u64),
		_IOR(ACTMEM_IOC_MAGIC, 0x05, __u32), _IO(ACTMEM_IOC_MAGIC, 0x05),
		_IOWR(0xAB, 0x05, __u32),
	};
	int fd = must(create_pages(self->device, 1));
	struct actmem_ioctl_info arg;
	size_t i;

	for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		EXPECT_EQ(-ENOTTY, call(self->device, unknown[i], &arg));
		EXPECT_EQ(-ENOTTY, call(fd, unknown[i], &arg));
	}
	for (i = 0; i < REQUESTS; i++)
		if (requests[i].request != ACTMEM_IOC_INFO)
			EXPECT_EQ(-ENOTTY, call(requests[i].on_region ? self->device : fd,
						requests[i].request, &arg));
	close(fd);

	fd = open("/dev/null", O_RDWR);
	EXPECT_EQ(-ENOTTY, call(fd, ACTMEM_IOC_INFO, &arg));
	close(fd);
	fd = syscall(SYS_memfd_create, "foreign", 0);
	EXPECT_EQ(-ENOTTY, call(fd, ACTMEM_IOC_INFO, &arg));
	close(fd);
}

/* The flags are the second word of every struct. */
static const struct {
	size_t request;		/* index in requests[] */
	size_t word;
} zeros[] = {
	{ 0, 1 }, { 1, 1 }, { 2, 1 }, { 3, 1 }, { 4, 1 }, { 5, 1 },
	{ 0, offsetof(struct actmem_ioctl_query, reserved) / 4 },
	{ 2, offsetof(struct actmem_ioctl_info, surplus_reason) / 4 },
	{ 3, offsetof(struct actmem_ioctl_list, reserved) / 4 },
};

TEST_F(driver, flags_and_reserved_fields)
{
	struct actmem_ioctl_create kept = region_of(1);
	union argument arg;
	uint64_t ids[1];
	size_t i;
	int bit;

	ASSERT_LE(0, create(self->device, &kept));
	for (i = 0; i < sizeof(zeros) / sizeof(zeros[0]); i++)
		for (bit = 0; bit < 32; bit++) {
			unsigned long request = requests[zeros[i].request].request;
			bool on_region = requests[zeros[i].request].on_region;

			if (request == ACTMEM_IOC_CREATE && 1U << bit == ACTMEM_CREATE_INHERIT)
				continue;
			make_good(request, &arg, kept.id, ids);
			((uint32_t *)&arg)[zeros[i].word] = 1U << bit;
			EXPECT_EQ(-EINVAL, call(on_region ? kept.fd : self->device, request, &arg))
				TH_LOG("case %zu, bit %d", i, bit);
		}
	EXPECT_EQ(1, regions());
	close(kept.fd);
}

TEST_F(driver, lengths_and_page_sizes)
{
	struct actmem_ioctl_query query = query_arg();
	const uint64_t page_bytes[] = { 0, 1, 4096, PAGE_BYTES - 1, PAGE_BYTES + 1, 1 << 30, ~0 };
	struct actmem_ioctl_create arg;
	size_t i;

	ASSERT_EQ(0, call(self->device, ACTMEM_IOC_QUERY, &query));

	const uint64_t lengths[] = {
		0, 1, 4096, PAGE_BYTES - 1, PAGE_BYTES + 1, PAGE_BYTES + 4096,
		query.max_region_bytes + PAGE_BYTES, 1ULL << 63, ABSURD, ~0ULL,
	};

	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		arg = region_of(1);
		arg.length = lengths[i];
		EXPECT_EQ(-EINVAL, create(self->device, &arg))
			TH_LOG("length %llx", (unsigned long long)lengths[i]);
		EXPECT_EQ(ACTMEM_WHY_NONE, arg.why.reason);
		EXPECT_EQ(-1, arg.why.node);
	}
	for (i = 0; i < sizeof(page_bytes) / sizeof(page_bytes[0]); i++) {
		arg = region_of(1);
		arg.page_bytes = page_bytes[i];
		EXPECT_EQ(-EINVAL, create(self->device, &arg));
	}

	/* Allowed, but more than any machine that runs this has. */
	arg = region_of(1);
	arg.length = query.max_region_bytes;
	EXPECT_EQ(-ENOMEM, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NODE_FULL, arg.why.reason);
	EXPECT_LE(0, arg.why.node);
	EXPECT_LT(arg.why.available, arg.why.wanted);
	EXPECT_LE(arg.why.wanted, arg.length);
	EXPECT_EQ(-1, arg.fd);
	EXPECT_EQ(0, arg.id);
}

TEST_F(driver, policies_and_masks)
{
	static const uint32_t unknown[] = { 3, 4, 0x80000000, UINT32_MAX };
	struct actmem_ioctl_create arg;
	size_t i;

	for (i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		arg = region_of(1);
		arg.policy = unknown[i];
		arg.nodes[0] = 1;
		EXPECT_EQ(-EINVAL, create(self->device, &arg));
	}
	arg = region_of(1);
	arg.policy = ACTMEM_POLICY_BIND;
	EXPECT_EQ(-EINVAL, create(self->device, &arg));
	EXPECT_EQ(ACTMEM_WHY_NONE, arg.why.reason);
	arg = region_of(1);
	arg.nodes[0] = 3;
	EXPECT_EQ(-EINVAL, create(self->device, &arg));
	arg.nodes[0] = 1;
	arg.nodes[ACTMEM_NODE_WORDS - 1] = 1;
	EXPECT_EQ(-EINVAL, create(self->device, &arg));

	for (i = 0; i < 3; i++) {
		arg = region_of(1);
		arg.policy = i;
		arg.nodes[ACTMEM_NODE_WORDS - 1] = 1ULL << 63;
		EXPECT_EQ(-ENODEV, create(self->device, &arg));
		EXPECT_EQ(ACTMEM_WHY_NO_MEMORY_NODE, arg.why.reason);
		EXPECT_EQ(ACTMEM_NODE_MAX - 1, arg.why.node);
	}
	arg = region_of(1);
	arg.policy = ACTMEM_POLICY_INTERLEAVE;
	memset(arg.nodes, 0xff, sizeof(arg.nodes));
	EXPECT_EQ(-ENODEV, create(self->device, &arg));
}

TEST_F(driver, names)
{
	struct actmem_ioctl_create arg;
	struct actmem_ioctl_info now;
	int byte;

	for (byte = 1; byte < 256; byte++) {
		bool good = byte >= ' ' && byte < 127 && byte != '/';

		arg = region_of(1);
		arg.name[0] = 'a';
		arg.name[1] = byte;
		ASSERT_EQ(good ? 0 : -EINVAL, call(self->device, ACTMEM_IOC_CREATE, &arg))
			TH_LOG("byte %d", byte);
		if (!good)
			continue;
		ASSERT_EQ(0, info(arg.fd, 0, &now));
		EXPECT_EQ(0, strcmp(arg.name, now.name));
		close(arg.fd);
	}
	arg = region_of(1);
	memset(arg.name, 'x', sizeof(arg.name));
	EXPECT_EQ(-EINVAL, create(self->device, &arg));
	arg.name[sizeof(arg.name) - 1] = 0;
	ASSERT_LE(0, create(self->device, &arg));
	ASSERT_EQ(0, info(arg.fd, 0, &now));
	EXPECT_EQ(0, memcmp(arg.name, now.name, sizeof(now.name)));
	close(arg.fd);

	/* Nothing of what follows the name comes back. */
	arg = region_of(1);
	memset(arg.name, 'x', sizeof(arg.name));
	arg.name[3] = 0;
	ASSERT_LE(0, create(self->device, &arg));
	ASSERT_EQ(0, info(arg.fd, 0, &now));
	EXPECT_EQ(0, strcmp(now.name, "xxx"));
	EXPECT_EQ(0, now.name[10]);
	close(arg.fd);
}

TEST_F(driver, the_descriptor)
{
	struct actmem_ioctl_create arg = region_of(2), other = region_of(1);
	char path[64], target[256] = "";

	snprintf(arg.name, sizeof(arg.name), "layer 0, Q");
	ASSERT_LE(0, create(self->device, &arg));
	ASSERT_LE(0, create(self->device, &other));
	EXPECT_EQ(FD_CLOEXEC, fcntl(arg.fd, F_GETFD));
	EXPECT_EQ(O_RDWR, fcntl(arg.fd, F_GETFL) & O_ACCMODE);
	EXPECT_LT(0, arg.id);
	EXPECT_LT(arg.id, other.id);
	EXPECT_EQ(ACTMEM_WHY_NONE, arg.why.reason);
	EXPECT_EQ(-1, arg.why.node);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", arg.fd);
	EXPECT_LT(0, readlink(path, target, sizeof(target) - 1));
	EXPECT_EQ(0, strcmp(target, "/actmem:layer 0, Q (deleted)"))
		TH_LOG("%s", target);
	close(arg.fd);
	close(other.fd);
}

TEST_F(driver, no_descriptor_left)
{
	struct rlimit before, limit;

	ASSERT_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
	limit = before;
	limit.rlim_cur = self->device + 1;
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &limit));
	EXPECT_EQ(-EMFILE, create_pages(self->device, 1));
	ASSERT_EQ(0, setrlimit(RLIMIT_NOFILE, &before));
	EXPECT_EQ(0, regions());
}

static int without_files(int device)
{
	CHECK(create_pages(device, 1) == -ENFILE);
	return 0;
}

static int set_file_max(long number)
{
	FILE *file = fopen("/proc/sys/fs/file-max", "we");
	int err = !file || fprintf(file, "%ld\n", number) < 0;

	return (file && fclose(file)) || err;
}

TEST_F(driver, no_file_left)
{
	long before = number_in("/proc/sys/fs/file-max");

	ASSERT_LT(0, before);
	ASSERT_EQ(0, set_file_max(0));
	EXPECT_EQ(0, as_user(USER, without_files, self->device));
	ASSERT_EQ(0, set_file_max(before));
	EXPECT_EQ(0, regions());
	EXPECT_EQ(0, node_sum("region_bytes"));
}

static int without_permission(int device)
{
	CHECK(open("/dev/actmem", O_RDWR) < 0 && errno == EACCES);
	CHECK(open("/dev/actmem", O_RDONLY) < 0 && errno == EACCES);
	/* A process that is given the device may use it. */
	CHECK(create_pages(device, 1) >= 0);
	return 0;
}

TEST_F(driver, a_plain_user_is_kept_out)
{
	struct stat status;

	ASSERT_EQ(0, stat("/dev/actmem", &status));
	EXPECT_EQ(0, status.st_mode & 0006);
	EXPECT_EQ(0, as_user(USER, without_permission, self->device));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
