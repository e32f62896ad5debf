/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Memory of arrays; see arrays.h.
 *
 * Functions that drop a reference to an array take no lock of this file. The reason is that
 * Python's garbage collector can call them in a forked child, where a lock may stay locked forever.
 * Any thread of XLA can call them, too. These calls are safe because no heap is destroyed while the
 * number of arrays, @now.blocks, is not 0. A thread that makes an array increments @now.blocks with
 * @in_use held.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "actmem_runtime.h"
#include "xla/arrays.h"
#include "xla/attached.h"
#include "xla/counts.h"
#include "xla/forked.h"
#include "xla/own_memory.h"
#include "xla/places.h"

#define ALIGNMENT	256	/* XLA requires 64 on a CPU, and 256 on a GPU */
#define HUGE_PAGE	(UINT64_C(2) << 20)	/* lengths of regions are multiples of this */
#define PAGE		4096	/* alignment of arrays of this length or more, for direct I/O */

struct actmem_xla_array {
	atomic_uint holds;
	void *address;
	uint64_t bytes;
	struct actmem_heap *heap;	/* contains the array; NULL: the array is @region */
	struct actmem_region *region;	/* a named region of the array's own */
	struct actmem_xla_array *next;	/* in @kept */
};

static pthread_rwlock_t in_use = PTHREAD_RWLOCK_INITIALIZER;
static struct actmem *opened;
static struct knobs knobs;
static struct actmem_heap *heaps[PLACES_MAX];	/* index: place (places.h); only [0] if !on_cuda */
static bool on_cuda;			/* heaps are registered with the runtimes of their places */
static struct places places;
static struct actmem_xla_array *_Atomic kept;	/* dropped arrays whose region is still open */

static struct {
	_Atomic uint64_t named_bytes, blocks, bytes, bytes_peak, views, blocks_total, views_total,
		copied_bytes_total;
} now;

static int explain_error(int error, char *words, size_t words_size)
{
	knobs_error(&knobs, words, words_size);
	own_memory_explain(0, words, words_size);
	return error;
}

/*
 * Returns the device near which to allocate. Heaps cannot share a limit. So if there is a limit,
 * there is one heap, and all arrays are near the first GPU.
 */
static uint32_t near_device(uint32_t device)
{
	return knobs.limit_bytes && places.count ? places.list[0].device : device;
}

/*
 * Makes the heap for a device unless it exists. With @cuda, the heap's memory is registered with
 * CUDA, and is near the device unless the user chose nodes.
 */
static int make_heap(bool cuda, uint32_t device)
{
	struct actmem_runtime *runtime;
	unsigned int place = 0;
	struct actmem_region_options region;
	struct actmem_heap_options options;
	int error = 0;

	ACTMEM_INIT(&options);
	ACTMEM_INIT(&region);
	options.region = &region;
	options.grow_bytes = knobs.grow_bytes;
	options.limit_bytes = knobs.limit_bytes;
	region.name = "arrays";
	if (cuda)
		error = places_add(&places, opened, &knobs, 0, near_device(device), &place);
	if (error || heaps[place])
		return error;
	runtime = places.list[place].runtime;
	if (cuda)
		error = attached_place(runtime, &knobs, &region);
	if (!error)
		error = actmem_heap_create(opened, &options, &heaps[place]);
	if (!error && cuda)
		error = actmem_heap_register(heaps[place], runtime, 0);
	if (error && heaps[place]) {
		actmem_heap_destroy(heaps[place]);
		heaps[place] = NULL;
	}
	return error;
}

/*
 * Destroys all heaps and closes the runtimes and the handle. Stops at the first failure; the next
 * call continues. Caller holds @in_use for writing.
 */
static int end_heaps(void)
{
	unsigned int i;
	int error;

	for (i = 0; i < PLACES_MAX; i++) {
		error = heaps[i] ? actmem_heap_destroy(heaps[i]) : 0;
		if (error)
			return error;
		heaps[i] = NULL;
	}
	/* Fails if a runtime still has regions that CUDA did not unregister. */
	error = places_close(&places);
	if (error)
		return error;
	knobs_forget(&knobs);
	attached_close();
	opened = NULL;
	return 0;
}

/* Opens the handle and makes the heap for a device. Caller holds @in_use for writing. */
static int open_heap(bool cuda, uint32_t device, char *words, size_t words_size)
{
	int error = 0;

	if (!opened)
		error = attached_open(&opened, &knobs, words, words_size);
	if (error)
		return error;
	error = make_heap(cuda, device);
	if (error) {
		explain_error(error, words, words_size);
		if (!atomic_load(&now.blocks))
			end_heaps();
	} else {
		on_cuda = cuda;
	}
	return error;
}

