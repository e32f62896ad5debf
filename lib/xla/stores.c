/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Makes and ends stores; see stores.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "actmem_runtime.h"
#include "base/base.h"
#include "config/config.h"
#include "xla/attached.h"
#include "xla/counts.h"
#include "xla/key.h"
#include "xla/own_memory.h"
#include "xla/stores.h"

static uint32_t device_of(struct actmem_key key)
{
	return (uint32_t)(key.name >> MEMORY_DEVICE_SHIFT & MEMORY_DEVICE_MASK);
}

unsigned int stores_place(const struct stores *stores, struct actmem_key key)
{
	return key.name & MEMORY_GPU ? places_of(&stores->places, device_of(key)) : 0;
}

static bool stores_spill(const struct stores *stores)
{
	return !!stores->chosen.spill_path_count;
}

int stores_explain(const struct stores *stores, int error, char *words, size_t words_size)
{
	size_t used;

	knobs_error(&stores->chosen, words, words_size);
	own_memory_explain(stores_spill(stores), words, words_size);
	used = strlen(words);
	if (error == -ENOMEM && stores->shares.count > 1 && stores->shares.total[SHARE_MEMORY] &&
	    used < words_size)
		snprintf(words + used, words_size - used,
			 "; this is one node's part of %" PRIu64 " MiB, which GPUs on %u nodes share",
			 stores->shares.total[SHARE_MEMORY] >> 20, stores->shares.count);
	return error;
}

/*
 * Returns the budget of the stores. A heap limit is also passed as a budget, because a store
 * without spill files refuses blocks that exceed its budget.
 */
static uint64_t budget_of(const struct knobs *knobs)
{
	return knobs->budget_bytes ? knobs->budget_bytes : knobs->limit_bytes;
}

static void set_options(const struct stores *stores, struct actmem_store_options *options)
{
	const struct knobs *knobs = &stores->chosen;

	ACTMEM_INIT(options);
	options->spill_paths = (const char *const *)knobs->spill_paths;
	options->spill_path_count = knobs->spill_path_count;
	options->flags = knobs->spill_allow;
	if (stores->checksum)
		options->flags |= ACTMEM_STORE_CHECKSUM;
	options->grow_bytes = knobs->grow_bytes;
	options->name_block = stores->name_block;
	/* A thread of this library completes the work that a GPU's handler starts. */
	if (stores->places.count)
		options->flags |= ACTMEM_STORE_HANDED_ON;
}

static void count_devices(struct stores *stores)
{
	struct shares *shares = &stores->shares;
	unsigned int i;

	shares->count = stores->places.count ? stores->places.count : 1;
	for (i = 0; i < shares->count; i++)
		shares->list[i].devices = stores->places.list[i].devices;
}

/*
 * Sets the budget and the spill limit that the store of a place may have now. Returns -EAGAIN if
 * other stores hold all of the budget or of the spill limit, and -ERANGE if a part of the budget is
 * too small for a store.
 */
static int take_share(struct stores *stores, unsigned int place,
		      struct actmem_store_options *options)
{
	struct shares *shares = &stores->shares;
	int error = shares_divide(shares);

	if (error < 0)
		return error;
	options->budget_bytes = shares_left(shares, place, SHARE_MEMORY);
	options->spill_limit_bytes = shares_left(shares, place, SHARE_FILES);
	return (shares->total[SHARE_MEMORY] && !options->budget_bytes) ||
	       (shares->total[SHARE_FILES] && !options->spill_limit_bytes) ? -EAGAIN : 0;
}

static int create_store(struct stores *stores, unsigned int place)
{
	struct share *share = &stores->shares.list[place];
	struct actmem_runtime *runtime = stores->places.list[place].runtime;
	struct actmem_region_options region;
	struct actmem_store_options options;
	int error;

	set_options(stores, &options);
	error = take_share(stores, place, &options);
	if (error)
		return error;
	ACTMEM_INIT(&region);
	region.name = "activations";
	options.region = &region;
	options.runtime = runtime;
	if (runtime)
		error = attached_place(runtime, &stores->chosen, &region);
	if (!error)
		error = actmem_store_create(stores->am, &options, &share->store);
	if (error)
		return error;
	share->given[SHARE_MEMORY] = options.budget_bytes;
	share->given[SHARE_FILES] = options.spill_limit_bytes;
	stores->there[place].is_registered = !!runtime;
	return 0;
}

