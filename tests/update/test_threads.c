/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The threads that compute updates: how many there are and where they run, and that their number
 * and the instruction set do not change a bit of the result. Each test runs in a forked child,
 * which has no threads of its parent.
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "machine/machine.h"
#include "faults.h"
#include "update/kernels.h"
#include "update/mode.h"
#include "update/threads.h"
#include "update/update.h"
#include "refuse.h"

#define COUNT		((size_t)300007)
#define WORDS		256

static float *in, *out, *expected;	/* shared with children */
static char (*words)[WORDS];

/* x / (sqrt(y) + x): rounds in each operation. */
static const struct update_operation operations[] = {
	{ UPDATE_MUL, 3, 0, 0, 0 }, { UPDATE_ADD, 3, 3, 1, 0 }, { UPDATE_SQRT, 3, 3, 0, 0 },
	{ UPDATE_DIV, 3, 0, 3, 0 }, { UPDATE_MUL, 4, 0, 2, 0 }, { UPDATE_SUB, 3, 3, 4, 0 },
};
static const int32_t outputs[] = { 3 };
static const struct update_program program = {
	.input_count = 2, .scalar_count = 1, .output_count = 1, .operations = operations,
	.operation_count = sizeof(operations) / sizeof(operations[0]), .outputs = outputs,
};

static int run(size_t count, int node)
{
	const struct update_array inputs[] = { { in, UPDATE_F32 }, { in + 16, UPDATE_BF16 } };
	const struct update_array array = { out, UPDATE_F32 };

	return update_run(&program, inputs, &(float){ 0.3F }, &array, count, node, *words, WORDS);
}

/* Runs @body in a child, with ACTMEM_UPDATE_THREADS. Returns its exit status. */
static int in_child(int (*body)(void), const char *threads)
{
	pid_t pid;
	int status;

	if (threads)
		setenv("ACTMEM_UPDATE_THREADS", threads, 1);
	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(60);		/* rather than wait for threads that do not exist */
		_exit(body());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unsetenv("ACTMEM_UPDATE_THREADS");
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int count_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	char path[300], name[32];
	int count = 0;

	while (tasks && (task = readdir(tasks))) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
		if (!sysfile_read(path, name, sizeof(name)))
			count += !strcmp(name, "actmem-update\n");
	}
	if (tasks)
		closedir(tasks);
	return count;
}

/* Waits until the threads have ended. Returns how many are left after ten seconds. */
static int wait_for_threads(void)
{
	int i, count = count_threads();

	for (i = 0; i < 10000 && count; i++) {
		usleep(1000);
		count = count_threads();
	}
	return count;
}

static int run_all(void)
{
	return run(COUNT, ALL_NODES) ? 100 : count_threads();
}

static int cores(void)
{
	struct cpus cpus;

	assert_int_equal(cpus_of_process(&cpus), 0);
	return (int)cpus_count_cores(&cpus);
}

static void test_same_bits(void **state)
{
	static const char *const sets[] = { "baseline", "avx2", "avx512" };
	static const char *const numbers[] = { "1", "2", "0" };
	size_t set, number;

	assert_true(kernels_use("baseline"));
	assert_int_equal(in_child(run_all, "1"), 1);
	memcpy(expected, out, COUNT * sizeof(float));
	for (set = 0; set < 3; set++) {
		for (number = 0; kernels_use(sets[set]) && number < 3; number++) {
			memset(out, 0, COUNT * sizeof(float));
			assert_in_range(in_child(run_all, numbers[number]), 1, cores());
			assert_memory_equal(out, expected, COUNT * sizeof(float));
		}
	}
	kernels_use(NULL);
}

/* One for each core, or as many as the knob says. A few elements need none. */
static int run_few(void)
{
	return run(1000, ALL_NODES) ? 100 : count_threads();
}

static void test_count(void **state)
{
	assert_int_equal(in_child(run_all, NULL), cores());
	assert_int_equal(in_child(run_all, "1"), 1);
	assert_int_equal(in_child(run_all, "8192"), cores());
	assert_int_equal(in_child(run_few, NULL), 0);
}

static void test_wrong_knob(void **state)
{
	assert_int_equal(in_child(run_all, "many"), 100);
	assert_string_equal(*words, "ACTMEM_UPDATE_THREADS is 'many', but must be a number of threads up to 8192");
}

static int run_twice(void)
{
	int first = run_all();

	return first == run_all() ? first : 101;
}

/* The same threads compute the next update. */
static void test_again(void **state)
{
	assert_int_equal(in_child(run_twice, NULL), cores());
	assert_memory_equal(out, expected, COUNT * sizeof(float));
}

/* A child starts threads of its own, also if another thread of the parent was in a call. */
static void *run_for_ever(void *data)
{
	for (;;)
		run(COUNT, ALL_NODES);
	return NULL;
}

static int fork_beside_a_call(void)
{
	pthread_t thread;
	int i, got = 0;

	run_all();
	if (pthread_create(&thread, NULL, run_for_ever, NULL))
		return 102;
	for (i = 0; i < 20 && got != 103; i++) {
		usleep(1000);
		if (in_child(run_all, NULL) != cores())
			got = 103;
	}
	return got;
}

