/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Opens regions for ranges that a program registers.
 *
 * If the environment sets a name, the regions are files whose names contain their lengths:
 * NAME.cuda.64M.0 and so on. The next process registers ranges of the same lengths, and so finds
 * these files, whatever the order of the ranges. A file that this process has closed may still be
 * mapped. In that case the file is still locked, and this process uses the next number.
 */
#include <errno.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "machine/machine.h"
#include "preload/cuda/kept.h"
#include "preload/cuda/region.h"
#include "preload/say.h"

#define MODE_FLAGS	(MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING)

/* Modes of newer kernels, which the installed kernel headers may lack. */
#define MODE_PREFERRED_MANY		5
#define MODE_WEIGHTED_INTERLEAVE	6

struct cuda_name {
	struct cuda_name *next;
	uint64_t length;
	unsigned int number;
	bool is_closed;			/* was in use by this process, and may still be mapped */
};

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct actmem *am;		/* NULL until cuda_region_prepare(); stays open */
static struct actmem_options defaults;
static char name_prefix[PATH_MAX];	/* "": regions have no names */

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_name *names;

/* Opens the handle without heap_name, because this file itself names the regions. */
static int open_region_handle(void)
{
	struct actmem_options options;
	int error;

	ACTMEM_INIT(&options);
	error = cuda_library.actmem_options_from_variables(cuda_variables(), &options);
	if (error)
		return error;
	if (options.heap_name)
		snprintf(name_prefix, sizeof(name_prefix), "%s", options.heap_name);
	options.heap_name = NULL;
	error = cuda_library.actmem_open(&am, &options);
	if (!error)
		defaults = options;
	return error;
}

static uint64_t unit_of(const struct actmem_options *options)
{
	return options->pages == ACTMEM_PAGES_1G ? GIANT_PAGE_BYTES : HUGE_PAGE_BYTES;
}

bool cuda_region_prepare(const struct cuda_settings *settings, uint64_t *unit,
			 struct cuda_failure *failure)
{
	uint64_t least;
	int error = 0;

	cuda_library_enter();
	pthread_mutex_lock(&open_lock);
	if (!am) {
		error = open_region_handle();
		least = settings->min_bytes > unit_of(&defaults) ? settings->min_bytes :
			unit_of(&defaults);
		if (error)
			cuda_failure_set_last(failure, TALE_REGION);
		else if (settings->is_verbose)
			say("ranges of %s and more that the program registers before it touches them get pages of regions (%s)",
			    SAY_BYTES(least), cuda_library.actmem_describe(am));
	}
	pthread_mutex_unlock(&open_lock);
	cuda_library_leave();
	*unit = unit_of(&defaults);
	return !error;
}

/*
 * Gives the region the program's memory policy, unless the environment selects nodes or a policy.
 */
static void apply_policy(struct actmem_region_options *options, const struct cuda_policy *policy)
{
	if (!nodes_empty(&defaults.nodes) || defaults.policy || nodes_empty(&policy->nodes))
		return;
	switch (policy->mode & ~MODE_FLAGS) {
	case MPOL_BIND:
		options->policy = ACTMEM_PLACE_BIND;
		break;
	case MPOL_INTERLEAVE:
	case MODE_WEIGHTED_INTERLEAVE:
		options->policy = ACTMEM_PLACE_INTERLEAVE;
		break;
	case MPOL_PREFERRED:
	case MODE_PREFERRED_MANY:
		options->policy = ACTMEM_PLACE_PREFERRED;
		node_set(&options->nodes, nodes_next(&policy->nodes, 0));
		return;
	default:
		return;
	}
	options->nodes = policy->nodes;
}

/*
 * Returns true if this process has the file open. If this process has closed the file, sets
 * *@closed to its entry, otherwise to NULL. Caller holds names_lock.
 */
static bool is_name_open(uint64_t length, unsigned int number, struct cuda_name **closed)
{
	struct cuda_name *found = names;

	while (found && (found->length != length || found->number != number))
		found = found->next;
	*closed = found && found->is_closed ? found : NULL;
	return found && !found->is_closed;
}

/*
 * Claims the first name, from number @from on, whose file this process does not have open. Returns
 * NULL if there is no memory.
 */
static struct cuda_name *claim_name(uint64_t length, unsigned int from, bool *was_closed)
{
	struct cuda_name *name;

	pthread_mutex_lock(&names_lock);
	while (is_name_open(length, from, &name))
		from++;
	*was_closed = name;
	if (!name) {
		name = calloc(1, sizeof(*name));
		if (name) {
			name->length = length;
			name->number = from;
			name->next = names;
			names = name;
		}
	}
	if (name)
		name->is_closed = false;
	pthread_mutex_unlock(&names_lock);
	return name;
}

