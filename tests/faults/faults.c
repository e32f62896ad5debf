/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "actmem.h"
#include "faults.h"
#include "wrap.h"

static unsigned int countdown;
static bool reached;

static char call_name[32];
static unsigned int call_countdown;
static int call_error;
static bool call_always;

#define THREAD_NAME_MAX		16
#define SLOW_THREADS_MAX	16

static struct slow_thread {
	char name[THREAD_NAME_MAX];
	unsigned int calls;
} slow_threads[SLOW_THREADS_MAX];
static char slow_name[32];
static unsigned int slow_us;
static unsigned int slow_passes;
static pthread_mutex_t slow_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t slow_let_go = PTHREAD_COND_INITIALIZER;

/* Held while some of it is taken: who ends the limit does not see a bit of it return. */
static pthread_mutex_t disk_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t disk_left = UINT64_MAX;

static int (*device_ioctl)(int fd, unsigned long request, void *argument);
static unsigned int forced_cpus;
static int forced_node = -1;
static long forced_type;
static enum hugetlb forced_hugetlb;

void fail_nth(unsigned int nth)
{
	countdown = nth;
	reached = false;
}

bool fail_nth_was_reached(void)
{
	countdown = 0;
	return reached;
}

void fail_call(const char *call, unsigned int nth, int error)
{
	snprintf(call_name, sizeof(call_name), "%s", call);
	call_countdown = nth;
	call_error = error;
	call_always = false;
}

void fail_every(const char *call, int error)
{
	fail_call(call, 1, error);
	call_always = true;
}

void slow_call(const char *call, unsigned int pause_us)
{
	pthread_mutex_lock(&slow_lock);
	snprintf(slow_name, sizeof(slow_name), "%s", call);
	slow_us = pause_us;
	slow_passes = 0;
	memset(slow_threads, 0, sizeof(slow_threads));
	pthread_cond_broadcast(&slow_let_go);
	pthread_mutex_unlock(&slow_lock);
}

void let_slow_call(void)
{
	pthread_mutex_lock(&slow_lock);
	slow_passes++;
	pthread_cond_signal(&slow_let_go);
	pthread_mutex_unlock(&slow_lock);
}

/* Of the thread of that name, or one that has none yet; under slow_lock. */
static struct slow_thread *slow_thread(const char *name)
{
	struct slow_thread *thread = slow_threads;

	while (*thread->name && strcmp(thread->name, name))
		if (++thread == slow_threads + SLOW_THREADS_MAX)
			abort();
	snprintf(thread->name, sizeof(thread->name), "%s", name);
	return thread;
}

unsigned int slow_calls_of(const char *name)
{
	unsigned int calls;

	pthread_mutex_lock(&slow_lock);
	calls = slow_thread(name)->calls;
	pthread_mutex_unlock(&slow_lock);
	return calls;
}

void be_slow(const char *call)
{
	char name[THREAD_NAME_MAX] = "";
	unsigned int pause_us;

	pthread_getname_np(pthread_self(), name, sizeof(name));
	pthread_mutex_lock(&slow_lock);
	pause_us = strcmp(call, slow_name) ? 0 : slow_us;
	if (pause_us)
		slow_thread(name)->calls++;
	while (pause_us == SLOW_HELD && slow_us == SLOW_HELD && !slow_passes)
		pthread_cond_wait(&slow_let_go, &slow_lock);
	if (pause_us == SLOW_HELD && slow_passes)
		slow_passes--;
	pthread_mutex_unlock(&slow_lock);
	if (pause_us && pause_us != SLOW_HELD)
		usleep(pause_us);
}

void limit_disk(uint64_t bytes)
{
	pthread_mutex_lock(&disk_lock);
	disk_left = bytes;
	pthread_mutex_unlock(&disk_lock);
}

void fail_nothing(void)
{
	limit_disk(UINT64_MAX);
	countdown = 0;
	call_name[0] = '\0';
	forced_node = -1;
	forced_type = 0;
	forced_hugetlb = HUGETLB_REAL;
	device_ioctl = NULL;
	forced_cpus = 0;
	slow_call("", 0);
	fail_transfers(0, 0, 0);
	shorten_transfers(false);
	hang_transfers(false);
}

void fake_device(int (*ask)(int fd, unsigned long request, void *argument))
{
	device_ioctl = ask;
}

void fake_cpus(unsigned int count)
{
	forced_cpus = count;
}

void fake_node(int node)
{
	forced_node = node;
}

void fake_file_system(long type)
{
	forced_type = type;
}

void fake_hugetlb(enum hugetlb hugetlb)
{
	forced_hugetlb = hugetlb;
}

bool fails(const char *call, int usual)
{
	if (countdown && !--countdown) {
		reached = true;
		errno = usual;
		return true;
	}
	if (strcmp(call, call_name) || (!call_always && (!call_countdown || --call_countdown)))
		return false;
	errno = call_error;
	return true;
}

