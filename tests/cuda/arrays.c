/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The memory of JAX's arrays where there is a GPU: registered before it is handed out,
 * let go of by XLA's views, and what is said where CUDA refuses; and where it is, which
 * is so for the store's too.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "xla/actmem_xla.h"
#include "xla/dlpack.h"
#include "xla/knobs.h"
#include "xla/memory.h"
#include "cuda_test.h"

#define CUDA_HOST	3	/* DLPack's kDLCUDAHost */

static struct cuda cuda;
static char words[1024];

static struct actmem_xla_array_stats stats_now(void)
{
	struct actmem_xla_array_stats stats = { .size = sizeof(stats) };

	if (actmem_xla_array_stats(&stats))
		tap_bail("actmem_xla_array_stats");
	return stats;
}

static int array_new(uint64_t bytes, uint32_t flags, struct actmem_xla_array **array,
		     void **address)
{
	words[0] = 0;
	return actmem_xla_array_new(bytes, flags, 0, array, address, words, sizeof(words));
}

static void array_says(const char *what)
{
	ok(strstr(words, what), "the words have \"%s\": %s", what, words);
}

/*
 * As any program sees it that uses the device, by its primary context. The manual knows
 * flags of what CUDA allocated alone.
 */
static bool is_registered(void *address)
{
	CUcontext owner;
	unsigned int flags;
	bool portable;

	push_primary(&cuda);
	portable = !cuda.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT,
					       (CUdeviceptr)(uintptr_t)address) &&
		   (!cuda.standin_counts || (!cuda.cuMemHostGetFlags(&flags, address) &&
					     flags & CU_MEMHOSTREGISTER_PORTABLE));
	pop_primary(&cuda);
	return portable;
}

static void nothing_is_left(void)
{
	struct actmem_xla_array_stats stats;

	returns(actmem_xla_trim(), 0);
	stats = stats_now();
	ok(!stats.blocks && !stats.bytes && !stats.views && !stats.region_bytes && !stats.cuda,
	   "no array, and no region of any");
	nothing_is_retained(&cuda);
}

/* What was opened for arrays can be closed after them. */
static void end_memory(void)
{
	struct actmem *am = actmem_xla_attached();

	nothing_is_left();
	if (!am)
		return;
	counters_are_zero(am);
	returns(actmem_xla_close(am), 0);
	ok(!actmem_xla_attached(), "closed memory is not attached");
}

static void test_view(void)
{
	static const int64_t shape[] = { 3, 1024 };
	struct actmem_xla_tensor_options options = { .size = sizeof(options) };
	struct actmem_xla_array *array, *other;
	struct dlpack_managed *managed;
	void *address, *tensor;

	returns(array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, &array, &address), 0);
	ok(is_registered(address) && is_registered((char *)address + LENGTH - 1),
	   "CUDA has all of it registered, for every context");
	ok(stats_now().cuda && stats_now().blocks == 1 && stats_now().bytes == LENGTH,
	   "and it is counted");
	returns(array_new(1, 0, &other, &tensor), 0);
	ok(is_registered(tensor), "what a CPU asks for meanwhile too");
	actmem_xla_array_drop(other);

	options.address = (char *)address + 4096;
	options.shape = shape;
	options.rank = 2;
	options.device_type = CUDA_HOST;
	options.device = 1;
	options.code = 2;
	options.bits = 32;
	returns(actmem_xla_tensor_new(array, &options, &tensor), 0);
	actmem_xla_array_drop(array);
	managed = tensor;
	ok(managed->tensor.data == (char *)address + 4096 && managed->tensor.rank == 2 &&
	   !memcmp(managed->tensor.shape, shape, sizeof(shape)) && !managed->tensor.strides &&
	   !managed->tensor.byte_offset, "a view says where it is, and its shape");
	ok(managed->tensor.device.type == CUDA_HOST && managed->tensor.device.id == 1 &&
	   managed->tensor.type.code == 2 && managed->tensor.type.bits == 32 &&
	   managed->tensor.type.width == 1, "which memory of which device, and its type");
	ok(stats_now().blocks == 1 && stats_now().views == 1, "it holds the block alone");
	memset(address, 5, LENGTH);
	returns(actmem_xla_trim(), 0);
	ok(is_registered(address), "which stays where it is meanwhile");
	managed->deleter(managed);
	ok(!stats_now().blocks, "and goes with it");
	nothing_is_left();
}

