/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Actors without a model. The second thread of each worker uses regions that the worker sends
 * it, in ways that must not change their bytes. All these threads also populate, discard and
 * write one region at once, the arena: each 64-bit word there must be zero or its own position.
 * The limiter changes limits, pools and cgroups.
 */
#ifndef FUZZ_CHAOS_H
#define FUZZ_CHAOS_H

#include <pthread.h>

#include "fuzz_worker.h"
#include "pool_test.h"

#define ARENA_PAGES	8
#define ARENA_TAG	0xa7e4000000000000ULL
#define GUESTS		3

/* A descriptor of the second thread. The first one is the arena's. */
static int guests[GUESTS];

static int receive(void)
{
	struct letter letter;
	int fd = -1;

	if (recvmsg(channel[1], letter_begin(&letter), MSG_DONTWAIT | MSG_CMSG_CLOEXEC) == 1)
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&letter.message)), sizeof(int));
	return fd;
}

/* Reads, and in the arena also writes, one word of each page of a mapping. */
static void visit(char *memory, uint32_t pages, bool is_arena)
{
	size_t place = choose(SMALLS) * SMALL + choose(WORDS) * sizeof(uint64_t);
	bool writes = is_arena && choose(2);
	uint64_t wanted, found;
	uint32_t page;

	for (page = 0; page < pages; page++, place += PAGE_BYTES) {
		wanted = ARENA_TAG | place;
		/* A limit may refuse the page. */
		if (touch_word(memory + place, writes ? wanted : 0, &found))
			continue;
		ensure(!is_arena || !found || found == wanted,
		       "the arena has %016llx at %016llx", (unsigned long long)found,
		       (unsigned long long)wanted);
	}
}

/* Any request with wild values; on a region of the worker, not those that the model counts. */
static void wild_request(int fd, bool is_arena)
{
	static const unsigned int sizes[] = {
		0, 512, sizeof(struct actmem_ioctl_range), sizeof(struct actmem_ioctl_export),
		sizeof(struct actmem_ioctl_info), sizeof(struct actmem_ioctl_create),
	};
	union {
		uint32_t size;
		uint64_t words[64];
		struct actmem_ioctl_export export;
	} arg = {};
	uint32_t number = 1 + choose(9), i;

	if ((number == 6 || number == 8) && !is_arena)
		return;
	arg.size = sizes[choose(6)];
	for (i = 1; i < choose(8); i++)
		arg.words[i] = choose(3) ? choose(8) * PAGE_BYTES : mix(random_state);
	if (!call(fd, _IOWR(ACTMEM_IOC_MAGIC, number, __u32), &arg) && number == 8)
		close(arg.export.fd);
}

static void use_guest(int fd, bool is_arena)
{
	static char bytes[SMALL];
	uint32_t pages = lseek(fd, 0, SEEK_END) / PAGE_BYTES, first = choose(pages);
	uint32_t number = 1 + choose(pages - first);
	size_t length = number * PAGE_BYTES;
	struct actmem_ioctl_info now;
	int ends[2];
	char *memory;

	switch (choose(8)) {
	case 0:
		populate(fd, first, number);
		return;
	case 1:
		if (is_arena)
			discard(fd, first, number);
		return;
	case 2:
		wild_request(choose(4) ? fd : fuzz->device, is_arena);
		return;
	case 3:
		expect(SMALL, pread(fd, bytes, SMALL, choose(pages * SMALLS) * (off_t)SMALL));
		expect(0, info(fd, 0, &now));
		return;
	}
	memory = mapped(mmap(NULL, pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	visit(memory, pages, is_arena);
	switch (choose(6)) {
	case 0:
		if (!hold(memory + first * PAGE_BYTES, ends))
			usleep(choose(3000));
		let_go(ends);
		break;
	case 1:
		mprotect(memory, length, choose(2) ? PROT_READ : PROT_NONE);
		break;
	case 2:
		madvise(memory, length, choose(2) ? MADV_DONTNEED : MADV_NOHUGEPAGE);
		visit(memory, pages, is_arena);
		break;
	case 3:
		/* Once unmapped, an address may be the other thread's. */
		munmap(memory + first * PAGE_BYTES, length);
		munmap(memory, first * PAGE_BYTES);
		munmap(memory + first * PAGE_BYTES + length, (pages - first - number) * PAGE_BYTES);
		return;
	}
	munmap(memory, pages * PAGE_BYTES);
}

/* The second thread of a worker. */
static void *run_chaos(void *unused)
{
	int i, fd;

	actor = &self->chaos;
	seed_random(WORKERS + self->number, self->generation);
	guests[0] = fuzz->arena;
	for (i = 1; i < GUESTS; i++)
		guests[i] = -1;
	for (;;) {
		step("chaos");
		i = 1 + choose(GUESTS - 1);
		fd = receive();
		if (fd >= 0) {
			if (guests[i] >= 0)
				close(guests[i]);
			guests[i] = fd;
			populate(fd, 0, lseek(fd, 0, SEEK_END) / PAGE_BYTES);
		}
		i = choose(GUESTS);
		if (guests[i] >= 0)
			use_guest(guests[i], !i);
		usleep(choose(8000));
	}
	return NULL;
}

/* Fills a node, which no CPU is near, until it has no page left. */
static void fill_node(int node)
{
	size_t pages = node_memory(node, "MemTotal") / PAGE_BYTES * 9 / 10;
	struct actmem_ioctl_create arg = region_on(pages, ACTMEM_POLICY_BIND, 1ULL << node);
	int fd = create(fuzz->device, &arg);

	ensure(fd >= 0 || fd == -ENOMEM || fd == -EDQUOT, "POPULATE of a node returned %d", fd);
	if (fd >= 0)
		close(fd);
}

static void change_cgroups(void)
{
	char text[16];
	int i;

	mkdir(CGROUP_ROOT "/two", 0755);
	for (i = 0; i < WORKERS; i++) {
		snprintf(text, sizeof(text), "%d", fuzz->workers[i].pid);
		put(choose(2) ? CGROUP_ROOT "/two/cgroup.procs" : CGROUP_ROOT "/cgroup.procs", text);
	}
	rmdir(CGROUP_ROOT "/two");
}

__attribute__((noreturn))
static void run_limiter(void)
{
	char text[64];
	int node;

	for (;;) {
		step("limiter");
		node = choose(fuzz->node_count);
		switch (choose(10)) {
		case 0:
			expect(0, set_limit(SYSFS "/user_limit_bytes", choose(64)));
			usleep(choose(30000));
			expect(0, set_limit(SYSFS "/user_limit_bytes", -1));
			break;
		case 1:
			expect(0, set_node_limit(node, choose(64)));
			usleep(choose(30000));
			expect(0, set_node_limit(node, -1));
			break;
		case 2:
		case 3:
			expect(0, set_pool(node, choose(24)));
			break;
		case 4:
			snprintf(text, sizeof(text), "size=%zu", (1 + choose(96)) * PAGE_BYTES);
			expect(0, remount_names(AT, text));
			usleep(choose(20000));
			expect(0, remount_names(AT, "size=512M"));
			break;
		case 5:
			put(choose(2) ? "/proc/sys/vm/compact_memory" : "/proc/sys/vm/drop_caches", "1");
			break;
		case 6:
			put("/proc/sys/kernel/numa_balancing", choose(2) ? "1" : "0");
			break;
		case 7:
			if (fuzz->has_cgroup)
				change_cgroups();
			break;
		case 8:
			if (!choose(64))
				fill_node(fuzz->node_count - 1);
		}
		usleep(choose(50000));
	}
}

#endif