WRAP(int, open, (const char *path, int flags, ...))
{
	va_list arguments;
	mode_t mode;

	if (device_ioctl && !strcmp(path, "/dev/actmem"))
		path = "/dev/null";
	va_start(arguments, flags);
	mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ?
	       va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return fails("open", EMFILE) ? -1 : __real_open(path, flags, mode);
}

WRAP(int, ioctl, (int fd, unsigned long request, ...))
{
	va_list arguments;
	void *argument;
	int error;

	va_start(arguments, request);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (fails("ioctl", EIO))
		return -1;
	if (!device_ioctl)
		return __real_ioctl(fd, request, argument);
	error = device_ioctl(fd, request, argument);
	errno = error;
	return error ? -1 : 0;
}

WRAP(int, sched_getaffinity, (pid_t pid, size_t size, cpu_set_t *cpus))
{
	unsigned int cpu;

	if (!forced_cpus)
		return __real_sched_getaffinity(pid, size, cpus);
	CPU_ZERO_S(size, cpus);
	for (cpu = 0; cpu < forced_cpus; cpu++)
		CPU_SET_S(cpu, size, cpus);
	return 0;
}

WRAP(void *, mmap, (void *address, size_t length, int protection, int flags, int fd,
		    off_t offset))
{
	if (fails("mmap", ENOMEM))
		return MAP_FAILED;
	return __real_mmap(address, length, protection, flags, fd, offset);
}

WRAP(int, memfd_create, (const char *name, unsigned int flags))
{
	be_slow("memfd_create");
	if (fails("memfd_create", EMFILE))
		return -1;
	if (forced_hugetlb == HUGETLB_NONE && flags & MFD_HUGETLB) {
		errno = ENODEV;
		return -1;
	}
	return __real_memfd_create(name, forced_hugetlb == HUGETLB_PLENTY ?
				   flags & (MFD_HUGETLB - 1) : flags);
}

WRAP(int, madvise, (void *address, size_t length, int advice))
{
	be_slow("madvise");
	return fails("madvise", ENOMEM) ? -1 : __real_madvise(address, length, advice);
}

WRAP_PLAIN(int, mlock2, (const void *address, size_t length, unsigned int flags),
	   (address, length, flags), -1, ENOMEM)
WRAP_PLAIN(int, ftruncate, (int fd, off_t length), (fd, length), -1, ENOMEM)

WRAP(int, fcntl, (int fd, int command, ...))
{
	va_list arguments;
	long argument;

	va_start(arguments, command);
	argument = va_arg(arguments, long);
	va_end(arguments);
	return fails("fcntl", EMFILE) ? -1 : __real_fcntl(fd, command, argument);
}

WRAP_PLAIN(int, fstat, (int fd, struct stat *stat), (fd, stat), -1, EIO)

static uint64_t allocated_bytes(int fd)
{
	struct stat file;

	return __real_fstat(fd, &file) ? 0 : (uint64_t)file.st_blocks * 512;
}

int __real_fallocate(int fd, int mode, off_t offset, off_t length);

/* What it has allocated or freed, of what a limited disk has. */
static int allocate_limited(int fd, int mode, off_t offset, off_t length)
{
	bool is_punch = mode & FALLOC_FL_PUNCH_HOLE;
	uint64_t before = allocated_bytes(fd);

	if (!is_punch && (uint64_t)length > disk_left) {
		/* As ext4 does, which keeps what it found; but a new file is soon removed. */
		if (disk_left && before) {
			__real_fallocate(fd, mode, offset, (off_t)disk_left);
			disk_left = 0;
		}
		errno = ENOSPC;
		return -1;
	}
	if (__real_fallocate(fd, mode, offset, length))
		return -1;
	/* Beside what was asked for, a file system allocates what it needs itself. */
	disk_left += is_punch ? before - allocated_bytes(fd) : -(uint64_t)length;
	return 0;
}

WRAP(int, fallocate, (int fd, int mode, off_t offset, off_t length))
{
	bool is_punch = mode & FALLOC_FL_PUNCH_HOLE;

	bool is_limited;
	int result = 0;

	be_slow(is_punch ? "punch" : "fallocate");
	pthread_mutex_lock(&disk_lock);
	is_limited = disk_left != UINT64_MAX;
	if (is_limited)
		result = allocate_limited(fd, mode, offset, length);
	pthread_mutex_unlock(&disk_lock);
	if (is_limited)
		return result;
	return fails(is_punch ? "punch" : "fallocate", is_punch ? EOPNOTSUPP : ENOSPC) ? -1 :
	       __real_fallocate(fd, mode, offset, length);
}

WRAP_PLAIN(int, stat, (const char *path, struct stat *stat), (path, stat), -1, EIO)

static int told_type(int error, struct statfs *files)
{
	if (!error && forced_type)
		files->f_type = forced_type;
	return error;
}

WRAP_PLAIN(int, access, (const char *path, int mode), (path, mode), -1, ENOENT)

WRAP(int, statfs, (const char *path, struct statfs *files))
{
	return fails("statfs", EIO) ? -1 : told_type(__real_statfs(path, files), files);
}

