// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The store that blocks live in; see memory.h.
 *
 * The store ends when it holds nothing and its memory is to go back; the next use makes
 * a new one. A thread that calls it holds @in_use for reading, so that it is there.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "actmem_runtime.h"
#include "xla/actmem_xla.h"
#include "xla/arrays.h"
#include "xla/attached.h"
#include "xla/counts.h"
#include "xla/forked.h"
#include "xla/grow.h"
#include "xla/memory.h"
#include "xla/own_memory.h"

static pthread_rwlock_t in_use = PTHREAD_RWLOCK_INITIALIZER;
static struct actmem_store *store;
static struct knobs chosen;	/* of the store */
static struct actmem_runtime *runtime;	/* open, or CUDA did not let it be closed; else NULL */
static int is_registered;	/* the store's memory is, with @runtime */
static pthread_mutex_t pinning = PTHREAD_MUTEX_INITIALIZER;	/* taken before both */
static atomic_int has_devices;	/* there is a GPU that copies to and from it... */
static uint32_t first_device;	/* ...the first one that did */
static atomic_int waits;	/* for what is spilled, or in use by a GPU */
static void (*block_namer)(struct actmem_key key, char *name, size_t size);
static struct actmem_store_stats ended;	/* totals and peaks of stores that were ended */

static int is_free(void)
{
	int is;

	if (pthread_mutex_trylock(&pinning))
		return 0;
	is = !pthread_rwlock_trywrlock(&in_use);
	if (is)
		pthread_rwlock_unlock(&in_use);
	pthread_mutex_unlock(&pinning);
	return is;
}

static void __attribute__((constructor)) watch_forks(void)
{
	forked_watch(is_free);
}

/* Tells the error of the library with the knobs that help. */
static int explain_error(int ret, char *words, size_t words_size)
{
	knobs_error(&chosen, words, words_size);
	own_memory_explain(!!chosen.spill_path_count, words, words_size);
	return ret;
}

/* Memory that it would not let go of keeps it open, for the next try. */
static int close_runtime(void)
{
	int ret = runtime ? actmem_runtime_close(runtime) : 0;

	if (!ret)
		runtime = NULL;
	return ret;
}

static void set_options(struct actmem_store_options *options, const struct knobs *knobs)
{
	ACTMEM_INIT(options);
	/* A budget without files refuses whatever is over the limit. */
	options->budget_bytes = knobs->budget_bytes ? knobs->budget_bytes :
				knobs->limit_bytes;
	options->spill_paths = (const char *const *)knobs->spill_paths;
	options->spill_path_count = knobs->spill_path_count;
	options->spill_limit_bytes = knobs->spill_limit_bytes;
	options->flags = knobs->spill_allow;
	options->grow_bytes = knobs->grow_bytes;
	options->name_block = block_namer;
	/* A thread of ours ends the work that a GPU's handler begins. */
	if (has_devices)
		options->flags |= ACTMEM_STORE_HANDED_ON;
}

static int open_store(struct actmem *am)
{
	struct actmem_region_options region;
	struct actmem_store_options options;
	int ret = 0;

	set_options(&options, &chosen);
	ACTMEM_INIT(&region);
	region.name = "activations";
	options.region = &region;
	if (has_devices && !runtime)
		ret = attached_open_runtime(am, first_device, !!chosen.spill_path_count,
					    &runtime);
	if (!ret && has_devices)
		ret = attached_place(runtime, &chosen, &region);
	options.runtime = has_devices ? runtime : NULL;
	if (!ret)
		ret = actmem_store_create(am, &options, &store);
	if (ret)
		return ret;
	is_registered = has_devices;
	waits = chosen.spill_path_count || has_devices;
	return 0;
}

/* Starts the thread that makes memory ahead, if the store is registered with CUDA. */
static int start_growing(char *words, size_t words_size)
{
	int ret = is_registered ? grow_begin(store, chosen.grow_bytes) : 0;

	if (!ret)
		return 0;
	snprintf(words, words_size,
		 "cannot start the thread that makes memory (pthread_create: %s)", strerror(-ret));
	actmem_store_destroy(store);
	store = NULL;
	return ret;
}

/* With @in_use held for writing. */
static int make_store(char *words, size_t words_size)
{
	struct actmem *am;
	int ret = attached_open(&am, &chosen, words, words_size);

	if (ret)
		return ret;
	ret = open_store(am);
	if (ret)
		explain_error(ret, words, words_size);
	else
		ret = start_growing(words, words_size);
	if (ret) {
		close_runtime();
		attached_close();
	}
	return ret;
}

/* With @in_use held for reading and the store made, or failed. */
static int enter_store(char *words, size_t words_size)
{
	int ret = forked_check(words, words_size);

	if (ret)
		return ret;
	pthread_rwlock_rdlock(&in_use);
	while (!store) {
		pthread_rwlock_unlock(&in_use);
		pthread_rwlock_wrlock(&in_use);
		if (!store)
			ret = make_store(words, words_size);
		pthread_rwlock_unlock(&in_use);
		if (ret)
			return ret;
		pthread_rwlock_rdlock(&in_use);
	}
	return 0;
}

static int leave_store(int ret, char *words, size_t words_size)
{
	if (ret)
		explain_error(ret, words, words_size);
	pthread_rwlock_unlock(&in_use);
	return ret;
}