/*
 * If the store is registered with CUDA, starts the thread that allocates memory before actmem_put
 * needs it.
 */
static int start_growing(struct stores *stores, unsigned int place, char *words,
			 size_t words_size)
{
	struct store_there *there = &stores->there[place];
	int error = there->is_registered ? grow_begin(stores->shares.list[place].store,
						    stores->chosen.grow_bytes, &there->grow) : 0;

	if (!error)
		return 0;
	snprintf(words, words_size,
		 "cannot start the thread that allocates memory (pthread_create: %s)", strerror(-error));
	actmem_store_destroy(stores->shares.list[place].store);
	stores->shares.list[place].store = NULL;
	return error;
}

static bool any_store(const struct stores *stores, unsigned int *place)
{
	unsigned int i;

	for (i = 0; i < PLACES_MAX; i++) {
		if (!stores->shares.list[i].store)
			continue;
		*place = i;
		return true;
	}
	return false;
}

/*
 * Makes a device use the store of another place. Called if the part of the budget for the device's
 * own place would be too small for a store.
 */
static void stores_join(struct stores *stores, uint32_t device, unsigned int place)
{
	if (!knob_is_on(KNOB_QUIET))
		fprintf(stderr, "actmem: the budget of %" PRIu64 " KiB is too small to be divided between nodes: values of GPU %" PRIu32 " are in the memory of GPU %" PRIu32 "'s node; ACTMEM_QUIET=1 omits this line\n",
			stores->shares.total[SHARE_MEMORY] >> 10, device,
			stores->places.list[place].device);
	places_join(&stores->places, device, place);
	count_devices(stores);
	shares_divide(&stores->shares);
}

/* Returns true if a store's share cannot become larger. */
static bool is_share_final(const struct stores *stores, unsigned int place)
{
	const struct shares *shares = &stores->shares;

	return shares_could_have(shares, place, shares_left(shares, place, SHARE_MEMORY));
}

static int make_store(struct stores *stores, unsigned int place, uint32_t device, char *words,
		      size_t words_size)
{
	unsigned int other;
	int error = create_store(stores, place);

	/*
	 * The place's share of the budget is too small for a store. The share may grow if other
	 * stores hold part of it.
	 */
	if (error == -EINVAL && any_store(stores, &other))
		error = is_share_final(stores, place) ? -ERANGE : -EAGAIN;
	if (error == -ERANGE && any_store(stores, &other)) {
		stores_join(stores, device, other);
		return 0;
	}
	if (error == -EAGAIN) {
		snprintf(words, words_size,
			 "GPUs on other nodes use up the budget of %" PRIu64 " MiB; raise %s",
			 stores->shares.total[SHARE_MEMORY] >> 20,
			 knob_name(stores->chosen.limit_bytes ? KNOB_HEAP_LIMIT : KNOB_BUDGET,
				   ACTMEM_NAMES_PYTHON));
		return error;
	}
	return error ? stores_explain(stores, error, words, words_size) :
	       start_growing(stores, place, words, words_size);
}

/* Ends the store of a place. Returns -EBUSY if the store has blocks. */
static int end_store(struct stores *stores, unsigned int place)
{
	struct store_there *there = &stores->there[place];
	struct share *share = &stores->shares.list[place];
	struct actmem_store_stats last;
	int error;

	ACTMEM_INIT(&last);
	error = actmem_store_get_stats(share->store, &last);
	if (!error && last.blocks)
		error = -EBUSY;
	if (error)
		return error;
	grow_end(there->grow);
	there->grow = NULL;
	error = actmem_store_destroy(share->store);
	if (error)
		return error;
	counts_add_store(&there->ended, &last);
	share->store = NULL;
	there->is_registered = false;
	there->is_far_told = false;
	return 0;
}

