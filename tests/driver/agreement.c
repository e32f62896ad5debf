// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What the driver tells in two ways, to the byte and at each reading: the list of
 * regions with what is told of each, and the descriptors' fdinfo. One user's regions
 * change only when this program has them change, while processes of other users
 * make, map, touch, populate, discard and pin regions and are killed. Without these,
 * the totals in sysfs are the same.
 */
#include <sys/uio.h>

#include "driver_test.h"

#define NODES		3
#define REGIONS		4
#define LIVING		3
#define READINGS	150
#define LOADERS		3
#define THIRD_USER	1002
#define PAGES		4

/* What one way of asking tells of the user. */
struct told {
	long regions;
	long bytes;
	long lingering_bytes;
	long mapped;
	long pinned;
	long demand_faults;
	long node_bytes[NODES];
};

/* Of the process whose regions are asked about. */
static struct holder {
	pid_t pid;
	uint64_t ids[REGIONS];
	int fds[LIVING];
	bool stop;
} *holder;

static int pin(int end, char *memory)
{
	struct iovec vector = { memory, 4096 };

	return vmsplice(end, &vector, 1, 0) == 4096 ? 0 : -errno;
}

/* The device, and the end of the pipe that pins pages. */
struct making {
	int device;
	int end;
};

/* Some with all their pages, some not, some mapped, one pinned, one that lingers. */
static int make_regions(void *context)
{
	const int device = ((struct making *)context)->device;
	const int end = ((struct making *)context)->end;
	struct actmem_ioctl_create arg[REGIONS] = {
		region_on(3, ACTMEM_POLICY_BIND, 1),
		region_on(6, ACTMEM_POLICY_INTERLEAVE, 3),
		region_on(4, ACTMEM_POLICY_INTERLEAVE, 3),
		region_on(2, ACTMEM_POLICY_BIND, 2),
	};
	char *memory;
	int i;

	CHECK(!become(USER));
	arg[1].flags = LAZY;
	for (i = 0; i < REGIONS; i++) {
		CHECK(create(device, &arg[i]) >= 0);
		holder->ids[i] = arg[i].id;
		if (i < LIVING)
			holder->fds[i] = arg[i].fd;
	}
	CHECK(map_and_touch(arg[0].fd, 2) != MAP_FAILED);
	CHECK(map_and_touch(arg[1].fd, 3) != MAP_FAILED);
	CHECK(!populate(arg[1].fd, 4, 1));
	memory = map_and_touch(arg[2].fd, 4);
	CHECK(memory != MAP_FAILED && !pin(end, memory));
	munmap(memory, 4 * PAGE_BYTES);
	memory = map_and_touch(arg[3].fd, 2);
	CHECK(memory != MAP_FAILED && !pin(end, memory));
	munmap(memory, 2 * PAGE_BYTES);
	close(arg[3].fd);
	return 0;
}

static void add_region(struct told *told, const struct actmem_ioctl_info *now,
		       const uint64_t *nodes)
{
	int node;

	told->regions++;
	told->bytes += now->allocated_bytes;
	told->mapped += now->mapped_bytes;
	told->demand_faults += now->demand_faults;
	for (node = 0; node < NODES; node++)
		told->node_bytes[node] += nodes[node];
	if (now->state & ACTMEM_INFO_LINGERING)
		told->lingering_bytes += now->allocated_bytes;
	else
		told->pinned += now->pinned_bytes;
}

/* Of the user, as `actmem list` would have it. */
static int ask_list(int device, struct told *told)
{
	uint64_t ids[64], nodes[NODES];
	struct actmem_ioctl_info now;
	int count, i, err;

	memset(told, 0, sizeof(*told));
	count = list(device, ids, 64);
	CHECK(count >= 0 && count < 64);
	for (i = 0; i < count; i++) {
		now = (struct actmem_ioctl_info){
			.size = sizeof(now),
			.id = ids[i],
			.node_bytes = (uintptr_t)nodes,
			.node_count = NODES,
		};
		memset(nodes, 0, sizeof(nodes));
		err = call(device, ACTMEM_IOC_INFO, &now);
		CHECK(!err || err == -ENOENT);
		CHECK(err || nodes[0] + nodes[1] + nodes[2] == now.allocated_bytes);
		CHECK(err || (now.mapped_bytes <= now.length && now.pinned_bytes <= now.length));
		if (!err && now.uid == USER)
			add_region(told, &now, nodes);
	}
	return 0;
}

static int ask_fdinfo(struct told *told)
{
	char path[64], line[256];
	long number;
	FILE *file;
	int i;

	memset(told, 0, sizeof(*told));
	for (i = 0; i < LIVING; i++) {
		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%d", holder->pid, holder->fds[i]);
		file = fopen(path, "re");
		CHECK(file);
		while (fgets(line, sizeof(line), file)) {
			if (sscanf(line, "actmem-id:\t%ld", &number) == 1) {
				CHECK(number == (long)holder->ids[i]);
				told->regions++;
			} else if (sscanf(line, "actmem-allocated:\t%ld", &number) == 1) {
				told->bytes += number;
			}
		}
		fclose(file);
	}
	return 0;
}