/* Returns a suitable heap, or NULL. Memory that is registered with CUDA also suits CPUs. */
static struct actmem_heap *find_heap(bool cuda, uint32_t device)
{
	unsigned int place;

	if (!cuda)
		return heaps[0];
	if (!on_cuda)
		return NULL;
	place = places_of(&places, near_device(device));
	return place < PLACES_MAX ? heaps[place] : NULL;
}

/*
 * Makes the heap for a device. First destroys a heap that is not registered with CUDA, or returns
 * -EBUSY if that heap has arrays. Caller holds @in_use for writing, so no thread adds an array.
 */
static int renew_heap(bool cuda, uint32_t device, char *words, size_t words_size)
{
	int error = 0;

	if (on_cuda && heaps[0])
		return open_heap(cuda, device, words, words_size);
	if (heaps[0] && atomic_load(&now.blocks)) {
		snprintf(words, words_size,
			 "the memory of the existing arrays is not registered with CUDA, but device %u needs that: delete all of these arrays first, or make them within jax.default_device() of that GPU",
			 device);
		return -EBUSY;
	}
	if (heaps[0])
		error = end_heaps();
	if (error)
		return explain_error(error, words, words_size);
	return open_heap(cuda, device, words, words_size);
}

/*
 * Locks @in_use for reading and stores a suitable heap in *@heap. Makes the heap if necessary.
 * After a failure, the lock is not held.
 */
static int enter_heap(uint32_t flags, uint32_t device, struct actmem_heap **heap, char *words,
		      size_t words_size)
{
	bool cuda = flags & ACTMEM_XLA_ARRAY_CUDA;
	int error = forked_check(words, words_size);

	if (error)
		return error;
	pthread_rwlock_rdlock(&in_use);
	while (!(*heap = find_heap(cuda, device))) {
		pthread_rwlock_unlock(&in_use);
		pthread_rwlock_wrlock(&in_use);
		if (!find_heap(cuda, device))
			error = renew_heap(cuda, device, words, words_size);
		pthread_rwlock_unlock(&in_use);
		if (error)
			return error;
		pthread_rwlock_rdlock(&in_use);
	}
	return 0;
}

static void count_new(uint64_t bytes, bool copy)
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

int actmem_xla_array_new(uint64_t bytes, uint32_t flags, uint32_t device,
			 struct actmem_xla_array **result, void **address, char *words,
			 size_t words_size)
{
	struct actmem_xla_array *array = calloc(1, sizeof(*array));
	int error;

	if (!array) {
		snprintf(words, words_size, "no memory for bookkeeping");
		return -ENOMEM;
	}
	error = enter_heap(flags, device, &array->heap, words, words_size);
	if (error) {
		free(array);
		return error;
	}
	error = actmem_heap_alloc(array->heap, bytes, bytes < PAGE ? ALIGNMENT : PAGE, &array->address);
	if (error)
		explain_error(error, words, words_size);
	else
		count_new(bytes, flags & ACTMEM_XLA_ARRAY_COPY);
	pthread_rwlock_unlock(&in_use);
	if (error) {
		free(array);
		return error;
	}
	atomic_init(&array->holds, 1);
	array->bytes = bytes;
	*address = array->address;
	*result = array;
	return 0;
}

/* Opens or creates the region with the name @path. The heap_name of the handle has no effect. */
static int open_region(const char *path, uint64_t bytes, bool create,
		       struct actmem_region **region)
{
	struct actmem_region_options options;

	ACTMEM_INIT(&options);
	if (create)
		options.length = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	return actmem_region_open(opened, path, &options, create ?
				  ACTMEM_OPEN_CREATE | ACTMEM_OPEN_EXCLUSIVE : ACTMEM_OPEN_READ,
				  region);
}

static int close_region(struct actmem_xla_array *array)
{
	int error = actmem_region_unregister(array->region);

	if (error && error != -ENOENT)
		return error;
	error = actmem_region_close(array->region);
	if (!error) {
		atomic_fetch_sub(&now.named_bytes, array->bytes);
		free(array);
	}
	return error;
}

static void keep_array(struct actmem_xla_array *array)
{
	array->next = atomic_load(&kept);
	while (!atomic_compare_exchange_weak(&kept, &array->next, array))
		;
}

/* Tries again to close the regions of @kept. Caller holds @in_use for writing. */
static int close_kept(void)
{
	struct actmem_xla_array *array = atomic_exchange(&kept, NULL), *next;
	int error = 0, failed;

	for (; array; array = next) {
		next = array->next;
		failed = close_region(array);
		if (failed) {
			keep_array(array);
			error = failed;
		}
	}
	return error;
}