static void test_several(void)
{
	struct actmem_xla_array *arrays[20];
	bool registered = true;
	unsigned int i;
	void *address;

	for (i = 0; i < 20; i++) {
		if (array_new(MIB + i, ACTMEM_XLA_ARRAY_CUDA | ACTMEM_XLA_ARRAY_COPY, &arrays[i],
			      &address))
			tap_bail("actmem_xla_array_new");
		registered = registered && is_registered(address) &&
			     is_registered((char *)address + MIB + i - 1);
	}
	ok(registered && stats_now().region_bytes > 2 * LENGTH,
	   "so is what lies in further regions");
	ok(stats_now().copied_bytes_total == 20 * MIB + 190, "copies are counted");
	for (i = 0; i < 20; i++)
		actmem_xla_array_drop(arrays[i]);
	nothing_is_left();
}

/* With no GPU in the program, memory is the CPU's alone. */
static void test_without(void)
{
	struct actmem_xla_array *array, *other;
	void *address;

	returns(array_new(LENGTH, 0, &array, &address), 0);
	ok(!is_registered(address) && !stats_now().cuda, "nothing is registered unasked");
	memset(address, 6, LENGTH);
	returns(array_new(1, ACTMEM_XLA_ARRAY_CUDA, &other, &address), -EBUSY);
	array_says("but device 0 needs that");
	actmem_xla_array_drop(array);
	returns(array_new(1, ACTMEM_XLA_ARRAY_CUDA, &array, &address), 0);
	ok(is_registered(address), "once there is none, memory is made anew");
	actmem_xla_array_drop(array);
	nothing_is_left();
}

static int array_open(const char *path, uint64_t *bytes, uint32_t flags,
		      struct actmem_xla_array **array, void **address)
{
	words[0] = 0;
	return actmem_xla_array_open(path, bytes, flags, 0, array, address, words, sizeof(words));
}

/* Regions with names, which are made without CUDA and registered to be read. */
static void test_named(void)
{
	struct actmem_xla_array *array, *reader;
	char path[64], *address, *there;
	uint64_t bytes = 3 * MIB;

	snprintf(path, sizeof(path), "/dev/shm/actmem-cuda-arrays-%d", (int)getpid());
	returns(array_open(path, &bytes, ACTMEM_XLA_ARRAY_CUDA, &reader, (void **)&there), -ENOENT);
	array_says(path);
	returns(array_open(path, &bytes, ACTMEM_XLA_ARRAY_CUDA | ACTMEM_XLA_ARRAY_CREATE, &array,
			   (void **)&address), 0);
	ok(bytes == 4 * MIB && stats_now().bytes == bytes && stats_now().region_bytes == bytes,
	   "a region has whole pages, and is counted");
	ok(!is_registered(address), "who fills it needs no GPU");
	memset(address, 9, bytes);
	bytes = MIB;
	returns(array_open(path, &bytes, ACTMEM_XLA_ARRAY_CUDA | ACTMEM_XLA_ARRAY_CREATE, &reader,
			   (void **)&there), -EEXIST);
	returns(array_open(path, &bytes, ACTMEM_XLA_ARRAY_CUDA, &reader, (void **)&there), 0);
	ok(bytes == 4 * MIB && there[bytes - 1] == 9 && is_registered(there + bytes - 1),
	   "who reads it has it registered");
	actmem_xla_array_drop(array);
	actmem_xla_array_drop(reader);
	nothing_is_left();

	if (cuda.standin_fail) {
		cuda.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
		returns(array_open(path, &bytes, ACTMEM_XLA_ARRAY_CUDA, &reader,
				   (void **)&there), -ENOMEM);
		array_says("CUDA_ERROR_OUT_OF_MEMORY");
		nothing_is_left();

		returns(array_open(path, &bytes, ACTMEM_XLA_ARRAY_CUDA, &reader,
				   (void **)&there), 0);
		cuda.standin_fail("cuMemHostUnregister", 1, 2, CUDA_ERROR_ILLEGAL_ADDRESS);
		actmem_xla_array_drop(reader);
		ok(!stats_now().blocks && stats_now().region_bytes == bytes && is_registered(there),
		   "what CUDA does not let go of stays");
		returns(actmem_xla_trim(), -EIO);
		nothing_is_left();
	}
	unlink(path);
}

/* A block is on the node if it is >= 0, else there is no memory for it. */
static void test_block(int node, bool registered)
{
	struct actmem_key key = { .name = 1 };
	bool has_store;
	int ret;
	void *block;

	words[0] = 0;
	ret = memory_reserve(key, LENGTH, &block, &has_store, words, sizeof(words));
	if (node < 0) {
		ok(ret < 0, "so is that of blocks");
		array_says("1000");
	} else if (!ret) {
		memset(block, 1, LENGTH);
		ok(node_of(block) == node && is_registered(block) == registered,
		   "a block is where the user says, %sregistered", registered ? "" : "not ");
		memory_commit(key);
		memory_drop(key);
	} else {
		ok(false, "no block: %s", words);
	}
}

