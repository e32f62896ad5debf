// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Checks the driver's contract with random operations. Workers, which are different users,
 * compare every byte of their regions with a model, while other threads disturb them and this
 * supervisor kills them at any point. In the end, every counter of the driver must be 0.
 *
 *	fuzz [--seed N] [--seconds N] [--operations N]
 *
 * A seed gives each worker the same operations, but not the same interleaving of processes.
 *
 * Read fuzz_model.h, fuzz_move.h, fuzz_region.h, fuzz_worker.h and fuzz_chaos.h, in this order.
 */
#include <sys/random.h>

#include "fuzz_chaos.h"

#define EMPTY_FILE	AT "/empty"
#define DISK		"/dev/nvme0n1"
/*
 * A thread of a worker hangs if it makes no progress for so long, although the others do. A
 * single operation of the limiter may take long on a busy host, where all others are slow, too.
 */
#define HANG_SECONDS	20
#define HANG_OPERATIONS	20000
#define HANG_SECONDS_ALL 300
#define REPORT_SECONDS	10

static const char *const events[] = {
	"DISCARD busy", "POPULATE refused", "touch refused", "lingered", "I/O cancelled",
	"named regions recovered", "processes killed",
};

static const struct {
	uid_t user;
	long memlock_pages;
} owners[WORKERS] = { { 0, -1 }, { USER, 400 }, { OTHER_USER, 400 }, { OTHER_USER, 24 } };

static unsigned long seconds = 60, operations_wanted = ULONG_MAX;
static pid_t limiter;

static unsigned long now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static void parse(int argc, char **argv)
{
	static const char *const options[] = { "--seed", "--seconds", "--operations" };
	unsigned long *const values[] = { &fuzz->seed, &seconds, &operations_wanted };
	char *end = NULL;
	int i, j;

	ensure(getrandom(&fuzz->seed, 4, 0) == 4, "getrandom: errno %d", errno);
	for (i = 1; i < argc; i += 2) {
		for (j = 0; j < 3 && strcmp(argv[i], options[j]); j++)
			;
		if (j < 3 && argv[i + 1])
			*values[j] = strtoul(argv[i + 1], &end, 0);
		if (j == 3 || !argv[i + 1] || *end) {
			fprintf(stderr, "usage: fuzz [--seed N] [--seconds N] [--operations N]\n");
			exit(2);
		}
	}
}

static pid_t start(void)
{
	pid_t parent = getpid(), child = fork();

	ensure(child >= 0, "fork: errno %d", errno);
	if (!child) {
		die_with(parent);
		catch_signals();
	}
	return child;
}

static void start_worker(struct worker *worker)
{
	pthread_t thread;
	pid_t pid;

	worker->generation++;
	pid = start();
	if (pid) {
		worker->pid = pid;
		return;
	}
	self = worker;
	actor = &worker->main;
	if (owners[worker->number].memlock_pages >= 0)
		must(set_memlock(owners[worker->number].memlock_pages * PAGE_BYTES));
	if (owners[worker->number].user)
		must(become(owners[worker->number].user));
	/* A change of the user has cleared both. */
	prctl(PR_SET_DUMPABLE, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	seed_random(worker->number, worker->generation);
	expect(0, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel));
	expect(0, pthread_create(&thread, NULL, run_chaos, NULL));
	work();
}