/* The figures expected of the user, but for those that a way of asking does not tell. */
static int compare(int device, const struct told *expected)
{
	struct told listed, fdinfo;
	int line;

	line = ask_list(device, &listed);
	if (!line)
		line = ask_fdinfo(&fdinfo);
	if (line)
		return line;
	CHECK(!memcmp(&listed, expected, sizeof(listed)));
	CHECK(fdinfo.regions == LIVING && fdinfo.bytes == listed.bytes - listed.lingering_bytes);
	return 0;
}

/* One life of a region, in one of several ways. */
static int live(int device, unsigned int way)
{
	struct actmem_ioctl_create arg = region_of(PAGES);
	char *memory;
	int ends[2];

	arg.flags = way & 1 ? LAZY : 0;
	CHECK(create(device, &arg) >= 0);
	memory = mapped(map(arg.fd, PAGES));
	memory[(way % PAGES) * PAGE_BYTES] = 1;
	if (way & 2)
		CHECK(!populate(arg.fd, 0, PAGES));
	if (way & 4)
		CHECK(!hold(memory + PAGE_BYTES, ends));
	if (way & 8)
		CHECK(discard(arg.fd, 0, PAGES) == (way & 4 ? -EBUSY : 0));
	if (way & 16)
		raise(SIGKILL);
	close(arg.fd);
	munmap(memory, PAGES * PAGE_BYTES);
	if (way & 4)
		let_go(ends);
	return 0;
}

/* Of the loader that is started next, for its first region. */
static unsigned int first_way;

static int load(int device)
{
	unsigned int way = first_way;
	pid_t child;

	for (; !__atomic_load_n(&holder->stop, __ATOMIC_ACQUIRE); way += 7) {
		if (!(way & 16)) {
			CHECK(!live(device, way));
			continue;
		}
		child = fork();
		if (!child)
			_exit(live(device, way));
		CHECK(wait_for(child) == -1);
	}
	return 0;
}

FIXTURE(agreement)
{
	int device;
	int pins[2];
	pid_t loaders[LOADERS];
};

FIXTURE_SETUP(agreement)
{
	struct making making;

	if (!node_memory(1, "MemTotal"))
		SKIP(return, "this machine has one memory node only");
	self->device = open_device();
	ASSERT_EQ(0, regions());
	ASSERT_EQ(0, set_memlock(1000 * PAGE_BYTES));
	ASSERT_EQ(0, pipe(self->pins));
	holder = mmap(NULL, sizeof(*holder), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, holder);
	making = (struct making){ self->device, self->pins[1] };
	holder->pid = hold_in_child(make_regions, &making);
	ASSERT_LT(0, holder->pid);
}

FIXTURE_TEARDOWN(agreement)
{
	EXPECT_EQ(0, kill_child(holder->pid));
	EXPECT_EQ(2, regions());
	EXPECT_EQ(2 * (long)PAGE_BYTES, node_sum("lingering_bytes"));
	close(self->pins[0]);
	close(self->pins[1]);
	EXPECT_EQ(0, regions());
	close(self->device);
}

static void start_load(pid_t loaders[LOADERS], int device)
{
	static const uid_t users[LOADERS] = { OTHER_USER, THIRD_USER, OTHER_USER };
	int i;

	for (i = 0; i < LOADERS; i++) {
		first_way = i * 11;
		loaders[i] = start_child(users[i], load, device);
	}
}

static int open_held(int i)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", holder->pid, holder->fds[i]);
	return open(path, O_RDWR | O_CLOEXEC);
}

TEST_F(agreement, at_each_reading)
{
	/* 3 of the first, 4 of the second, 4 of the third, and the one that is pinned. */
	struct told expected = {
		.regions = REGIONS,
		.bytes = 12 * PAGE_BYTES,
		.lingering_bytes = PAGE_BYTES,
		.mapped = 5 * PAGE_BYTES,
		.pinned = PAGE_BYTES,
		.demand_faults = 3,
		.node_bytes = { 8 * PAGE_BYTES, 4 * PAGE_BYTES, 0 },
	};
	int reading, i, lazy = must(open_held(1));

	start_load(self->loaders, self->device);
	for (reading = 0; reading < READINGS; reading++) {
		ASSERT_EQ(0, compare(self->device, &expected))
			TH_LOG("reading %d", reading);
		/* The owner is the same, whoever populates and discards. */
		if (reading & 1) {
			ASSERT_EQ(0, discard(lazy, 5, 1));
			expected.bytes -= PAGE_BYTES;
			expected.node_bytes[1] -= PAGE_BYTES;
		} else {
			ASSERT_EQ(0, populate(lazy, 5, 1));
			expected.bytes += PAGE_BYTES;
			expected.node_bytes[1] += PAGE_BYTES;
		}
	}
	__atomic_store_n(&holder->stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < LOADERS; i++)
		EXPECT_EQ(0, wait_for(self->loaders[i]));
	close(lazy);

	/* Without load, the machine's totals are those of the one user. */
	EXPECT_EQ(0, compare(self->device, &expected));
	EXPECT_EQ(REGIONS, regions());
	EXPECT_EQ(1, lingering_regions());
	EXPECT_EQ(expected.bytes, node_sum("region_bytes"));
	EXPECT_EQ(expected.lingering_bytes, node_sum("lingering_bytes"));
	for (i = 0; i < NODES; i++)
		EXPECT_EQ(expected.node_bytes[i], number_in(SYSFS "/node%d/region_bytes", i));
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
