// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * probe [BYTES]: asks all questions of probe.h but the odd ones; probe odd [BYTES]: those;
 * probe GROUP [BYTES]: those of one group.
 * Each group is a process of its own, so that the driver's dislike of one question costs
 * no other: a group that dies is reported and the next one is asked.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "probe.h"

#define GROUP_SECONDS	60
#define HUGE_BYTES	(2 * MIB)

struct probe_calls cuda;

const char *const memory_names[MEMORY_KINDS] = {
	[MEMORY_PRIVATE] = "private 4K",
	[MEMORY_PRIVATE_THP] = "private THP",
	[MEMORY_PRIVATE_2M] = "private hugetlb 2M",
	[MEMORY_MEMFD] = "memfd 4K",
	[MEMORY_MEMFD_THP] = "memfd THP",
	[MEMORY_MEMFD_2M] = "memfd hugetlb 2M",
	[MEMORY_SHM] = "/dev/shm file",
	[MEMORY_DISK] = "disk file",
};

void *reserve(size_t bytes)
{
	char *start = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *aligned;

	if (start == MAP_FAILED)
		return NULL;
	aligned = (char *)(((uintptr_t)start + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1));
	if (aligned > start)
		munmap(start, (size_t)(aligned - start));
	munmap(aligned + bytes, (size_t)(start + HUGE_BYTES - aligned));
	return aligned;
}