/* Returns the runtime of the device's place. The device must have a heap. */
static struct actmem_runtime *runtime_of(uint32_t device)
{
	return places.list[places_of(&places, near_device(device))].runtime;
}

/*
 * Maps the region. Registers an existing region with CUDA, for reading. Does not register a new
 * one, because the caller fills it with the CPU.
 */
static int map_region(struct actmem_xla_array *array, uint32_t flags, uint32_t device)
{
	int error = actmem_region_map(array->region, &array->address);

	if (!error && flags & ACTMEM_XLA_ARRAY_CUDA && !(flags & ACTMEM_XLA_ARRAY_CREATE))
		error = actmem_region_register(array->region, runtime_of(device),
					     ACTMEM_REGISTER_READ_ONLY);
	return error;
}

int actmem_xla_array_open(const char *path, uint64_t *bytes, uint32_t flags, uint32_t device,
			  struct actmem_xla_array **result, void **address, char *words,
			  size_t words_size)
{
	struct actmem_xla_array *array = calloc(1, sizeof(*array));
	struct actmem_heap *heap;
	bool create = flags & ACTMEM_XLA_ARRAY_CREATE;
	int error;

	if (!array) {
		snprintf(words, words_size, "no memory for bookkeeping");
		return -ENOMEM;
	}
	error = enter_heap(flags, device, &heap, words, words_size);
	if (error) {
		free(array);
		return error;
	}
	error = open_region(path, *bytes, create, &array->region);
	if (!error)
		error = map_region(array, flags, device);
	if (error) {
		explain_error(error, words, words_size);
		if (array->region)
			actmem_region_close(array->region);
		free(array);
	} else {
		atomic_init(&array->holds, 1);
		array->bytes = actmem_region_length(array->region);
		count_new(array->bytes, false);
		atomic_fetch_add(&now.named_bytes, array->bytes);
		*bytes = array->bytes;
		*address = array->address;
		*result = array;
	}
	pthread_rwlock_unlock(&in_use);
	return error;
}

void actmem_xla_array_drop(struct actmem_xla_array *array)
{
	if (atomic_fetch_sub(&array->holds, 1) != 1)
		return;
	atomic_fetch_sub(&now.bytes, array->bytes);
	/* Freeing and closing fail in a forked child, because the memory belongs to the parent. */
	if (!array->region) {
		actmem_heap_free(array->heap, array->address);
		free(array);
	} else if (close_region(array)) {
		keep_array(array);
	}
	atomic_fetch_sub(&now.blocks, 1);
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

static bool arrays_are_free(void)
{
	return forked_rwlock_is_free(&in_use);
}
FORKED_WATCH(arrays_are_free)

int arrays_trim(void)
{
	unsigned int i;
	int error;

	/* If another thread holds the lock, that thread uses the memory, so free nothing. */
	if (pthread_rwlock_trywrlock(&in_use))
		return 0;
	error = close_kept();
	for (i = 0; i < PLACES_MAX && !error; i++)
		if (heaps[i])
			error = actmem_heap_trim(heaps[i]);
	if (opened && !error && !knobs.named && !atomic_load(&now.blocks))
		error = end_heaps();
	pthread_rwlock_unlock(&in_use);
	return error;
}

int actmem_xla_array_stats(struct actmem_xla_array_stats *stats)
{
	struct actmem_xla_array_stats all;
	struct actmem_heap_stats its;
	unsigned int i;
	int error = 0;

	if (is_forked())
		return -EOWNERDEAD;
	ACTMEM_INIT(&all);
	all.blocks = atomic_load(&now.blocks);
	all.bytes = atomic_load(&now.bytes);
	all.bytes_peak = atomic_load(&now.bytes_peak);
	/*
	 * A thread that makes an array updates bytes before bytes_peak, so bytes_peak may be too
	 * low.
	 */
	if (all.bytes_peak < all.bytes)
		all.bytes_peak = all.bytes;
	all.views = atomic_load(&now.views);
	all.blocks_total = atomic_load(&now.blocks_total);
	all.views_total = atomic_load(&now.views_total);
	all.copied_bytes_total = atomic_load(&now.copied_bytes_total);
	all.region_bytes = atomic_load(&now.named_bytes);
	pthread_rwlock_rdlock(&in_use);
	for (i = 0; i < PLACES_MAX && !error; i++) {
		ACTMEM_INIT(&its);
		if (heaps[i])
			error = actmem_heap_get_stats(heaps[i], &its);
		all.region_bytes += its.region_bytes;
	}
	all.cuda = heaps[0] && on_cuda;
	pthread_rwlock_unlock(&in_use);
	return error ? error : counts_copy(stats, stats->size, &all, sizeof(all));
}
