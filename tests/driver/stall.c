// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A tenant whose cgroup gets little CPU time does not delay the page faults of another
 * tenant, nor its mmap(), more than faults on anonymous huge pages would.
 */
#include <time.h>

#include "cgroup_test.h"

#include <pthread.h>

#define PAGES		4
#define ATTACKERS	48
/* Processes that keep every processor busy, so that attackers seldom run. */
#define BUSY		4
#define SECONDS		10
/*
 * A measurement is not precise: the machine is emulated, and shares its processor. A lock
 * that attackers hold delays the victim for ten seconds and more.
 */
#define ALLOWED_RATIO	3
#define ALLOWED_MS	1000

/* Pages that a process faults in and gives back in turn. @fd is -1 for anonymous memory. */
struct memory {
	int fd;
	char *at;
};

/* Attackers that have started; shared by all processes. */
static int *ready;

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static struct memory make_memory(int device, bool anonymous)
{
	size_t length = PAGES * PAGE_BYTES;
	struct memory memory = { .fd = -1 };
	uintptr_t at;

	if (!anonymous) {
		memory.fd = must(create_lazy(device, PAGES));
		memory.at = mapped(map(memory.fd, PAGES));
		return memory;
	}
	at = (uintptr_t)mapped(mmap(NULL, length + PAGE_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	memory.at = (char *)((at + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES);
	must(madvise(memory.at, length, MADV_HUGEPAGE) ? -errno : 0);
	return memory;
}

/* Faults each page in, and gives all of them back. Returns the time of the longest fault. */
static long use_memory(const struct memory *memory)
{
	long longest = 0;
	int i;

	for (i = 0; i < PAGES; i++) {
		long took = now_us();

		*(volatile char *)(memory->at + i * PAGE_BYTES) = 1;
		took = now_us() - took;
		longest = took > longest ? took : longest;
	}
	if (memory->fd < 0)
		must(madvise(memory->at, PAGES * PAGE_BYTES, MADV_DONTNEED) ? -errno : 0);
	else
		must(discard_patiently(memory->fd, 0, PAGES));
	return longest;
}

static pid_t start_attacker(int device, bool anonymous)
{
	pid_t child = fork();
	struct memory memory;

	if (child)
		return child;
	memory = make_memory(device, anonymous);
	must(enter_cgroup());
	__atomic_add_fetch(ready, 1, __ATOMIC_RELAXED);
	for (;;)
		use_memory(&memory);
}

static pid_t start_busy(void)
{
	pid_t child = fork();

	if (!child)
		for (;;)
			__asm__ volatile("" ::: "memory");
	return child;
}

struct mapper {
	bool stop;
	long longest;
};

static void *map_and_unmap(void *context)
{
	struct mapper *mapper = context;

	while (!__atomic_load_n(&mapper->stop, __ATOMIC_RELAXED)) {
		long took = now_us();

		munmap(mapped(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
		       4096);
		took = now_us() - took;
		mapper->longest = took > mapper->longest ? took : mapper->longest;
		usleep(1000);
	}
	return NULL;
}

/* Returns the longest fault, and mmap(), of a victim in milliseconds. */
static void measure(int device, bool anonymous, long *fault_ms, long *mmap_ms)
{
	struct memory memory = make_memory(device, anonymous);
	long end, longest = 0;
	struct mapper mapper = { .stop = false };
	pid_t others[ATTACKERS + BUSY];
	pthread_t thread;
	int i;

	*ready = 0;
	for (i = 0; i < ATTACKERS; i++)
		others[i] = must(start_attacker(device, anonymous));
	while (__atomic_load_n(ready, __ATOMIC_RELAXED) < ATTACKERS)
		usleep(1000);
	for (; i < ATTACKERS + BUSY; i++)
		others[i] = must(start_busy());
	end = now_us() + SECONDS * 1000000L;
	must(-pthread_create(&thread, NULL, map_and_unmap, &mapper));
	while (now_us() < end) {
		long took = use_memory(&memory);

		longest = took > longest ? took : longest;
	}
	__atomic_store_n(&mapper.stop, true, __ATOMIC_RELAXED);
	must(-pthread_join(thread, NULL));
	for (i = 0; i < ATTACKERS + BUSY; i++)
		kill(others[i], SIGKILL);
	for (i = 0; i < ATTACKERS + BUSY; i++)
		wait_for(others[i]);
	if (memory.fd >= 0)
		close(memory.fd);
	munmap(memory.at, PAGES * PAGE_BYTES);
	*fault_ms = longest / 1000;
	*mmap_ms = mapper.longest / 1000;
}

TEST_F(driver, another_tenant_does_not_delay_faults)
{
	long fault_ms[2], mmap_ms[2];
	int i;

	ready = mapped(mmap(NULL, sizeof(*ready), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	ASSERT_EQ(0, make_cgroup("+cpu"));
	ASSERT_EQ(0, put(CGROUP "/cpu.weight", "1"));
	for (i = 0; i < 2; i++)
		measure(self->device, i, &fault_ms[i], &mmap_ms[i]);
	printf("# longest fault %ld ms, longest mmap %ld ms; with anonymous pages %ld and %ld ms\n",
	       fault_ms[0], mmap_ms[0], fault_ms[1], mmap_ms[1]);
	EXPECT_LE(fault_ms[0], ALLOWED_RATIO * fault_ms[1] + ALLOWED_MS);
	EXPECT_LE(mmap_ms[0], ALLOWED_RATIO * mmap_ms[1] + ALLOWED_MS);
	EXPECT_EQ(0, remove_cgroup());
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
