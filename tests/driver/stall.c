// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * A tenant whose cgroup gets little CPU time does not delay the page faults of another
 * tenant, nor its mmap(), more than faults on anonymous huge pages would.
 */
#include <sys/utsname.h>
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
#define ALLOWED_MS	5000
/* If faults hold mmap_lock while they zero pages, mmap() sleeps for half of the time. */
#define ALLOWED_SLEEP_MS	(SECONDS * 1000 / 10)

/* Pages that a process faults in and gives back in turn. @fd is -1 for anonymous memory. */
struct memory {
	int fd;
	char *at;
};

/* Attackers that have started; shared by all processes. */
static int *ready;

/* The delays of a thread's calls, in microseconds. */
struct delays {
	long longest;
	/*
	 * The time in all calls in which the thread waited for others: it neither ran nor was ready
	 * to run. Can be negative, because the kernel counts running time in ticks.
	 */
	long asleep;
};

/* The time at which a call began, and the thread's time on and in line for a processor. */
struct moment {
	long now;
	long awake;
};

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Returns the file of the calling thread, or -1 if the kernel does not count this. */
static int open_schedule(void)
{
	return open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
}

static long awake_us(int schedule)
{
	long long ran, waited;
	char text[64] = "";

	if (schedule < 0)
		return 0;
	must(pread(schedule, text, sizeof(text) - 1, 0) > 0 ? 0 : -EIO);
	must(sscanf(text, "%lld %lld", &ran, &waited) == 2 ? 0 : -EIO);
	return (ran + waited) / 1000;
}

static struct moment begin(int schedule)
{
	long now = now_us();

	return (struct moment){ now, awake_us(schedule) };
}

static void end(int schedule, struct moment began, struct delays *delays)
{
	long took = now_us() - began.now;

	delays->longest = took > delays->longest ? took : delays->longest;
	delays->asleep += took - (awake_us(schedule) - began.awake);
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

/* Faults each page in, and gives all of them back. */
static void use_memory(const struct memory *memory, int schedule, struct delays *delays)
{
	int i;

	for (i = 0; i < PAGES; i++) {
		struct moment began = begin(schedule);

		*(volatile char *)(memory->at + i * PAGE_BYTES) = 1;
		end(schedule, began, delays);
	}
	if (memory->fd < 0)
		must(madvise(memory->at, PAGES * PAGE_BYTES, MADV_DONTNEED) ? -errno : 0);
	else
		must(discard_patiently(memory->fd, 0, PAGES));
}

static pid_t start_attacker(int device, bool anonymous)
{
	struct delays delays = {};
	pid_t child = fork();
	struct memory memory;

	if (child)
		return child;
	memory = make_memory(device, anonymous);
	must(enter_cgroup());
	__atomic_add_fetch(ready, 1, __ATOMIC_RELAXED);
	for (;;)
		use_memory(&memory, -1, &delays);
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
	struct delays delays;
};

static void *map_and_unmap(void *context)
{
	struct mapper *mapper = context;
	int schedule = open_schedule();

	while (!__atomic_load_n(&mapper->stop, __ATOMIC_RELAXED)) {
		struct moment began = begin(schedule);

		munmap(mapped(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
		       4096);
		end(schedule, began, &mapper->delays);
		usleep(1000);
	}
	close(schedule);
	return NULL;
}

/*
 * Linux 6.4 added a lock for each mapping. Older kernels handle faults under mmap_lock, so the
 * faults and the mmap() calls of one process wait for each other, whatever other tenants do.
 */
static bool kernel_has_mapping_locks(void)
{
	unsigned int major, minor;
	struct utsname kernel;

	must(uname(&kernel) ? -errno : 0);
	must(sscanf(kernel.release, "%u.%u", &major, &minor) == 2 ? 0 : -EINVAL);
	return major > 6 || (major == 6 && minor >= 4);
}

/*
 * Measures the faults of a victim and, if the kernel has a lock for each mapping, the mmap() calls
 * of a second thread of the victim.
 */
static void measure(int device, bool anonymous, struct delays *faults, struct delays *mappings)
{
	struct memory memory = make_memory(device, anonymous);
	struct mapper mapper = { .stop = false };
	pid_t others[ATTACKERS + BUSY];
	bool has_mapper = kernel_has_mapping_locks();
	int i, schedule = open_schedule();
	pthread_t thread;
	long until;

	*ready = 0;
	for (i = 0; i < ATTACKERS; i++)
		others[i] = must(start_attacker(device, anonymous));
	while (__atomic_load_n(ready, __ATOMIC_RELAXED) < ATTACKERS)
		usleep(1000);
	for (; i < ATTACKERS + BUSY; i++)
		others[i] = must(start_busy());
	until = now_us() + SECONDS * 1000000L;
	if (has_mapper)
		must(-pthread_create(&thread, NULL, map_and_unmap, &mapper));
	while (now_us() < until)
		use_memory(&memory, schedule, faults);
	__atomic_store_n(&mapper.stop, true, __ATOMIC_RELAXED);
	if (has_mapper)
		must(-pthread_join(thread, NULL));
	for (i = 0; i < ATTACKERS + BUSY; i++)
		kill(others[i], SIGKILL);
	for (i = 0; i < ATTACKERS + BUSY; i++)
		wait_for(others[i]);
	if (memory.fd >= 0)
		close(memory.fd);
	munmap(memory.at, PAGES * PAGE_BYTES);
	close(schedule);
	*mappings = mapper.delays;
}

static void print_delays(const char *of, const struct delays delays[2])
{
	printf("# longest %s %.1f ms, all asleep %.1f ms; with anonymous pages %.1f and %.1f ms\n", of,
	       delays[0].longest / 1e3, delays[0].asleep / 1e3, delays[1].longest / 1e3,
	       delays[1].asleep / 1e3);
}

static bool is_allowed(const struct delays delays[2])
{
	if (delays[0].longest > ALLOWED_RATIO * delays[1].longest + ALLOWED_MS * 1000)
		return false;
	return access("/proc/self/schedstat", R_OK) ||
	       delays[0].asleep <= ALLOWED_RATIO * delays[1].asleep + ALLOWED_SLEEP_MS * 1000;
}

TEST_F(driver, another_tenant_does_not_delay_faults)
{
	struct delays faults[2] = {}, mappings[2] = {};
	int i;

	ready = mapped(mmap(NULL, sizeof(*ready), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	ASSERT_EQ(0, make_cgroup("+cpu"));
	ASSERT_EQ(0, put(CGROUP "/cpu.weight", "1"));
	for (i = 0; i < 2; i++)
		measure(self->device, i, &faults[i], &mappings[i]);
	print_delays("fault", faults);
	print_delays("mmap", mappings);
	EXPECT_TRUE(is_allowed(faults));
	EXPECT_TRUE(is_allowed(mappings));
	EXPECT_EQ(0, remove_cgroup());
}

TEST_NOTHING_IS_LEFT
TEST_HARNESS_MAIN
