// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * What the driver says of memory that it registered or allocated, and what it refuses.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"

#define BYTES	(8 * MIB)

static void tell(CUresult result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A fact whose answer is a result alone. */
static void tell(CUresult result, const char *format, ...)
{
	char question[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(question, sizeof(question), format, arguments);
	va_end(arguments);
	fact(error_name(result), "%s", question);
}

void ask_device(void)
{
	static const struct {
		CUdevice_attribute attribute;
		const char *name;
	} attributes[] = {
		{ CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing" },
		{ CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
		  "can use host pointer for registered memory" },
		{ CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, "host register supported" },
		{ CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
		  "read-only host register supported" },
		{ CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, "pageable memory access" },
		{ CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, "copy engines" },
		{ CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, "host NUMA node" },
	};
	char text[256] = "", path[128], lower[32] = "", bus_id[32] = "";
	unsigned int i, j;
	int value = 0;
	FILE *file;

	cuda.cuDriverGetVersion(&value);
	snprintf(text, sizeof(text), "%d", value);
	fact(text, "version of the driver's CUDA");
	if (!cuda.cuDeviceGetName(text, sizeof(text), 0))
		fact(text, "name");
	if (!cuda.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id), 0))
		fact(bus_id, "PCI bus id");
	for (j = 0; bus_id[j] && j + 1 < sizeof(lower); j++)
		lower[j] = bus_id[j] >= 'A' && bus_id[j] <= 'F' ? (char)(bus_id[j] + 32) : bus_id[j];
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", lower);
	file = fopen(path, "r");
	if (file && fscanf(file, "%d", &value) == 1)
		snprintf(text, sizeof(text), "%d", value);
	else
		snprintf(text, sizeof(text), "%s: %s", path, strerror(errno));
	if (file)
		fclose(file);
	fact(text, "NUMA node in sysfs");
	for (i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		CUresult result = cuda.cuDeviceGetAttribute(&value, attributes[i].attribute, 0);

		snprintf(text, sizeof(text), "%d", value);
		fact(result ? error_name(result) : text, "%s", attributes[i].name);
	}
}

static void ask_flags_of(const char *what, void *address)
{
	unsigned int flags = 0xdead;
	CUresult result = cuda.cuMemHostGetFlags(&flags, address);
	char answer[64];

	snprintf(answer, sizeof(answer), "0x%x", flags);
	fact(result ? error_name(result) : answer, "cuMemHostGetFlags of %s", what);
}

static void ask_pointer(const char *what, void *address)
{
	static const struct {
		CUpointer_attribute attribute;
		const char *name;
	} attributes[] = {
		{ CU_POINTER_ATTRIBUTE_CONTEXT, "CONTEXT" },
		{ CU_POINTER_ATTRIBUTE_MEMORY_TYPE, "MEMORY_TYPE" },
		{ CU_POINTER_ATTRIBUTE_DEVICE_POINTER, "DEVICE_POINTER" },
		{ CU_POINTER_ATTRIBUTE_HOST_POINTER, "HOST_POINTER" },
		{ CU_POINTER_ATTRIBUTE_BUFFER_ID, "BUFFER_ID" },
		{ CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, "RANGE_START_ADDR" },
		{ CU_POINTER_ATTRIBUTE_RANGE_SIZE, "RANGE_SIZE" },
		{ CU_POINTER_ATTRIBUTE_MAPPED, "MAPPED" },
	};
	unsigned int i;
	char answer[64];

	for (i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		unsigned long long value = 0;
		CUresult result = cuda.cuPointerGetAttribute(&value, attributes[i].attribute,
							     (CUdeviceptr)(uintptr_t)address);

		if (result)
			snprintf(answer, sizeof(answer), "%s", error_name(result));
		else if (value >= (uintptr_t)address - BYTES && value <= (uintptr_t)address + BYTES)
			snprintf(answer, sizeof(answer), "the address %+lld",
				 (long long)(value - (uintptr_t)address));
		else
			snprintf(answer, sizeof(answer), "0x%llx", value);
		fact(answer, "cuPointerGetAttribute(%s) of %s", attributes[i].name, what);
	}
}

void ask_flags(void)
{
	static const unsigned int alloc_flags[] = { 0, CU_MEMHOSTALLOC_PORTABLE,
						    CU_MEMHOSTALLOC_WRITECOMBINED };
	char *memory = map_memory(MEMORY_MEMFD, BYTES), *allocated = NULL, what[64];
	unsigned int i;

	for (i = 0; i < sizeof(alloc_flags) / sizeof(alloc_flags[0]); i++) {
		snprintf(what, sizeof(what), "cuMemHostAlloc(0x%x)", alloc_flags[i]);
		if (cuda.cuMemHostAlloc((void **)&allocated, BYTES, alloc_flags[i]))
			continue;
		ask_flags_of(what, allocated);
		if (!i)
			ask_pointer(what, allocated);
		cuda.cuMemFreeHost(allocated);
	}
	if (!cuda.cuMemAllocHost_v2((void **)&allocated, BYTES)) {
		ask_flags_of("cuMemAllocHost", allocated);
		ask_flags_of("the middle of cuMemAllocHost", allocated + BYTES / 2);
		cuda.cuMemFreeHost(allocated);
		ask_pointer("cuMemAllocHost's after it was freed", allocated);
	}
	if (!memory)
		return;
	ask_flags_of("memory that is not registered", memory);
	ask_pointer("memory that is not registered", memory);
	for (i = 0; i < 4; i++) {
		snprintf(what, sizeof(what), "memory registered with 0x%x", i);
		if (cuda.cuMemHostRegister_v2(memory, BYTES, i))
			continue;
		ask_flags_of(what, memory);
		if (i == 3) {
			ask_flags_of("the middle of registered memory", memory + BYTES / 2);
			ask_flags_of("the byte after registered memory", memory + BYTES);
			ask_pointer("registered memory", memory);
			ask_pointer("the middle of registered memory", memory + BYTES / 2);
		}
		cuda.cuMemHostUnregister(memory);
	}
	ask_flags_of("memory that was registered", memory);
	ask_pointer("memory that was registered", memory);
	munmap(memory, BYTES);
}

/* Registers it, and undoes that. */
static void ask_register(const char *what, void *address, size_t bytes, unsigned int flags)
{
	CUresult result = cuda.cuMemHostRegister_v2(address, bytes, flags);

	tell(result, "cuMemHostRegister(0x%x) of %s", flags, what);
	if (!result)
		tell(cuda.cuMemHostUnregister(address), "cuMemHostUnregister of %s", what);
}

void ask_registering(void)
{
	char *memory, what[96];
	unsigned int kind;

	for (kind = 0; kind < MEMORY_KINDS; kind++) {
		memory = map_memory(kind, BYTES);
		if (!memory) {
			fact(strerror(errno), "a mapping of %s", memory_names[kind]);
			continue;
		}
		snprintf(what, sizeof(what), "%s, not touched", memory_names[kind]);
		ask_register(what, memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE);
		memset(memory, 1, BYTES);
		snprintf(what, sizeof(what), "%s, touched", memory_names[kind]);
		ask_register(what, memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE);
		if (!mprotect(memory, BYTES, PROT_READ)) {
			snprintf(what, sizeof(what), "%s, read-only", memory_names[kind]);
			ask_register(what, memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE);
			ask_register(what, memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE |
				     CU_MEMHOSTREGISTER_READ_ONLY);
		}
		munmap(memory, BYTES);
	}
	memory = map_memory(MEMORY_MEMFD, BYTES);
	if (!memory)
		return;
	ask_register("0 bytes", memory, 0, 0);
	ask_register("an odd address", memory + 4097, BYTES / 2, 0);
	ask_register("an odd length", memory, BYTES / 2 + 1, 0);
	if (!cuda.cuMemHostRegister_v2(memory, BYTES / 2, CU_MEMHOSTREGISTER_PORTABLE)) {
		ask_register("the same again", memory, BYTES / 2, CU_MEMHOSTREGISTER_PORTABLE);
		ask_register("what overlaps it", memory + BYTES / 4, BYTES / 2,
			     CU_MEMHOSTREGISTER_PORTABLE);
		ask_register("a part of it", memory + BYTES / 8, BYTES / 8,
			     CU_MEMHOSTREGISTER_PORTABLE);
		ask_register("what follows it", memory + BYTES / 2, BYTES / 2,
			     CU_MEMHOSTREGISTER_PORTABLE);
		cuda.cuMemHostUnregister(memory);
	}
	munmap(memory, BYTES);
}

void ask_freeing(void)
{
	char *memory = map_memory(MEMORY_MEMFD, BYTES), *allocated = NULL;
	char *own = malloc(BYTES);

	tell(cuda.cuMemFreeHost(NULL), "cuMemFreeHost of NULL");
	tell(cuda.cuMemFreeHost(own), "cuMemFreeHost of malloc()'s");
	tell(cuda.cuMemHostUnregister(own), "cuMemHostUnregister of what never was registered");
	free(own);
	if (memory && !cuda.cuMemHostRegister_v2(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE)) {
		tell(cuda.cuMemFreeHost(memory), "cuMemFreeHost of registered memory");
		tell(cuda.cuMemHostUnregister(memory + BYTES / 2),
		     "cuMemHostUnregister of the middle");
		tell(cuda.cuMemHostUnregister(memory), "cuMemHostUnregister after these");
		tell(cuda.cuMemHostUnregister(memory), "cuMemHostUnregister a second time");
	}
	if (!cuda.cuMemHostAlloc((void **)&allocated, BYTES, CU_MEMHOSTALLOC_PORTABLE)) {
		tell(cuda.cuMemHostUnregister(allocated), "cuMemHostUnregister of cuMemHostAlloc's");
		tell(cuda.cuMemFreeHost(allocated + BYTES / 2), "cuMemFreeHost of the middle");
		tell(cuda.cuMemHostRegister_v2(allocated, BYTES, 0),
		     "cuMemHostRegister of cuMemHostAlloc's");
		tell(cuda.cuMemFreeHost(allocated), "cuMemFreeHost after these");
		tell(cuda.cuMemFreeHost(allocated), "cuMemFreeHost a second time");
	}
	tell(cuda.cuMemHostAlloc((void **)&allocated, 0, 0), "cuMemHostAlloc of 0 bytes");
}

/* Another mapping over one that a program made to register it: as a region would be. */
static void ask_mapped_over(enum memory_kind kind)
{
	char *address = map_memory(MEMORY_PRIVATE, BYTES);
	int fd = open_memory(kind, BYTES);

	if (!address || fd < 0 ||
	    mmap(address, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
	    MAP_FAILED)
		fact(strerror(errno), "%s mapped over private memory", memory_names[kind]);
	else
		ask_register(kind == MEMORY_MEMFD ? "memfd 4K mapped over private memory" :
			     "memfd hugetlb 2M mapped over private memory", address, BYTES,
			     CU_MEMHOSTREGISTER_PORTABLE);
	if (fd >= 0)
		close(fd);
}

void ask_mapping(void)
{
	char *both = reserve(2 * BYTES), *memory;
	int first = open_memory(MEMORY_MEMFD, BYTES), second = open_memory(MEMORY_MEMFD, BYTES);
	int status = -1;
	pid_t child;

	ask_mapped_over(MEMORY_MEMFD);
	ask_mapped_over(MEMORY_MEMFD_2M);
	if (both && first >= 0 && second >= 0 &&
	    mmap(both, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, first, 0) == both &&
	    mmap(both + BYTES, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, second, 0) ==
	    both + BYTES)
		ask_register("two files side by side", both, 2 * BYTES, CU_MEMHOSTREGISTER_PORTABLE);
	memory = map_memory(MEMORY_MEMFD, BYTES);
	if (!memory || cuda.cuMemHostRegister_v2(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE))
		return;
	fact(madvise(memory, BYTES, MADV_DONTFORK) ? strerror(errno) : "possible",
	     "madvise(MADV_DONTFORK) of registered memory");
	madvise(memory, BYTES, MADV_DOFORK);
	memory[0] = 42;
	child = fork();
	if (!child)
		_exit(memory[0] != 42);
	if (child > 0)
		waitpid(child, &status, 0);
	fact(!status ? "yes" : "no", "a child reads what its parent registered");
	cuda.cuMemHostUnregister(memory);
	munmap(memory, BYTES);
}

void ask_unmapping(void)
{
	char *memory = map_memory(MEMORY_MEMFD, BYTES);

	if (!memory || cuda.cuMemHostRegister_v2(memory, BYTES, CU_MEMHOSTREGISTER_PORTABLE))
		return;
	munmap(memory, BYTES);
	tell(cuda.cuMemHostUnregister(memory), "cuMemHostUnregister after munmap");
}

/* Lines of smaps and status about @address: how its pages are counted. */
static void print_smaps(const char *what, const char *address)
{
	static const char *const wanted[] = { "Size:", "Rss:", "Pss:", "Locked:", "VmFlags:",
					      "AnonHugePages:", "ShmemPmdMapped:" };
	unsigned long start = 0, end = 0, a, b;
	char line[512], answer[1024] = "";
	FILE *file = fopen("/proc/self/smaps", "r");
	unsigned int i;

	while (file && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "%lx-%lx ", &a, &b) == 2) {
			start = a;
			end = b;
			if ((unsigned long)address >= start && (unsigned long)address < end)
				strncat(answer, strchr(line, ' '), sizeof(answer) - strlen(answer) - 1);
			continue;
		}
		if ((unsigned long)address < start || (unsigned long)address >= end)
			continue;
		for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
			if (!strncmp(line, wanted[i], strlen(wanted[i]))) {
				strncat(answer, "; ", sizeof(answer) - strlen(answer) - 1);
				strncat(answer, line, sizeof(answer) - strlen(answer) - 1);
			}
	}
	if (file)
		fclose(file);
	fact(answer, "smaps of %s", what);
	file = fopen("/proc/self/status", "r");
	answer[0] = '\0';
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "VmLck", 5) || !strncmp(line, "VmPin", 5) ||
		    !strncmp(line, "VmRSS", 5) || !strncmp(line, "RssShmem", 8)) {
			line[strcspn(line, "\n")] = ' ';
			strncat(answer, line, sizeof(answer) - strlen(answer) - 1);
		}
	if (file)
		fclose(file);
	fact(answer, "status with %s", what);
}

void ask_smaps(void)
{
	char *allocated = NULL, *memory;

	if (!cuda.cuMemHostAlloc((void **)&allocated, 64 * MIB, CU_MEMHOSTALLOC_PORTABLE)) {
		print_smaps("64 MiB of cuMemHostAlloc", allocated);
		cuda.cuMemFreeHost(allocated);
	}
	memory = map_memory(MEMORY_MEMFD, 64 * MIB);
	if (memory && !cuda.cuMemHostRegister_v2(memory, 64 * MIB, CU_MEMHOSTREGISTER_PORTABLE)) {
		print_smaps("64 MiB of memfd 4K, registered", memory);
		cuda.cuMemHostUnregister(memory);
		print_smaps("the same, unregistered", memory);
	}
}