static void set_up(void)
{
	struct actmem_ioctl_create arena = region_of(ARENA_PAGES);
	int i;

	fuzz->device = open_device();
	ensure(!regions(), "there are regions already");
	while (node_memory(fuzz->node_count, "MemTotal"))
		fuzz->node_count++;
	umask(0);
	ensure(!mkdir(AT, 0755) || errno == EEXIST, "mkdir " AT ": errno %d", errno);
	expect(0, mount_names(AT, "size=512M,mode=0777"));
	fuzz->empty = must(make_file(EMPTY_FILE));
	expect(0, create_empty(fuzz->device, &arena));
	fuzz->arena = arena.fd;
	fuzz->disk = open(DISK, O_RDWR | O_DIRECT | O_CLOEXEC);
	if (fuzz->disk < 0) {
		printf("# no " DISK ": transfers use the page cache\n");
		fuzz->disk = syscall(SYS_memfd_create, "disk", MFD_CLOEXEC);
		expect(0, ftruncate(fuzz->disk, 2 * WORKERS * sizeof(buffer)));
	}
	/* For dma-bufs; without it, no device imports them. */
	load_module(IMPORTER);
	fuzz->has_cgroup = !make_cgroup("+memory");
	for (i = 0; i < WORKERS; i++) {
		fuzz->workers[i].number = i;
		start_worker(&fuzz->workers[i]);
	}
	limiter = start();
	if (!limiter) {
		actor = &fuzz->limiter;
		seed_random(2 * WORKERS, 0);
		run_limiter();
	}
}

/* Starts killed workers again. Any other end of a process is a failure. */
static void reap(pid_t killed)
{
	int i, status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, killed ? 0 : WNOHANG)) > 0) {
		for (i = 0; i < WORKERS && fuzz->workers[i].pid != pid; i++)
			;
		if (pid == killed) {
			start_worker(&fuzz->workers[i]);
			return;
		}
		if (!atomic_exchange(&fuzz->failed, true))
			fprintf(stderr, "# FAILED: seed %lu, process %d ended with status %x\n",
				fuzz->seed, i, status);
		if (killed)
			return;
	}
}

static struct actor *actor_of(int i)
{
	if (i == 2 * WORKERS)
		return &fuzz->limiter;
	return i % 2 ? &fuzz->workers[i / 2].chaos : &fuzz->workers[i / 2].main;
}

/* Kills a worker, unless one of its threads may hang: that must not go unnoticed. */
static void kill_one(void)
{
	static unsigned long seen[2 * WORKERS];
	int i, chosen = choose(WORKERS), progress = 0;

	for (i = 0; i < 2 * WORKERS; i++) {
		unsigned long steps = atomic_load(&actor_of(i)->steps);

		progress += i / 2 == chosen && steps != seen[i];
		seen[i] = steps;
	}
	if (progress < 2)
		return;
	count(KILLED);
	kill(fuzz->workers[chosen].pid, SIGKILL);
	reap(fuzz->workers[chosen].pid);
}

/* Sums up the operations, and fails if an actor has hung since it last began one. */
static unsigned long watch(void)
{
	static struct { unsigned long steps, second, sum; } last[2 * WORKERS + 1];
	unsigned long sum = 0, now = now_seconds();
	int i;

	for (i = 0; i < 2 * WORKERS + 1; i++)
		sum += atomic_load(&actor_of(i)->steps);
	for (i = 0; i < 2 * WORKERS + 1; i++) {
		unsigned long steps = atomic_load(&actor_of(i)->steps);

		if (steps != last[i].steps || !last[i].second) {
			last[i].steps = steps;
			last[i].second = now;
			last[i].sum = sum;
		}
		if ((now - last[i].second < HANG_SECONDS || sum - last[i].sum < HANG_OPERATIONS ||
		     i == 2 * WORKERS) && now - last[i].second < HANG_SECONDS_ALL)
			continue;
		if (atomic_exchange(&fuzz->failed, true))
			continue;
		fprintf(stderr, "# FAILED: seed %lu, worker %d hangs in operation %lu (%s)\n",
			fuzz->seed, i / 2, steps, actor_of(i)->operation);
		put("/proc/sysrq-trigger", "w");
	}
	return sum;
}

/* Reports a warning of the kernel. tests/vm/run judges KCSAN's reports, which need whole stacks. */
static void read_kernel_log(int log)
{
	static const char *const bad[] = {
		"WARNING:", "BUG:", "Oops", "Bad page", "refcount_t", "Call Trace", "INFO: task",
	};
	char record[2048];
	ssize_t length;
	size_t i;

	while ((length = read(log, record, sizeof(record) - 1)) > 0) {
		record[length] = '\0';
		for (i = 0; i < ARRAY_SIZE(bad); i++)
			if (strstr(record, bad[i]) && !strstr(record, "BUG: KCSAN:") &&
			    !atomic_exchange(&fuzz->failed, true))
				fprintf(stderr, "# FAILED: kernel log: %s\n", record);
	}
}

