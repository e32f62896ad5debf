// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Memory of arrays; see arrays.h.
 *
 * Who ends a hold may be any thread of XLA's, or Python's collector in a forked child,
 * where a lock may never be free again. So that end takes no lock of this file: the
 * heap is there as long as @now.blocks is not 0, and who makes a block counts it with
 * @in_use held.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "actmem_runtime.h"
#include "arrays.h"
#include "counts.h"
#include "memory.h"

#define ALIGNMENT	256	/* XLA wants 64 on a CPU, and 256 on a GPU */
#define PAGE		4096	/* direct I/O wants that, of what is as long */

struct actmem_xla_array {
	atomic_uint holds;
	void *address;
	uint64_t bytes;
};

static pthread_rwlock_t in_use = PTHREAD_RWLOCK_INITIALIZER;
static struct actmem *opened;
static struct knobs knobs;
static struct actmem_heap *heap;
static int on_cuda;			/* the heap is registered with @runtime */
static struct actmem_runtime *runtime;

static struct {
	_Atomic uint64_t blocks, bytes, bytes_peak, views, blocks_total, views_total,
		copied_bytes_total;
} now;

static int explain(int ret, char *words, size_t words_size)
{
	const char *why = actmem_error();

	snprintf(words, words_size, "%s%s", why, knobs_for(&knobs, why));
	return ret;
}

static int make_heap(void)
{
	struct actmem_heap_options options;

	ACTMEM_INIT(&options);
	ACTMEM_INIT(&options.region);
	options.grow_bytes = knobs.grow_bytes;
	options.limit_bytes = knobs.limit_bytes;
	options.region.name = "arrays";
	return actmem_heap_create(opened, &options, &heap);
}

static int register_heap(void)
{
	struct actmem_runtime_options options;
	int ret = 0;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_CUDA;
	if (!runtime)
		ret = actmem_runtime_open(opened, &options, &runtime);
	return ret ? ret : actmem_heap_register(heap, runtime, 0);
}

/* What it can; the rest stays for the next try. With @in_use held for writing. */
static int end_all(void)
{
	int ret = 0;

	if (heap)
		ret = actmem_heap_destroy(heap);
	if (ret)
		return ret;
	heap = NULL;
	/* It has regions still if CUDA would not let go of them. */
	if (runtime)
		ret = actmem_runtime_close(runtime);
	if (ret)
		return ret;
	runtime = NULL;
	knobs_forget(&knobs);
	memory_close();
	opened = NULL;
	return 0;
}

/* With @in_use held for writing. */
static int open_heap(int cuda, char *words, size_t words_size)
{
	int ret = 0;

	if (!opened)
		ret = memory_open(&opened, &knobs, words, words_size);
	if (ret)
		return ret;
	ret = make_heap();
	if (!ret && cuda)
		ret = register_heap();
	if (ret) {
		explain(ret, words, words_size);
		end_all();
	} else {
		on_cuda = cuda;
	}
	return ret;
}

/* With @in_use held for reading and the heap made, or failed. */
static int enter(int cuda, char *words, size_t words_size)
{
	int ret = 0;

	pthread_rwlock_rdlock(&in_use);
	while (!heap) {
		pthread_rwlock_unlock(&in_use);
		pthread_rwlock_wrlock(&in_use);
		if (!heap)
			ret = open_heap(cuda, words, words_size);
		pthread_rwlock_unlock(&in_use);
		if (ret)
			return ret;
		pthread_rwlock_rdlock(&in_use);
	}
	if (cuda == on_cuda)
		return 0;
	pthread_rwlock_unlock(&in_use);
	snprintf(words, words_size, "the memory of arrays is %sregistered with CUDA, and was to be the other way; drop all arrays and call actmem.jax.reset()",
		 cuda ? "not " : "");
	return -EBUSY;
}

static void count_new(uint64_t bytes, int copy)
{
	uint64_t sum = atomic_fetch_add(&now.bytes, bytes) + bytes;
	uint64_t peak = atomic_load(&now.bytes_peak);

	while (peak < sum && !atomic_compare_exchange_weak(&now.bytes_peak, &peak, sum))
		;
	atomic_fetch_add(&now.blocks, 1);
	atomic_fetch_add(&now.blocks_total, 1);
	if (copy)
		atomic_fetch_add(&now.copied_bytes_total, bytes);
}

int actmem_xla_array_new(uint64_t bytes, uint32_t flags, struct actmem_xla_array **result,
			 void **address, char *words, size_t words_size)
{
	struct actmem_xla_array *array = malloc(sizeof(*array));
	int ret;

	if (!array) {
		snprintf(words, words_size, "no memory for bookkeeping");
		return -ENOMEM;
	}
	ret = enter(!!(flags & ACTMEM_XLA_ARRAY_CUDA), words, words_size);
	if (ret) {
		free(array);
		return ret;
	}
	ret = actmem_alloc(heap, bytes, bytes < PAGE ? ALIGNMENT : PAGE, &array->address);
	if (ret)
		explain(ret, words, words_size);
	else
		count_new(bytes, !!(flags & ACTMEM_XLA_ARRAY_COPY));
	pthread_rwlock_unlock(&in_use);
	if (ret) {
		free(array);
		return ret;
	}
	atomic_init(&array->holds, 1);
	array->bytes = bytes;
	*address = array->address;
	*result = array;
	return 0;
}

void actmem_xla_array_drop(struct actmem_xla_array *array)
{
	if (atomic_fetch_sub(&array->holds, 1) != 1)
		return;
	/* This fails in a forked child alone, whose blocks are the parent's. */
	actmem_free(heap, array->address);
	atomic_fetch_sub(&now.bytes, array->bytes);
	atomic_fetch_sub(&now.blocks, 1);
	free(array);
}

void arrays_hold(struct actmem_xla_array *array)
{
	atomic_fetch_add(&array->holds, 1);
	atomic_fetch_add(&now.views, 1);
	atomic_fetch_add(&now.views_total, 1);
}

void arrays_let_go(struct actmem_xla_array *array)
{
	atomic_fetch_sub(&now.views, 1);
	actmem_xla_array_drop(array);
}

int arrays_trim(void)
{
	int ret = 0;

	/* Whoever is at it makes an array. */
	if (pthread_rwlock_trywrlock(&in_use))
		return 0;
	if (heap)
		ret = actmem_heap_trim(heap);
	if (opened && !ret && !knobs.named && !atomic_load(&now.blocks))
		ret = end_all();
	pthread_rwlock_unlock(&in_use);
	return ret;
}

int actmem_xla_array_stats(struct actmem_xla_array_stats *stats)
{
	struct actmem_xla_array_stats all;
	struct actmem_heap_stats its;
	int ret = 0;

	ACTMEM_INIT(&all);
	all.blocks = atomic_load(&now.blocks);
	all.bytes = atomic_load(&now.bytes);
	all.bytes_peak = atomic_load(&now.bytes_peak);
	all.views = atomic_load(&now.views);
	all.blocks_total = atomic_load(&now.blocks_total);
	all.views_total = atomic_load(&now.views_total);
	all.copied_bytes_total = atomic_load(&now.copied_bytes_total);
	ACTMEM_INIT(&its);
	pthread_rwlock_rdlock(&in_use);
	if (heap)
		ret = actmem_heap_stats(heap, &its);
	all.region_bytes = its.region_bytes;
	all.cuda = heap && on_cuda;
	pthread_rwlock_unlock(&in_use);
	return ret ? ret : counts_copy(stats, stats->size, &all, sizeof(all));
}