static void close_name(struct cuda_name *name)
{
	pthread_mutex_lock(&names_lock);
	name->is_closed = true;
	pthread_mutex_unlock(&names_lock);
}

/* Forgets a name whose file this process has never opened. */
static void forget_name(struct cuda_name *name)
{
	struct cuda_name **link = &names;

	pthread_mutex_lock(&names_lock);
	while (*link != name)
		link = &(*link)->next;
	*link = name->next;
	pthread_mutex_unlock(&names_lock);
	free(name);
}

static int open_named(struct cuda_region *region, const struct actmem_region_options *options)
{
	char path[PATH_MAX + 64];
	unsigned int from = 0;
	bool was_closed;
	int error;

	do {
		region->name = claim_name(options->length, from, &was_closed);
		if (!region->name)
			return -ENOBUFS;
		from = region->name->number + 1;
		snprintf(path, sizeof(path), "%s.cuda.%lluM.%u", name_prefix,
			 (unsigned long long)options->length >> 20, region->name->number);
		error = cuda_library.actmem_region_open(am, path, options, ACTMEM_OPEN_CREATE |
							ACTMEM_OPEN_LOCK | ACTMEM_OPEN_OWN,
							&region->region);
		if (error && was_closed)
			close_name(region->name);
		else if (error)
			forget_name(region->name);
	} while (error == -EBUSY && was_closed);
	return error;
}

/*
 * Prints a line if pages are on other nodes than the program requested. The program itself cannot
 * notice this misplacement, because its mbind() has succeeded.
 */
static void say_if_far(const struct actmem_region_info *info, const struct cuda_policy *policy,
		       bool is_found)
{
	unsigned int wanted = nodes_next(&policy->nodes, 0), node;
	uint64_t far_bytes = 0;

	if (nodes_empty(&policy->nodes))
		return;
	for (node = 0; node < info->node_count; node++)
		if (!node_is_set(&policy->nodes, node))
			far_bytes += info->node_bytes[node];
	if (!far_bytes)
		return;
	say_once(TALE_FAR, "%s of %s registered memory are not on node %u, which the program requested (mbind): %s",
		 SAY_BYTES(far_bytes), SAY_BYTES(info->length), wanted,
		 is_found ? "the existing file has its pages on other nodes; remove the file, or use another name (ACTMEM_NAME, actmem run --name)" :
		 !nodes_empty(&defaults.nodes) || defaults.policy ?
		 "ACTMEM_NODES or ACTMEM_POLICY overrides the program (actmem run --nodes, --policy)" :
		 info->backend == ACTMEM_BACKEND_MEMFD ? "the node has no more free memory" :
		 "the node has no more free memory, or its limit_bytes in /sys/class/misc/actmem is reached");
}

/*
 * Checks where the region's pages are. Maps a memfd region through libactmem, so that libactmem
 * publishes that this process maps the region.
 */
static int check_region(struct actmem_region *region, const struct cuda_policy *policy)
{
	uint64_t node_bytes[ACTMEM_NODES_MAX];
	struct actmem_region_info info;
	void *address;
	int error;

	ACTMEM_INIT(&info);
	info.node_bytes = node_bytes;
	info.node_count = ACTMEM_NODES_MAX;
	error = cuda_library.actmem_region_get_info(region, &info);
	if (!error)
		say_if_far(&info, policy, cuda_library.actmem_region_found(region) > 0);
	if (!error && info.backend == ACTMEM_BACKEND_MEMFD)
		error = cuda_library.actmem_region_map(region, &address);
	return error;
}

bool cuda_region_open(struct cuda_region *region, uint64_t length,
		      const struct cuda_policy *policy, struct cuda_failure *failure)
{
	struct actmem_region_options options;
	bool is_open;
	int error;

	*region = (struct cuda_region){ .name = NULL };
	ACTMEM_INIT(&options);
	options.length = length;
	/* The environment's fallback flags also apply to nodes that the program set. */
	options.allow = defaults.allow;
	apply_policy(&options, policy);
	cuda_library_enter();
	if (*name_prefix) {
		error = open_named(region, &options);
	} else {
		options.name = "cuda";
		error = cuda_library.actmem_region_create(am, &options, &region->region);
	}
	is_open = !error;
	if (is_open)
		error = check_region(region->region, policy);
	if (error == -ENOBUFS)
		cuda_failure_set(failure, TALE_REGION, "no memory for the name of a region");
	else if (error)
		cuda_failure_set_last(failure, TALE_REGION);
	if (error && is_open)
		cuda_region_close(region);
	cuda_library_leave();
	return !error;
}

void cuda_region_close(const struct cuda_region *region)
{
	cuda_library_enter();
	cuda_library.actmem_region_close(region->region);
	cuda_library_leave();
	if (region->name)
		close_name(region->name);
}