static void test_store(int node)
{
	uint64_t ring;

	returns(memory_pin(0, &ring, words, sizeof(words)), 0);
	test_block(node, true);
	nothing_is_left();
}

/* Where CUDA does not work, a program on a CPU finds the store as it was. */
static void test_refused_store(int node)
{
	uint64_t ring;

	cuda.standin_fail("cuDeviceGetCount", 1, 1, CUDA_ERROR_NOT_INITIALIZED);
	ok(memory_pin(0, &ring, words, sizeof(words)) < 0, "no store for a GPU");
	array_says("CUDA_ERROR_NOT_INITIALIZED");
	cuda.standin_fail("", 0, 0, 0);
	nothing_is_retained(&cuda);
	test_block(node, false);
	test_store(node);
}

/* A device that is where there is no memory: who asks for that node is told. */
static void test_nodes(void)
{
	struct actmem_nodes usable = usable_nodes();
	struct actmem_xla_array *array;
	char text[16];
	unsigned int node = 0;
	void *address;

	while (!has_node(&usable, node))
		node++;
	device_is_at("0000:17:00.0", "1000");
	end_memory();
	snprintf(text, sizeof(text), "%u", node);
	setenv("ACTMEM_NODES", text, 1);
	test_refused_store((int)node);
	end_memory();
	unsetenv("ACTMEM_NODES");
	ok(array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, &array, &address) < 0,
	   "memory is to be at the device");
	array_says("node 1000 has no memory");
	array_says("choose nodes with nodes= (ACTMEM_NODES); the device that uses this memory is at node 1000");
	end_memory();
	returns(actmem_xla_array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, 1, &array, &address, words,
				     sizeof(words)), 0);
	actmem_xla_array_drop(array);
	end_memory();
	test_store(-1);
	setenv("ACTMEM_NODES", "", 1);
	end_memory();
	test_store(-1);
	setenv("ACTMEM_NODES", text, 1);
	end_memory();
	test_store((int)node);
	end_memory();
	returns(array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, &array, &address), 0);
	memset(address, 1, LENGTH);
	ok(node_of(address) == (int)node, "or where the user says");
	actmem_xla_array_drop(array);
	nothing_is_left();
	end_memory();
	unsetenv("ACTMEM_NODES");
	sysfs_is_true();
}

static void test_failures(void)
{
	struct actmem_xla_array *array;
	void *address;

	setenv("ACTMEM_STRICT", "1", 1);
	cuda.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
	returns(array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, &array, &address), -ENOMEM);
	array_says("CUDA_ERROR_OUT_OF_MEMORY");
	array_says("ACTMEM_STRICT=1");
	ok(!stats_now().blocks && !stats_now().region_bytes, "and there is no array");
	nothing_is_left();

	unsetenv("ACTMEM_STRICT");
	cuda.standin_fail("cuMemHostRegister_v2", 1, 1, CUDA_ERROR_OUT_OF_MEMORY);
	returns(array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, &array, &address), 0);
	ok(is_registered(address) && counts_of(&cuda).allocated,
	   "where it need not be a region, it is memory of CUDA's own");
	memset(address, 1, LENGTH);
	actmem_xla_array_drop(array);
	nothing_is_left();

	cuda.standin_fail("cuDeviceGetCount", 1, 1, CUDA_ERROR_NOT_INITIALIZED);
	ok(array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, &array, &address) < 0,
	   "a CUDA that does not work is an error");
	array_says("CUDA_ERROR_NOT_INITIALIZED");
	cuda.standin_fail("", 0, 0, 0);
	nothing_is_left();

	/* What CUDA does not let go of stays, until it does. */
	returns(array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, &array, &address), 0);
	actmem_xla_array_drop(array);
	cuda.standin_fail("cuMemHostUnregister", 1, 2, CUDA_ERROR_ILLEGAL_ADDRESS);
	returns(actmem_xla_trim(), -EBUSY);
	ok(is_registered(address), "the region is there still");
	returns(array_new(LENGTH, ACTMEM_XLA_ARRAY_CUDA, &array, &address), 0);
	ok(is_registered(address), "arrays are made beside it");
	actmem_xla_array_drop(array);
	nothing_is_left();
}

int main(void)
{
	struct usage before;

	setenv("STANDIN_CUDA_DEVICES", "2", 1);
	cuda = cuda_or_skip();
	if (cuda.cuInit(0))
		tap_bail("cuInit");
	before = usage_now();
	setenv("ACTMEM_HEAP_GROW", "8M", 1);
	test_view();
	test_several();
	test_without();
	test_named();
	if (cuda.standin_fail) {
		test_failures();
		test_nodes();
	}
	end_memory();
	same_usage_of_ours(before);
	return tap_end();
}
