/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A region is registered in chunks, has addresses for devices, stays as it is for as
 * long, and is unregistered; what is refused.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_test.h"

static struct cuda cuda;

static void test_counts(struct actmem_runtime *runtime, unsigned int regions)
{
	struct actmem_runtime_info info = runtime_info(runtime);
	struct standin_counts counts;

	ok(info.regions == regions && info.bytes == regions * LENGTH &&
	   info.chunks == regions * (LENGTH / CHUNK) && !info.far_bytes,
	   "%u regions are counted, in %llu chunks", regions, (unsigned long long)info.chunks);
	if (!cuda.standin_counts)
		return;
	cuda.standin_counts(&counts);
	ok(counts.registered == info.chunks && counts.registered_bytes == info.bytes,
	   "and CUDA has as many");
}

/* Each chunk by itself: an address is of use up to its chunk's end. */
static void test_pointers(struct actmem_runtime *runtime, char *memory)
{
	const uint64_t offsets[] = { 0, 4096, CHUNK - 1, CHUNK, LENGTH - 1 };
	uint64_t pointer, bytes;
	CUdeviceptr wanted;
	unsigned int i;

	push_primary(&cuda);
	for (i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		returns(actmem_runtime_pointer(runtime, memory + offsets[i], &pointer, &bytes), 0);
		cuda_ok(cuda.cuMemHostGetDevicePointer_v2(&wanted, memory + offsets[i], 0));
		ok(pointer == wanted && bytes == CHUNK - offsets[i] % CHUNK,
		   "the device has %llu as CUDA says, and %llu bytes from there",
		   (unsigned long long)offsets[i], (unsigned long long)bytes);
	}
	pop_primary(&cuda);
	returns(actmem_runtime_pointer(runtime, memory + LENGTH, &pointer, NULL), -ENOENT);
	returns(actmem_runtime_pointer(runtime, memory - 1, &pointer, NULL), -ENOENT);
	says("not in a region that is registered");
}

static void test_region(struct actmem *am, struct actmem_runtime *runtime)
{
	struct actmem_region *region = region_or_bail(am, "registered");
	struct actmem_registration registration;
	char *memory = memory_or_bail(region);

	returns(actmem_region_unregister(region), -ENOENT);
	returns(actmem_region_register(region, runtime, ACTMEM_REGISTER_DEVICEMAP), 0);
	ok(!*actmem_error(), "without a word");
	registration = registration_of(region);
	ok(registration.address == memory && registration.length == LENGTH &&
	   registration.chunks == LENGTH / CHUNK && !registration.lost_chunks &&
	   registration.flags == ACTMEM_REGISTER_DEVICEMAP, "it is registered where it is mapped");
	printf("# CUDA has it with flags 0x%x\n", registration.runtime_flags);
	if (cuda.standin_counts)
		ok(registration.runtime_flags ==
		   (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
		   "for all contexts, and mapped");
	test_counts(runtime, 1);
	test_pointers(runtime, memory);
	setenv("STANDIN_CUDA_ADDRESSES", "apart", 1);
	test_pointers(runtime, memory);
	unsetenv("STANDIN_CUDA_ADDRESSES");

	returns(actmem_region_register(region, runtime, 0), -EEXIST);
	says("already registered");
	returns(actmem_region_discard(region, 0, LENGTH), -EBUSY);
	says("actmem_region_unregister()");
	returns(actmem_region_close(region), -EBUSY);
	says("actmem_region_unregister()");
	returns(actmem_runtime_close(runtime), -EBUSY);
	says("1 regions");
	returns(actmem_region_unmap(region), 0);
	memset(memory, 7, LENGTH);
	ok(memory[LENGTH - 1] == 7, "it stays mapped as long as it is registered");
	returns(actmem_region_unregister(region), 0);
	ok(!*actmem_error(), "without a word");
	test_counts(runtime, 0);
	nothing_is_registered(&cuda);
	returns(actmem_region_unmap(region), -EINVAL);

	returns(actmem_region_register(region, runtime, 0), 0);
	returns(actmem_region_unregister(region), 0);
	ok(!runtime_info(runtime).lost_total && runtime_info(runtime).regions_total == 2,
	   "it can be registered again, and CUDA forgot nothing");
	returns(actmem_region_close(region), 0);
}

static void test_lazy(struct actmem *am, struct actmem_runtime *runtime)
{
	struct actmem_region *region;

	returns(create_region(am, LENGTH, ACTMEM_REGION_LAZY, &region), 0);
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(info_or_bail(region).allocated_bytes == LENGTH, "pages that were missing are there");
	returns(actmem_region_unregister(region), 0);
	returns(actmem_region_discard(region, 0, LENGTH), 0);
	returns(actmem_region_close(region), 0);
}

/* The last chunk is shorter; one is longer than the region. */
static void test_chunks(struct actmem *am, uint64_t chunk_bytes, unsigned int chunks)
{
	struct actmem_region *region = region_or_bail(am, "in chunks");
	char *memory = memory_or_bail(region);
	struct actmem_runtime_options options;
	struct actmem_runtime *runtime;
	uint64_t pointer, bytes;

	ACTMEM_INIT(&options);
	options.chunk_bytes = chunk_bytes;
	returns(actmem_runtime_open(am, &options, &runtime), 0);
	returns(actmem_region_register(region, runtime, ACTMEM_REGISTER_DEVICEMAP), 0);
	ok(registration_of(region).chunks == chunks && runtime_info(runtime).chunks == chunks &&
	   runtime_info(runtime).bytes == LENGTH, "%u chunks of up to %llu", chunks,
	   (unsigned long long)runtime_info(runtime).chunk_bytes);
	returns(actmem_runtime_pointer(runtime, memory + LENGTH - 4096, &pointer, &bytes), 0);
	ok(bytes == 4096, "the last bytes are as many as there are");
	returns(actmem_region_unregister(region), 0);
	nothing_is_registered(&cuda);
	returns(actmem_runtime_close(runtime), 0);
	returns(actmem_region_close(region), 0);
}

static void register_to_read(struct actmem_region *region, struct actmem_runtime *runtime)
{
	int supported = 0, error;

	cuda.cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED,
				  0);
	error = actmem_region_register(region, runtime, ACTMEM_REGISTER_READ_ONLY);
	ok(error == (supported ? 0 : -EOPNOTSUPP), "to be read it can be registered: %d (%s)",
	   error, actmem_error());
	if (!error)
		returns(actmem_region_unregister(region), 0);
	else
		says("does not support read-only registration");
}

