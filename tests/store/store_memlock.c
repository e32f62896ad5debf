/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A store under RLIMIT_MEMLOCK, of which others have the half: it makes do with the rest,
 * and has more when that is there.
 */
#include "store_folder.h"

#define LIMIT	(8 * MIB)	/* what any process may have */
#define GROW	(2 * MIB)
#define BYTES	MIB
#define BLOCKS	24
#define WAITS	60000

static bool run_step(struct actmem_store *store)
{
	uint64_t i;
	int error = 0;

	for (i = 0; i < BLOCKS && !error; i++)
		error = put_named(store, i, BYTES);
	for (i = BLOCKS; i-- && !error; )
		error = take_named(store, i, BYTES);
	return !error;
}

static bool makes_do(void *context)
{
	const char *const *folder = context;
	struct actmem_store_options options = store_options(LIMIT, folder, 1);
	struct actmem_region *others;
	struct actmem_store *store;
	struct actmem *am;
	uint64_t before;
	unsigned int i;

	options.grow_bytes = GROW;
	if (!lower_memlock(LIMIT) || actmem_open(&am, NULL) ||
	    create_region(am, LIMIT / 2, 0, &others) ||
	    actmem_store_create(am, &options, &store))
		return false;
	for (i = 0; i < 3; i++)
		if (!run_step(store))
			return false;
	before = stats_of(store).memory_bytes;
	printf("# %llu bytes; %s\n", (unsigned long long)before, actmem_store_describe(store));
	if (!before || stats_of(store).memory_bytes_peak > LIMIT / 2 ||
	    stats_of(store).refused_bytes != LIMIT - before || stats_of(store).failed_spills_total)
		return false;
	/* The store's background thread says so. */
	for (i = 0; i < WAITS && !strstr(actmem_store_describe(store), "RLIMIT_MEMLOCK"); i++)
		usleep(1000);
	if (i == WAITS || actmem_region_close(others))
		return false;
	/* A step begins with its first put. */
	if (!run_step(store))
		return false;
	for (i = 0; i < WAITS && stats_of(store).memory_bytes <= before; i++)
		usleep(1000);
	return stats_of(store).memory_bytes > before && run_step(store) &&
	       !actmem_store_destroy(store) && !actmem_close(am);
}

static bool has_all(void *context)
{
	const char *const *folder = context;
	struct actmem_store_options options = store_options(LIMIT, folder, 1);
	struct actmem_store *store;
	struct actmem *am;
	unsigned int i;

	if (!lower_memlock(LIMIT) || actmem_open(&am, NULL) ||
	    actmem_store_create(am, &options, &store))
		return false;
	for (i = 0; i < 3; i++)
		if (!run_step(store))
			return false;
	return stats_of(store).memory_bytes_peak == LIMIT && !stats_of(store).refused_bytes &&
	       !actmem_store_destroy(store) && !actmem_close(am);
}

int main(void)
{
	struct usage before = usage_now();
	char path[PATH_MAX];
	const char *folder = make_folder(path);
	struct actmem *am = open_or_bail();
	bool counts = memlock_counts(am);

	actmem_close(am);
	if (counts)
		ok(in_child(makes_do, &folder), "a store makes do with what a limit leaves it");
	else
		ok(in_child(has_all, &folder), "a limit that does not count leaves it all");
	remove_folder(folder);
	same_usage(before);
	return tap_end();
}