/* Closes the handle and the runtimes if there is no store. */
static int close_memory(struct stores *stores)
{
	unsigned int place;

	if (any_store(stores, &place))
		return 0;
	if (stores->am)
		attached_close();
	stores->am = NULL;
	return places_close(&stores->places);
}

int stores_end(struct stores *stores)
{
	int error = 0, failed;
	unsigned int i;

	for (i = 0; i < PLACES_MAX; i++) {
		failed = stores->shares.list[i].store ? end_store(stores, i) : 0;
		if (failed && failed != -EBUSY)
			error = failed;
	}
	return error ? error : close_memory(stores);
}

/*
 * Ends the store that a CPU's put has made, if any. GPUs cannot use that store, because its memory
 * is not registered with CUDA.
 */
static int end_of_cpus(struct stores *stores, char *words, size_t words_size)
{
	int error = 0;

	if (stores->shares.list[0].store && !stores->there[0].is_registered)
		error = end_store(stores, 0);
	if (error == -EBUSY)
		snprintf(words, words_size,
			 "actmem: values of a program on a CPU are in memory that is not registered with CUDA; take them, or call actmem.jax.reset(), before a program on a GPU saves values");
	else if (error)
		stores_explain(stores, error, words, words_size);
	return error;
}

static int open_memory(struct stores *stores, char *words, size_t words_size)
{
	int error;

	if (stores->am)
		return 0;
	error = attached_open(&stores->am, &stores->chosen, words, words_size);
	if (error)
		return error;
	stores->shares.total[SHARE_MEMORY] = budget_of(&stores->chosen);
	stores->shares.total[SHARE_FILES] = stores->chosen.spill_limit_bytes;
	return 0;
}

static int make_for_device(struct stores *stores, uint32_t device, char *words,
			   size_t words_size)
{
	unsigned int place;
	int error = end_of_cpus(stores, words, words_size);

	if (!error)
		error = open_memory(stores, words, words_size);
	if (error)
		return error;
	error = places_add(&stores->places, stores->am, &stores->chosen, stores_spill(stores), device,
			 &place);
	if (error)
		return stores_explain(stores, error, words, words_size);
	count_devices(stores);
	if (!stores->shares.list[place].store)
		error = make_store(stores, place, device, words, words_size);
	else
		shares_divide(&stores->shares);
	if (!error && !stores->has_devices)
		stores->first_device = device;
	stores->has_devices |= !error;
	return error;
}

static int make_for_cpus(struct stores *stores, char *words, size_t words_size)
{
	int error = open_memory(stores, words, words_size);

	if (error)
		return error;
	count_devices(stores);
	return make_store(stores, 0, 0, words, words_size);
}

int stores_make(struct stores *stores, struct actmem_key key, char *words, size_t words_size)
{
	int error;

	if (key.name & MEMORY_GPU)
		error = make_for_device(stores, device_of(key), words, words_size);
	else if (stores->has_devices)
		error = make_for_device(stores, stores->places.count ?
				      stores->places.list[0].device : stores->first_device,
				      words, words_size);
	else
		error = make_for_cpus(stores, words, words_size);
	/* After a failure, close the handle and the runtimes if no store needs them. */
	if (error)
		close_memory(stores);
	return error;
}

void stores_tell_far(struct stores *stores, unsigned int place)
{
	struct actmem_runtime *runtime = stores->places.list[place].runtime;
	struct actmem_runtime_info info;

	ACTMEM_INIT(&info);
	if (!runtime || __atomic_load_n(&stores->there[place].is_far_told, __ATOMIC_RELAXED) ||
	    actmem_runtime_get_info(runtime, &info) || !info.far_bytes ||
	    __atomic_exchange_n(&stores->there[place].is_far_told, 1, __ATOMIC_RELAXED) ||
	    stores->chosen.placed || knob_is_on(KNOB_QUIET))
		return;
	fprintf(stderr, "actmem: %" PRIu64 " MiB for GPU %" PRIu32 " are on another socket than the GPU, because the socket of node %d has too little memory; ACTMEM_STRICT=1 makes this an error, ACTMEM_QUIET=1 omits this line\n",
		info.far_bytes >> 20, stores->places.list[place].device, info.node);
}