/* Opened to read: devices only read it, too. */
static void test_read_only(struct actmem *am, struct actmem_runtime *runtime)
{
	const char *path = "/dev/shm/actmem-test-read-only";
	struct actmem_region_options options = { .size = sizeof(options), .length = LENGTH };
	struct actmem_region *made, *region;

	returns(actmem_region_open(am, path, &options, ACTMEM_OPEN_CREATE, &made), 0);
	returns(actmem_region_open(am, path, &options, ACTMEM_OPEN_READ, &region), 0);
	returns(actmem_region_register(region, runtime, 0), -EPERM);
	says("ACTMEM_REGISTER_READ_ONLY");
	register_to_read(region, runtime);
	/* Of no effect on a real one. */
	setenv("STANDIN_CUDA_READ_ONLY", "0", 1);
	register_to_read(region, runtime);
	unsetenv("STANDIN_CUDA_READ_ONLY");
	returns(actmem_region_close(region), 0);
	returns(actmem_region_close(made), 0);
	remove(path);
}

/* A part of it is the program's own already: none of it is registered then. */
static void test_taken(struct actmem *am, struct actmem_runtime *runtime)
{
	struct actmem_region *region = region_or_bail(am, "taken");
	char *memory = memory_or_bail(region);
	uint64_t failures = runtime_info(runtime).failures_total;
	CUcontext primary;

	push_primary(&cuda);
	primary = current_context(&cuda);
	cuda_ok(cuda.cuMemHostRegister_v2(memory + LENGTH - 4096, 4096, 0));
	returns(actmem_region_register(region, runtime, 0), -EEXIST);
	says("CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
	says("DmaMap");
	ok(!runtime_info(runtime).regions && !runtime_info(runtime).bytes &&
	   runtime_info(runtime).failures_total == failures + 1, "which is counted");
	cuda_ok(cuda.cuMemHostUnregister(memory + LENGTH - 4096));
	test_counts(runtime, 0);
	returns(actmem_region_register(region, runtime, 0), 0);
	returns(actmem_region_unregister(region), 0);
	ok(current_context(&cuda) == primary, "the context that was current still is");
	pop_primary(&cuda);
	returns(actmem_region_close(region), 0);
}

#define OPTIONS	.size = sizeof(struct actmem_runtime_options)

static void test_refusals(struct actmem *am, struct actmem_runtime *runtime)
{
	static const struct {
		struct actmem_runtime_options options;
		int error;
		const char *words;
	} bad[] = {
		{ { OPTIONS, .kind = 17 }, -EINVAL, "runtime 17" },
		{ { OPTIONS, .device = -1 }, -EINVAL, "device is -1" },
		{ { OPTIONS, .kind = ACTMEM_RUNTIME_CUDA, .device = 1000 }, -ENODEV, "there is no device 1000" },
		{ { OPTIONS, .kind = ACTMEM_RUNTIME_AUTO, .device = 1000 }, -ENODEV, "there is no device 1000" },
		{ { OPTIONS, .chunk_bytes = 4096 }, -EINVAL, "chunk_bytes is 4096" },
		{ { OPTIONS, .chunk_bytes = 65ULL << 30 }, -EINVAL, "64 GiB" },
		{ { .size = 4 }, -EINVAL, "ACTMEM_INIT" },
	};
	struct actmem_region *region = region_or_bail(am, "refused");
	struct actmem_registration registration = { .size = sizeof(registration) };
	struct actmem_runtime *none;
	uint64_t pointer;
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		returns(actmem_runtime_open(am, &bad[i].options, &none), bad[i].error);
		says(bad[i].words);
	}
	returns(actmem_runtime_open(NULL, NULL, &none), -EINVAL);
	returns(actmem_runtime_open(am, NULL, NULL), -EINVAL);
	returns(actmem_runtime_close(NULL), -EINVAL);
	returns(actmem_runtime_get_info(NULL, NULL), -EINVAL);
	returns(actmem_runtime_get_info(runtime, NULL), -EINVAL);
	returns(actmem_runtime_nodes(runtime, NULL), -EINVAL);
	returns(actmem_region_register(NULL, runtime, 0), -EINVAL);
	returns(actmem_region_register(region, NULL, 0), -EINVAL);
	returns(actmem_region_register(region, runtime, 1U << 31), -EINVAL);
	says("0x80000000");
	returns(actmem_region_unregister(NULL), -EINVAL);
	returns(actmem_region_get_registration(region, &registration), -ENOENT);
	returns(actmem_runtime_pointer(runtime, region, NULL, NULL), -EINVAL);
	returns(actmem_runtime_pointer(NULL, region, &pointer, NULL), -EINVAL);
	ok(actmem_runtime_describe(NULL), "no runtime can be described");
	returns(actmem_region_close(region), 0);
}

