/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory_test.h"

#ifdef MEMORY_DIRECT
#include "preload/cuda/cuda.h"
#include "preload/malloc/large.h"

/* Malloc mode is off: it has nothing. */
struct large_gate large_gate = { .min_bytes = SIZE_MAX };
#endif

#define CASE_SECONDS	250

struct memory_cuda api;
CUcontext primary;
char stderr_text[65536];

#ifdef MEMORY_DIRECT
/* What the preload's lookups do. */
static void put_in_place(void)
{
#define PUT_IN_PLACE(name, ours, parameters, arguments)			\
	do {								\
		*(void **)&cuda_driver.name = *(void **)&api.name;	\
		*(void **)&api.name = (void *)ours;			\
	} while (0);
	CUDA_HOST_CALLS(PUT_IN_PLACE)
#undef PUT_IN_PLACE
}
#endif

static void load_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

#define FIND(name)							\
	*(void **)&api.name = library ? dlsym(library, #name) : NULL;	\
	if (!api.name)							\
		tap_bail("libcuda.so.1 has no " #name);
	MEMORY_CALLS(FIND)
#undef FIND
	*(void **)&api.standin_counts = dlsym(library, "standin_counts");
	*(void **)&api.standin_fail = dlsym(library, "standin_fail");
	*(void **)&api.standin_slow = dlsym(library, "standin_slow");
#ifdef MEMORY_DIRECT
	put_in_place();
#endif
	if (api.cuInit(0) || api.cuDevicePrimaryCtxRetain(&primary, 0) ||
	    api.cuCtxSetCurrent(primary))
		tap_bail("CUDA does not begin");
}

/* In a child, as what is loaded here stays loaded in the cases. */
static bool has_cuda(void *unused)
{
	return dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
}

void skip_without_cuda(void)
{
	if (in_child(has_cuda, NULL))
		return;
	tap_skip("no GPU here");
	exit(tap_end());
}

static bool has_control(void *unused)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	return library && dlsym(library, "standin_fail");
}

bool stand_in_is_there(void)
{
	return in_child(has_control, NULL);
}

static void read_all(int fd)
{
	size_t used = 0;
	ssize_t got;

	do {
		got = read(fd, stderr_text + used, sizeof(stderr_text) - 1 - used);
		used += got > 0 ? (size_t)got : 0;
	} while (got > 0 || (got < 0 && errno == EINTR));
	stderr_text[used] = '\0';
}

static void run_body(bool (*body)(void), int fd)
{
	bool passed;

	alarm(CASE_SECONDS);
	dup2(fd, STDERR_FILENO);
	close(fd);
	load_cuda();
	passed = body();
	fflush(stdout);
	/* The end of a process, with what libraries do at it. */
	exit(!passed);
}

static void set_variables(va_list variables)
{
	char variable[512];
	const char *text;

	while ((text = va_arg(variables, const char *))) {
		char *equal;

		snprintf(variable, sizeof(variable), "%s", text);
		equal = strchr(variable, '=');
		if (equal)
			*equal = '\0';
		if (equal ? setenv(variable, equal + 1, 1) : unsetenv(variable))
			tap_bail("the environment cannot be set");
	}
}

void run_case(const char *what, bool (*body)(void), ...)
{
	int ends[2], status = -1;
	va_list variables;
	pid_t child;

	fflush(stdout);
	if (pipe(ends))
		tap_bail("pipe: %s", strerror(errno));
	child = fork();
	if (child < 0)
		tap_bail("fork: %s", strerror(errno));
	if (!child) {
		close(ends[0]);
		va_start(variables, body);
		set_variables(variables);
		va_end(variables);
		run_body(body, ends[1]);
	}
	close(ends[1]);
	read_all(ends[0]);
	close(ends[0]);
	waitpid(child, &status, 0);
	if (!ok(!status, "%s", what))
		printf("# status 0x%x, on stderr: %s\n", status, stderr_text);
}

bool told_at(unsigned int lines, const char *part, const char *file, int line)
{
	const char *at = stderr_text;
	unsigned int found = 0;
	bool has_part;

	while ((at = strstr(at, "actmem: "))) {
		found++;
		at++;
	}
	has_part = strstr(stderr_text, part);
	if (tap_ok(found == lines && has_part, file, line, "%u line%s told, with '%s'", lines,
		   lines == 1 ? " is" : "s are", part))
		return true;
	printf("# on stderr: %s\n", stderr_text);
	return false;
}

bool check_at(bool passed, const char *what, const char *file, int line)
{
	if (!passed)
		printf("# %s:%d: %s does not hold\n", file, line, what);
	fflush(stdout);
	return passed;
}

struct standin_counts counts_now(void)
{
	struct standin_counts counts = { 0 };

	if (api.standin_counts)
		api.standin_counts(&counts);
	return counts;
}

char *map_at(size_t bytes, size_t off)
{
	char *room = mmap(NULL, bytes + 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = room + (-(uintptr_t)room % (2 * MIB)) + 2 * MIB + off;

	if (room == MAP_FAILED)
		tap_bail("mmap: %s", strerror(errno));
	return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		    0);
}

char *map_untouched(size_t bytes)
{
	return map_at(bytes, 0);
}

bool is_in_region(const void *address)
{
	uintptr_t wanted = (uintptr_t)address;
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned long first, end, inode;
	bool in_region = false;
	char line[4096];

	/* Only a file has an inode; malloc mode names anonymous memory after actmem, too. */
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &first, &end, &inode) == 3 &&
		    wanted >= first && wanted < end)
			in_region = inode && strstr(line, "actmem");
	if (file)
		fclose(file);
	return in_region;
}

static bool try_block(size_t bytes, bool wants_region)
{
	void *memory;

	CHECK(!api.cuMemHostAlloc(&memory, bytes, 0) && is_in_region(memory) == wants_region);
	return !api.cuMemFreeHost(memory);
}

bool block_is_in_region(size_t bytes)
{
	return try_block(bytes, true);
}

bool block_is_of_driver(size_t bytes)
{
	return try_block(bytes, false);
}

bool range_is_of_driver(size_t bytes)
{
	char *memory = map_untouched(bytes);

	CHECK(!api.cuMemHostRegister_v2(memory, bytes, 0) && !is_in_region(memory));
	return !api.cuMemHostUnregister(memory) && !munmap(memory, bytes);
}

/* Each word is its own place, and whose it is. */
static uint64_t word_of(size_t i, unsigned int seed)
{
	return (uint64_t)seed << 48 ^ i * 0x9e3779b97f4a7c15ULL;
}

void fill(void *memory, size_t bytes, unsigned int seed)
{
	uint64_t *words = memory;
	size_t i;

	for (i = 0; i < bytes / sizeof(*words); i++)
		words[i] = word_of(i, seed);
}

bool is_filled(const void *memory, size_t bytes, unsigned int seed)
{
	const uint64_t *words = memory;
	size_t i;

	for (i = 0; i < bytes / sizeof(*words); i++)
		if (words[i] != word_of(i, seed))
			return false;
	return true;
}

unsigned int own_regions(uint64_t *bytes)
{
	struct actmem_region_info *regions;
	unsigned int own = 0;
	size_t count, i;

	*bytes = 0;
	if (actmem_region_list(&regions, &count))
		return 0;
	for (i = 0; i < count; i++) {
		if (regions[i].pid != getpid())
			continue;
		own++;
		*bytes += regions[i].length;
	}
	free(regions);
	return own;
}