int memory_reserve(struct actmem_key key, uint64_t bytes, void **block, int *has_store,
		   char *words, size_t words_size)
{
	int ret = enter_store(words, words_size);

	*has_store = !ret;
	if (ret)
		return ret;
	ret = actmem_store_reserve(store, key, bytes, block, ACTMEM_WAIT_FOREVER);
	if (!ret)
		grow_want(bytes);
	return leave_store(ret, words, words_size);
}

int memory_hold(struct actmem_key key, const void **block, char *words,
		size_t words_size)
{
	uint64_t bytes;
	int ret = enter_store(words, words_size);

	if (ret)
		return ret;
	ret = actmem_store_hold(store, key, block, &bytes, ACTMEM_WAIT_FOREVER);
	return leave_store(ret, words, words_size);
}

/* Calls below do nothing in a forked child, whose blocks are the parent's. */

void memory_commit(struct actmem_key key)
{
	if (is_forked())
		return;
	pthread_rwlock_rdlock(&in_use);
	actmem_store_commit(store, key);
	pthread_rwlock_unlock(&in_use);
}

void memory_release(struct actmem_key key)
{
	if (is_forked())
		return;
	pthread_rwlock_rdlock(&in_use);
	actmem_store_release(store, key);
	pthread_rwlock_unlock(&in_use);
}

void memory_put_back(struct actmem_key key)
{
	if (is_forked())
		return;
	pthread_rwlock_rdlock(&in_use);
	actmem_store_put_back(store, key);
	pthread_rwlock_unlock(&in_use);
}

void memory_drop(struct actmem_key key)
{
	if (is_forked())
		return;
	pthread_rwlock_rdlock(&in_use);
	actmem_store_drop(store, key);
	pthread_rwlock_unlock(&in_use);
}

void memory_name_blocks(void (*name_block)(struct actmem_key key, char *name, size_t size))
{
	block_namer = name_block;
}

int memory_waits(void)
{
	return waits;
}

int actmem_xla_store_stats(struct actmem_store_stats *stats)
{
	struct actmem_store_stats now;
	int ret = 0;

	if (is_forked())
		return -EOWNERDEAD;
	ACTMEM_INIT(&now);
	pthread_rwlock_rdlock(&in_use);
	if (store)
		ret = actmem_store_get_stats(store, &now);
	counts_add_store(&now, &ended);
	pthread_rwlock_unlock(&in_use);
	return ret ? ret : counts_copy(stats, stats->size, &now, sizeof(now));
}

/* With @in_use held for writing: unless it has blocks. */
static int end_store(void)
{
	struct actmem_store_stats last;
	int ret;

	ACTMEM_INIT(&last);
	ret = actmem_store_get_stats(store, &last);
	if (!ret && last.blocks)
		ret = -EBUSY;
	if (ret)
		return ret;
	grow_end();
	ret = actmem_store_destroy(store);
	if (ret)
		return ret;
	counts_add_store(&ended, &last);
	store = NULL;
	attached_close();
	return 0;
}

int actmem_xla_trim(void)
{
	int ret = is_forked() ? -EOWNERDEAD : arrays_trim();

	/* A thread that holds the lock has blocks. */
	if (ret || pthread_rwlock_trywrlock(&in_use))
		return ret;
	if (store && !chosen.named)
		ret = end_store();
	if (ret == -EBUSY)
		ret = 0;
	if (!ret && !store)
		ret = close_runtime();
	pthread_rwlock_unlock(&in_use);
	return ret;
}

/* A CPU's put may have made the store: devices know nothing of its memory. */
static int renew_for_devices(char *words, size_t words_size)
{
	int ret = 0;

	pthread_rwlock_wrlock(&in_use);
	if (store && !is_registered)
		ret = end_store();
	if (ret == -EBUSY)
		snprintf(words, words_size,
			 "actmem: values of a program on a CPU are in memory that was made without CUDA; take them, or call actmem.jax.reset(), before a program on a GPU saves any");
	else if (ret)
		explain_error(ret, words, words_size);
	pthread_rwlock_unlock(&in_use);
	return ret;
}

static int is_pinned(uint64_t *ring_bytes)
{
	int is;

	pthread_rwlock_rdlock(&in_use);
	is = store && is_registered;
	*ring_bytes = chosen.ring_bytes;
	pthread_rwlock_unlock(&in_use);
	return is;
}

/* With @pinning held. A failure leaves it to CPUs as it was. */
static int pin_store(uint32_t device, char *words, size_t words_size)
{
	int had = has_devices, ret;

	if (!had)
		first_device = device;
	has_devices = 1;
	ret = renew_for_devices(words, words_size);
	if (!ret)
		ret = enter_store(words, words_size);
	if (ret)
		has_devices = had;
	else
		leave_store(0, words, words_size);
	return ret;
}

int memory_pin(uint32_t device, uint64_t *ring_bytes, char *words, size_t words_size)
{
	int ret = forked_check(words, words_size);

	if (ret || is_pinned(ring_bytes))
		return ret;
	pthread_mutex_lock(&pinning);
	if (!is_pinned(ring_bytes))
		ret = pin_store(device, words, words_size);
	if (!ret)
		is_pinned(ring_bytes);
	pthread_mutex_unlock(&pinning);
	return ret;
}