int open_memory(enum memory_kind kind, size_t bytes)
{
	struct statvfs room;
	char name[64];
	int fd, saved;

	if (kind == MEMORY_SHM || kind == MEMORY_DISK) {
		snprintf(name, sizeof(name), kind == MEMORY_SHM ? "/dev/shm/actmem-probe-%d" :
			 "actmem-probe-%d", getpid());
		fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		if (fd >= 0)
			unlink(name);
		/* Else the first touch of what does not fit would be the end. */
		if (fd >= 0 && !fstatvfs(fd, &room) &&
		    (unsigned long long)room.f_bavail * room.f_frsize < bytes) {
			close(fd);
			errno = ENOSPC;
			return -1;
		}
	} else {
		fd = memfd_create("probe", MFD_CLOEXEC | (kind == MEMORY_MEMFD_2M ? MFD_HUGETLB : 0));
	}
	if (fd >= 0 && ftruncate(fd, (off_t)bytes)) {
		saved = errno;
		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

void *map_memory(enum memory_kind kind, size_t bytes)
{
	void *address = reserve(bytes), *memory;
	int fd = -1, saved;

	if (!address)
		return NULL;
	if (kind <= MEMORY_PRIVATE_2M) {
		memory = mmap(address, bytes, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED |
			      (kind == MEMORY_PRIVATE_2M ? MAP_HUGETLB : 0), -1, 0);
	} else {
		fd = open_memory(kind, bytes);
		memory = fd < 0 ? MAP_FAILED : mmap(address, bytes, PROT_READ | PROT_WRITE,
						    MAP_SHARED | MAP_FIXED, fd, 0);
		saved = errno;
		if (fd >= 0)
			close(fd);
		errno = saved;
	}
	if (memory == MAP_FAILED) {
		saved = errno;
		munmap(address, bytes);
		errno = saved;
		return NULL;
	}
	if (kind == MEMORY_PRIVATE_THP || kind == MEMORY_MEMFD_THP)
		madvise(memory, bytes, MADV_HUGEPAGE);
	else if (kind != MEMORY_MEMFD_2M && kind != MEMORY_PRIVATE_2M)
		madvise(memory, bytes, MADV_NOHUGEPAGE);
	return memory;
}

const char *error_name(CUresult result)
{
	const char *name = NULL;

	if (cuda.cuGetErrorName(result, &name) || !name)
		return "an error without a name";
	return name;
}

double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void print_string(const char *text)
{
	putchar('"');
	for (; *text; text++)
		if (*text == '"' || *text == '\\')
			printf("\\%c", *text);
		else if ((unsigned char)*text < ' ')
			putchar(' ');
		else
			putchar(*text);
	putchar('"');
}

void fact(const char *answer, const char *question_format, ...)
{
	char question[256];
	va_list arguments;

	va_start(arguments, question_format);
	vsnprintf(question, sizeof(question), question_format, arguments);
	va_end(arguments);
	printf("{\"fact\": ");
	print_string(question);
	printf(", \"answer\": ");
	print_string(answer);
	puts("}");
	fflush(stdout);
}

void figure(const char *name, double value, const char *unit, const char *peer, double peer_value)
{
	printf("{\"figure\": ");
	print_string(name);
	printf(", \"value\": %.3f, \"unit\": \"%s\"", value, unit);
	if (peer && peer_value > 0) {
		printf(", \"peer\": ");
		print_string(peer);
		printf(", \"peer_value\": %.3f, \"ratio\": %.3f", peer_value, value / peer_value);
	}
	puts("}");
	fflush(stdout);
}

static const struct group {
	const char *name;
	void (*ask)(void);
	void (*ask_sized)(size_t bytes);
	bool is_odd;
} groups[] = {
	{ "pieces", NULL, ask_pieces, false },
	{ "device", ask_device, NULL, false },
	{ "flags", ask_flags, NULL, false },
	{ "registering", ask_registering, NULL, false },
	{ "freeing", ask_freeing, NULL, false },
	{ "mapping", ask_mapping, NULL, false },
	{ "contexts", ask_contexts, NULL, false },
	{ "ranges", ask_ranges, NULL, false },
	{ "capture", ask_capture, NULL, false },
	{ "smaps", ask_smaps, NULL, false },
	{ "speeds", NULL, ask_speeds, false },
	{ "copies", NULL, ask_copies, false },
	{ "unmapping", ask_unmapping, NULL, true },
	{ "resetting", ask_resetting, NULL, true },
};

#define GROUPS	(sizeof(groups) / sizeof(groups[0]))

static int start_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	CUcontext context;
	CUresult result;
	CUdevice device;

	if (!library) {
		fprintf(stderr, "probe: %s\n", dlerror());
		return -1;
	}
#define PROBE_FIND(name)	*(void **)&cuda.name = dlsym(library, #name);
	PROBE_CALLS(PROBE_FIND)
#define PROBE_NEEDED(name)						\
	if (!cuda.name) {						\
		fprintf(stderr, "probe: libcuda.so.1 has no " #name "\n");	\
		return -1;						\
	}
	PROBE_CALLS(PROBE_NEEDED)
	PROBE_COPY_CALLS(PROBE_FIND)
#undef PROBE_FIND
#undef PROBE_NEEDED
	result = cuda.cuInit(0);
	if (!result)
		result = cuda.cuDeviceGet(&device, 0);
	if (!result)
		result = cuda.cuDevicePrimaryCtxRetain(&context, device);
	if (!result)
		result = cuda.cuCtxSetCurrent(context);
	if (result)
		fprintf(stderr, "probe: CUDA does not start: %s\n", error_name(result));
	return result ? -1 : 0;
}

static int ask(const struct group *group, size_t bytes)
{
	alarm(GROUP_SECONDS);
	if (start_cuda())
		return EXIT_FAILURE;
	if (group->ask)
		group->ask();
	else
		group->ask_sized(bytes);
	return EXIT_SUCCESS;
}

static bool is_wanted(const struct group *group, const char *wanted)
{
	if (!wanted)
		return !group->is_odd;
	return !strcmp(wanted, group->name) || (group->is_odd && !strcmp(wanted, "odd"));
}

/* Before CUDA is used: none of it is inherited. */
static int ask_apart(const struct group *group, size_t bytes)
{
	char answer[64];
	int status;
	pid_t child = fork();

	if (!child)
		exit(ask(group, bytes));
	if (child < 0 || waitpid(child, &status, 0) != child) {
		perror("probe");
		return EXIT_FAILURE;
	}
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	snprintf(answer, sizeof(answer), "killed by signal %d%s", WTERMSIG(status),
		 WTERMSIG(status) == SIGALRM ? " (too slow)" : "");
	fact(answer, "group %s", group->name);
	return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	const char *wanted = argc > 1 && (argv[1][0] < '0' || argv[1][0] > '9') ? argv[1] : NULL;
	const char *size = argc > 1 + !!wanted ? argv[1 + !!wanted] : "1073741824";
	size_t bytes = strtoull(size, NULL, 10) & ~(HUGE_BYTES - 1);
	int status = EXIT_SUCCESS;
	unsigned int i, asked = 0;

	if (!bytes) {
		fprintf(stderr, "probe: '%s' is no number of bytes from 2 MiB on\n", size);
		return 2;
	}
	for (i = 0; i < GROUPS; i++) {
		if (!is_wanted(&groups[i], wanted))
			continue;
		asked++;
		if (ask_apart(&groups[i], bytes))
			status = EXIT_FAILURE;
	}
	if (!asked) {
		fprintf(stderr, "probe: no group is named '%s'\n", wanted);
		return 2;
	}
	return status;
}