static void test_fork(void **state)
{
	assert_int_equal(in_child(fork_beside_a_call, NULL), 0);
}

static int without_threads(void)
{
	int error;

	fail_every("pthread_create", EAGAIN);
	error = run(COUNT, ALL_NODES);
	fail_nothing();
	return error ? 104 : count_threads();
}

static int with_one_thread(void)
{
	int error;

	fail_call("pthread_create", 2, EAGAIN);
	error = run(COUNT, ALL_NODES);
	fail_nothing();
	return error ? 104 : count_threads();
}

static void test_too_many_threads(void **state)
{
	memset(out, 0, COUNT * sizeof(float));
	assert_int_equal(in_child(without_threads, NULL), 0);
	assert_memory_equal(out, expected, COUNT * sizeof(float));
	assert_int_equal(in_child(with_one_thread, NULL), 1);
}

static int without_memory(void)
{
	int error;

	fail_call("calloc", 1, ENOMEM);
	error = run(COUNT, ALL_NODES);
	fail_nothing();
	return error == -ENOMEM ? run_all() : 105;
}

static void test_no_memory(void **state)
{
	assert_int_equal(in_child(without_memory, NULL), cores());
	assert_string_equal(*words, "no memory for the threads of an update");
}

static int on_missing_node(void)
{
	return run(COUNT, ACTMEM_NODES_MAX - 1) == -ENODEV && !count_threads() ? 0 : 106;
}

/* Only the CPUs of node 0 that the process may use: the first one. */
static int on_one_cpu(void)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(0, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		return 107;
	return run(COUNT, 0) ? 108 : count_threads();
}

static void test_nodes(void **state)
{
	assert_int_equal(in_child(on_missing_node, NULL), 0);
	assert_string_equal(*words, "node 1023 has no CPU that this process may use (sched_setaffinity, taskset, cpuset)");
	assert_int_equal(in_child(on_one_cpu, NULL), 1);
}

size_t __sanitizer_get_current_allocated_bytes(void);	/* of ASan, whose header is optional */

/*
 * As in a container whose seccomp profile forbids it. Each such call frees the memory of the
 * threads that it started, once they have ended. What the C library keeps for later threads does
 * not grow with the number of calls.
 */
static int on_refused_cpus(void)
{
	size_t before = 0;
	int i;

	if (!refuse_call(SYS_sched_setaffinity, EPERM))
		return 111;
	for (i = 0; i < 210; i++) {
		if (run(COUNT, 0) != -EPERM || wait_for_threads())
			return 112;
		if (i == 9)
			before = __sanitizer_get_current_allocated_bytes();
	}
	return __sanitizer_get_current_allocated_bytes() < before + 200 * 100 ? 0 : 113;
}

static void test_refused(void **state)
{
	assert_int_equal(in_child(on_refused_cpus, NULL), 0);
	assert_string_equal(*words, "cannot run a thread on the CPUs of node 0 (sched_setaffinity: Operation not permitted)");
}

/* Each thread of the program gets its own result, though all use the same threads. */
static void *run_own(void *data)
{
	float *own = data;
	const struct update_array inputs[] = { { in, UPDATE_F32 }, { in + 16, UPDATE_BF16 } };
	const struct update_array array = { own, UPDATE_F32 };
	char why[WORDS];
	unsigned int i;

	for (i = 0; i < 20; i++)
		if (update_run(&program, inputs, &(float){ 0.3F }, &array, COUNT, ALL_NODES, why,
			       sizeof(why)))
			return NULL;
	return own;
}

static int run_beside(void)
{
	pthread_t threads[4];
	void *own;
	int i, wrong = 0;

	for (i = 0; i < 4; i++)
		if (pthread_create(&threads[i], NULL, run_own, calloc(COUNT, sizeof(float))))
			return 109;
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], &own);
		wrong += !own || memcmp(own, expected, COUNT * sizeof(float));
		free(own);
	}
	return wrong;
}

static void test_beside(void **state)
{
	assert_int_equal(in_child(run_beside, NULL), 0);
}

/* The mode of the calling thread is its own again, whether it computed or waited. */
static void test_mode(void **state)
{
	uint64_t mode = mode_get();

	assert_int_equal(run(100, ALL_NODES), 0);
	assert_int_equal(mode_get(), mode);
	assert_true(mode != MODE_UPDATE);
}

static int make_arrays(void **state)
{
	size_t i, bytes = (COUNT + 16) * sizeof(float);
	char *shared = mmap(NULL, 3 * bytes + WORDS, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared == MAP_FAILED)
		return -1;
	words = (void *)shared;
	in = (float *)(shared + WORDS);
	out = in + COUNT + 16;
	expected = out + COUNT + 16;
	for (i = 0; i < COUNT; i++)
		in[i] = 1 + (float)(i * 7919 % 10007) / 3;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_count),
		cmocka_unit_test(test_wrong_knob),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_too_many_threads),
		cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_nodes),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_beside),
		cmocka_unit_test(test_mode),
	};

	return cmocka_run_group_tests_name("threads", tests, make_arrays, NULL);
}