WRAP(int, fstatfs, (int fd, struct statfs *files))
{
	return fails("fstatfs", EIO) ? -1 : told_type(__real_fstatfs(fd, files), files);
}

WRAP_PLAIN(int, flock, (int fd, int operation), (fd, operation), -1, ENOLCK)
WRAP_PLAIN(int, linkat, (int from_folder, const char *from, int to_folder, const char *to, int flags),
	   (from_folder, from, to_folder, to, flags), -1, ENOSPC)
WRAP_PLAIN(ssize_t, readlink, (const char *path, char *text, size_t size),
	   (path, text, size), -1, EACCES)
WRAP_PLAIN(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
WRAP_PLAIN(DIR *, opendir, (const char *path), (path), NULL, EMFILE)
WRAP_PLAIN(void *, malloc, (size_t size), (size), NULL, ENOMEM)
WRAP_PLAIN(void *, calloc, (size_t count, size_t size), (count, size), NULL, ENOMEM)
WRAP_PLAIN(void *, realloc, (void *memory, size_t size), (memory, size), NULL, ENOMEM)

WRAP(long, syscall, (long number, ...))
{
	const char *name = number == SYS_mbind ? "mbind" :
			   number == SYS_move_pages ? "move_pages" :
			   number == SYS_get_mempolicy ? "get_mempolicy" : "syscall";
	va_list arguments;
	long a[6];
	unsigned int i;
	long result;

	va_start(arguments, number);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(arguments, long);
	va_end(arguments);
	if (fails(name, EIO))
		return -1;
	result = __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (number == SYS_move_pages && !result && forced_node >= 0)
		for (i = 0; i < (unsigned long)a[1]; i++)
			((int *)a[4])[i] = forced_node;
	return result;
}

struct holdings held_now(void)
{
	struct holdings held = { 0, 0 };
	DIR *directory = __real_opendir("/proc/self/fd");
	FILE *file = __real_fopen("/proc/self/maps", "re");
	char line[4096];

	assert_true(directory && file);
	while (readdir(directory))
		held.descriptors++;
	while (fgets(line, sizeof(line), file))
		held.mappings += strstr(line, "/memfd:") || strstr(line, "actmem-unit");
	closedir(directory);
	fclose(file);
	return held;
}

void assert_same_held(struct holdings before)
{
	struct holdings now = held_now();

	assert_int_equal(now.descriptors, before.descriptors);
	assert_int_equal(now.mappings, before.mappings);
}

void fail_each(int (*run)(void *context), void *context, unsigned int least)
{
	struct holdings before = held_now();
	unsigned int nth = 0, failures = 0;
	int error;

	do {
		fail_nth(++nth);
		error = run(context);
		if (error) {
			assert_in_range(-error, 1, 4095);
			assert_true(*actmem_error());
			failures++;
		}
		assert_same_held(before);
	} while (fail_nth_was_reached());
	assert_int_equal(error, 0);
	assert_true(failures > least);
	print_message("# %u calls failed in turn, %u were errors\n", nth - 1, failures);
}

int open_memfd(struct actmem **am, enum actmem_pages pages, uint32_t allow)
{
	struct actmem_options options = {
		.size = sizeof(options), .backend = ACTMEM_BACKEND_MEMFD, .pages = pages,
		.allow = allow | ACTMEM_ALLOW_ONLY,
	};

	return actmem_open(am, &options);
}

int open_small(struct actmem **am)
{
	return open_memfd(am, ACTMEM_PAGES_4K, ACTMEM_ALLOW_UNLOCKED);
}

int create_region(struct actmem *am, uint64_t length, uint32_t flags,
		  struct actmem_region **region)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = length, .flags = flags,
	};

	return actmem_region_create(am, &options, region);
}

int live_of_heap(struct actmem *am, uint64_t grow_bytes)
{
	struct actmem_heap_options options = { .size = sizeof(options), .grow_bytes = grow_bytes };
	struct actmem_heap *heap;
	void *block;
	int error;

	error = actmem_heap_create(am, &options, &heap);
	if (error)
		return error;
	error = actmem_heap_alloc(heap, 1000, 0, &block);
	if (!error)
		assert_int_equal(actmem_heap_free(heap, block), 0);
	assert_int_equal(actmem_heap_destroy(heap), 0);
	return error;
}

int open_file_at(struct actmem_queue *queue, const char *path, uint32_t flags, uint64_t length,
		 struct actmem_file **file)
{
	struct actmem_file_options options = {
		.size = sizeof(options), .paths = &path, .path_count = 1,
		.flags = flags | ACTMEM_FILE_ALLOW_BUFFERED, .length = length,
	};

	return actmem_file_open(queue, &options, file);
}

void assert_fails(int got, int error, const char *part)
{
	if (got != -error || !strstr(actmem_error(), part))
		print_error("returned %d with '%s'\n", got, actmem_error());
	assert_int_equal(got, -error);
	assert_non_null(strstr(actmem_error(), part));
}