static unsigned long run(int log)
{
	unsigned long began = now_seconds(), reported = began, now = began, before = 0, sum = 0;

	while (!atomic_load(&fuzz->failed) && now - began < seconds && sum < operations_wanted) {
		usleep(50000 + choose(300000));
		reap(0);
		kill_one();
		read_kernel_log(log);
		sum = watch();
		now = now_seconds();
		if (now - reported < REPORT_SECONDS)
			continue;
		printf("# %lu s: %lu operations, %lu per second\n", now - began, sum,
		       (sum - before) / (now - reported));
		reported = now;
		before = sum;
	}
	printf("# seed %lu: %lu operations in %lu s", fuzz->seed, sum,
	       now - began);
	for (int i = 0; i < EVENTS; i++)
		printf("; %s %lu", events[i], atomic_load(&fuzz->events[i]));
	printf("\n");
	return sum;
}

static void end_processes(void)
{
	int i;

	kill(limiter, SIGKILL);
	for (i = 0; i < WORKERS; i++)
		kill(fuzz->workers[i].pid, SIGKILL);
	while (wait(NULL) > 0)
		;
}

/* Undoes all settings and ends what no process has. Returns true if no counter is left. */
static bool is_nothing_left(void)
{
	static const char *const counters[] = {
		"region_bytes", "lingering_bytes", "pool_bytes", "pool_free_bytes",
		"pool_lent_bytes",
	};
	bool is_left = false;
	long number;
	size_t i;

	set_limit(SYSFS "/user_limit_bytes", -1);
	for (i = 0; i < (size_t)fuzz->node_count; i++) {
		set_node_limit(i, -1);
		set_pool(i, 0);
	}
	put("/proc/sys/kernel/numa_balancing", "0");
	if (fuzz->has_cgroup) {
		rmdir(CGROUP_ROOT "/two");
		remove_cgroup();
	}
	close(fuzz->arena);
	close(fuzz->empty);
	if (!wait_until(!unmount(AT)))
		is_left = printf("# " AT " cannot be unmounted: errno %d\n", errno);
	close(fuzz->device);
	unload_module("importer");
	if (!wait_until(!number_in(SYSFS "/regions") && !number_in(SYSFS "/lingering_regions")))
		is_left = printf("# regions left: %ld, lingering: %ld\n", number_in(SYSFS "/regions"),
				 number_in(SYSFS "/lingering_regions"));
	for (i = 0; i < ARRAY_SIZE(counters); i++) {
		number = node_sum(counters[i]);
		if (number)
			is_left = printf("# %s of all nodes: %ld\n", counters[i], number);
	}
	number = number_in("/sys/module/actmem/refcnt");
	if (number)
		is_left = printf("# references to the module: %ld\n", number);
	return !is_left;
}

int main(int argc, char **argv)
{
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	unsigned long sum;

	ensure(log >= 0, "/dev/kmsg: errno %d", errno);
	lseek(log, 0, SEEK_END);
	fuzz = mapped(mmap(NULL, sizeof(*fuzz), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			   -1, 0));
	parse(argc, argv);
	ksft_print_header();
	ksft_set_plan(3);
	printf("# --seed %lu --seconds %lu\n", fuzz->seed, seconds);
	seed_random(2 * WORKERS + 1, 0);
	set_up();
	sum = run(log);
	end_processes();
	ksft_test_result(sum && !atomic_load(&fuzz->failed), "every result agrees with the model\n");
	ksft_test_result(is_nothing_left(), "every counter returns to 0\n");
	atomic_store(&fuzz->failed, false);
	read_kernel_log(log);
	ksft_test_result(!atomic_load(&fuzz->failed), "the kernel's log has no warning at the end\n");
	ksft_finished();
}
