/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_test.h"
#include "machine/sysfile.h"

static const struct cuda *loaded;
static const char *sysfs, *log_path, *log_line;

int __real_sysfile_value(uint64_t *value, const char *format, ...);
int __wrap_sysfile_value(uint64_t *value, const char *format, ...);

int __wrap_sysfile_value(uint64_t *value, const char *format, ...)
{
	char path[PATH_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(path, sizeof(path), format, arguments);
	va_end(arguments);
	return __real_sysfile_value(value, "%s%s", sysfs ? sysfs : "", path);
}

int __real_sysfile_read(const char *path, char *text, size_t size);
int __wrap_sysfile_read(const char *path, char *text, size_t size);

int __wrap_sysfile_read(const char *path, char *text, size_t size)
{
	char other[PATH_MAX];

	snprintf(other, sizeof(other), "%s%s", sysfs ? sysfs : "", path);
	return sysfs && !__real_sysfile_read(other, text, size) ? 0 :
	       __real_sysfile_read(path, text, size);
}

void sysfs_has(const char *command)
{
	static char root[256];
	char text[1024];

	if (!sysfs) {
		make_folder(root, sizeof(root));
		sysfs = root;
	}
	snprintf(text, sizeof(text), "cd %s && %s", root, command);
	if (system(text))
		tap_bail("%s", text);
}

void device_is_at(const char *bus_id, const char *node)
{
	char command[256];

	snprintf(command, sizeof(command), "mkdir -p sys/bus/pci/devices/%s && "
		 "echo '%s' >sys/bus/pci/devices/%s/numa_node", bus_id, node, bus_id);
	sysfs_has(command);
}

void sysfs_is_true(void)
{
	sysfs_has("rm -r \"$PWD\"");
	sysfs = NULL;
}

void make_folder(char *path, size_t size)
{
	snprintf(path, size, "%s/cuda-XXXXXX", getenv("SPILL") ? getenv("SPILL") : "build/tests");
	if (!mkdtemp(path))
		tap_bail("%s", path);
}

static FILE *kept;
static int real_stderr;

void stderr_keep(void)
{
	kept = tmpfile();
	real_stderr = dup(STDERR_FILENO);
	if (!kept || real_stderr < 0 || dup2(fileno(kept), STDERR_FILENO) < 0)
		tap_bail("stderr");
}

unsigned int stderr_lines(const char *part)
{
	unsigned int count = 0;
	char line[4096];

	if (dup2(real_stderr, STDERR_FILENO) < 0)
		tap_bail("stderr");
	close(real_stderr);
	rewind(kept);
	while (fgets(line, sizeof(line), kept)) {
		printf("# on stderr: %s", line);
		count += !!strstr(line, part);
	}
	fclose(kept);
	return count;
}

int __real_kernel_log_open(const char *path);
int __wrap_kernel_log_open(const char *path);

/* The driver writes the line after that, and before its call returns. */
int __wrap_kernel_log_open(const char *path)
{
	int log = __real_kernel_log_open(log_path ? log_path : path);
	FILE *file = log_path && log >= 0 ? fopen(log_path, "ae") : NULL;

	if (file)
		ok(!counts_of(loaded).registered, "the log is opened before any chunk is registered");
	if (file && (fprintf(file, "4,1,2,-;%s\n", log_line) < 0 || fclose(file)))
		tap_bail("%s", log_path);
	return log;
}

void kernel_log_is(const char *path, const char *line)
{
	log_path = path;
	log_line = line;
}

struct cuda cuda_or_skip(void)
{
	static struct cuda cuda;
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		tap_skip("no GPU here (%s)", dlerror());
		exit(tap_end());
	}
#define FIND(name)							\
	*(void **)&cuda.name = dlsym(library, #name);			\
	if (!cuda.name)							\
		tap_bail("libcuda.so.1 has no " #name);
	CUDA_CALLS(FIND)
#undef FIND
	*(void **)&cuda.standin_counts = dlsym(library, "standin_counts");
	*(void **)&cuda.standin_fail = dlsym(library, "standin_fail");
	*(void **)&cuda.standin_slow = dlsym(library, "standin_slow");
	*(void **)&cuda.standin_poison = dlsym(library, "standin_poison");
	printf("# with %s\n", cuda.standin_counts ? "the stand-in" : "the real libcuda.so.1");
	loaded = &cuda;
	return cuda;
}

bool cuda_returned(CUresult got, CUresult wanted, const char *file, int line, const char *call)
{
	const char *name = "no name";
	bool passed = tap_ok(got == wanted, file, line, "%s returns %d", call, wanted);

	if (!passed) {
		loaded->cuGetErrorName(got, &name);
		printf("# returned %d (%s)\n", got, name);
	}
	return passed;
}

void same_usage_of_ours(struct usage before)
{
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);

	if (library && !dlsym(library, "standin_counts")) {
		printf("# the real libcuda.so.1 may have descriptors of its own\n");
		before.descriptors = usage_now().descriptors;
	}
	same_usage(before);
	if (library)
		dlclose(library);
}

CUcontext current_context(const struct cuda *cuda)
{
	CUcontext current = NULL;

	if (cuda->cuCtxGetCurrent(&current))
		tap_bail("cuCtxGetCurrent");
	return current;
}

void push_primary(const struct cuda *cuda)
{
	CUcontext primary;

	if (cuda->cuDevicePrimaryCtxRetain(&primary, 0) || cuda->cuCtxPushCurrent_v2(primary))
		tap_bail("no primary context");
}

void pop_primary(const struct cuda *cuda)
{
	CUcontext popped;

	if (cuda->cuCtxPopCurrent_v2(&popped) || cuda->cuDevicePrimaryCtxRelease_v2(0))
		tap_bail("the primary context stays");
}

struct standin_counts counts_of(const struct cuda *cuda)
{
	struct standin_counts counts = { 0 };

	if (cuda->standin_counts)
		cuda->standin_counts(&counts);
	return counts;
}

void slow(const struct cuda *cuda, const char *function, unsigned int microseconds)
{
	if (cuda->standin_slow)
		cuda->standin_slow(function, microseconds);
}

void nothing_is_registered(const struct cuda *cuda)
{
	struct standin_counts counts = counts_of(cuda);

	if (cuda->standin_counts)
		ok(!counts.registered && !counts.registered_bytes && !counts.allocated,
		   "CUDA has nothing registered (%llu ranges, %llu bytes)",
		   (unsigned long long)counts.registered, (unsigned long long)counts.registered_bytes);
}

void nothing_is_retained(const struct cuda *cuda)
{
	struct standin_counts counts = counts_of(cuda);

	nothing_is_registered(cuda);
	if (cuda->standin_counts)
		ok(!counts.retained && !counts.contexts, "no context is left (%llu, retained %llu times)",
		   (unsigned long long)counts.contexts, (unsigned long long)counts.retained);
}

void nothing_is_on_devices(const struct cuda *cuda)
{
	struct standin_counts counts = counts_of(cuda);
	unsigned int rounds;

	/* Streams that were destroyed end by themselves. */
	for (rounds = 0; rounds < 2000 && (counts.operations || counts.streams); rounds++) {
		usleep(1000);
		counts = counts_of(cuda);
	}
	if (cuda->standin_counts)
		ok(!counts.device_allocations && !counts.device_bytes && !counts.streams && !counts.events,
		   "devices have nothing left (%llu allocations, %llu streams, %llu events)",
		   (unsigned long long)counts.device_allocations, (unsigned long long)counts.streams,
		   (unsigned long long)counts.events);
}

struct actmem *cuda_begin(struct cuda *cuda, struct usage *before)
{
	*cuda = cuda_or_skip();
	if (cuda->cuInit(0))
		tap_bail("cuInit");
	*before = usage_now();
	return open_or_bail();
}

int cuda_end(const struct cuda *cuda, struct actmem *am, struct usage before)
{
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	nothing_is_retained(cuda);
	same_usage_of_ours(before);
	return tap_end();
}

/* With 0, the chunks have the default length. */
static struct actmem_runtime *open_runtime(struct actmem *am, enum actmem_runtime_kind kind,
					   uint64_t chunk_bytes)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options), .kind = kind, .chunk_bytes = chunk_bytes,
	};
	struct actmem_runtime *runtime;

	if (actmem_runtime_open(am, &options, &runtime))
		tap_bail("actmem_runtime_open");
	return runtime;
}

struct actmem_runtime *runtime_or_bail(struct actmem *am, enum actmem_runtime_kind kind)
{
	struct actmem_runtime *runtime = open_runtime(am, kind, CHUNK);

	printf("# %s\n", actmem_runtime_describe(runtime));
	return runtime;
}

struct actmem_runtime *whole_runtime_or_bail(struct actmem *am)
{
	return open_runtime(am, ACTMEM_RUNTIME_CUDA, 0);
}

struct actmem_runtime_info runtime_info(struct actmem_runtime *runtime)
{
	struct actmem_runtime_info info = { .size = sizeof(info) };

	if (actmem_runtime_get_info(runtime, &info))
		tap_bail("actmem_runtime_get_info");
	return info;
}

struct actmem_registration registration_of(struct actmem_region *region)
{
	struct actmem_registration registration = { .size = sizeof(registration) };

	if (actmem_region_get_registration(region, &registration))
		tap_bail("actmem_region_get_registration");
	return registration;
}