int main(void)
{
	struct usage before;
	struct actmem *am, *other;
	struct actmem_runtime *runtime;
	struct actmem_region *region;
	struct actmem_runtime_info info;

	am = cuda_begin(&cuda, &before);
	runtime = runtime_or_bail(am, ACTMEM_RUNTIME_AUTO);
	info = runtime_info(runtime);
	ok(info.kind == ACTMEM_RUNTIME_CUDA && info.chunk_bytes == CHUNK && !info.device,
	   "AUTO is CUDA where that is there");
	ok(strstr(actmem_runtime_describe(runtime), info.text) && strstr(info.text, "CUDA 1"),
	   "its description names the device: %s", info.text);
	test_region(am, runtime);
	test_lazy(am, runtime);
	test_chunks(am, 3 * CHUNK, 2);
	test_chunks(am, 0, 1);
	test_read_only(am, runtime);
	test_taken(am, runtime);
	test_refusals(am, runtime);
	other = open_or_bail();
	region = region_or_bail(other, "of another");
	returns(actmem_region_register(region, runtime, 0), -EINVAL);
	says("different calls of actmem_open()");
	returns(actmem_region_close(region), 0);
	returns(actmem_close(other), 0);
	ok(!current_context(&cuda), "no context is current, as before");
	returns(actmem_close(am), -EBUSY);
	says("1 runtimes");
	returns(actmem_runtime_close(runtime), 0);
	return cuda_end(&cuda, am, before);
}
