/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Opens and closes handles (struct actmem), and closes their descriptors in forked children.
 *
 * A child cannot use its parent's handles: every call on such a handle fails. The child closes the
 * descriptors of these handles. Otherwise, memory that the parent frees would stay allocated until
 * the child ends.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "region/choose.h"
#include "region/context.h"
#include "region/names.h"
#include "region/options.h"

static pthread_mutex_t handles_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct actmem *handles;
unsigned int handles_generation;
static int fork_error;

void handles_lock(void)
{
	pthread_mutex_lock(&handles_mutex);
}

void handles_unlock(void)
{
	pthread_mutex_unlock(&handles_mutex);
}

/* Calls only functions that are safe in the child of a multithreaded process. */
static void after_fork_in_child(void)
{
	const struct actmem_region *region;
	const struct actmem *am;
	const struct link *link;
	unsigned int i;

	for (am = handles; am; am = am->next) {
		for (region = am->regions; region; region = region->next)
			close(region->backing.fd);
		for (link = am->held.next; link != &am->held; link = link->next) {
			const struct held *held = link_item(link, struct held, link);

			for (i = 0; i < held->count; i++)
				close(held->descriptors[i]);
		}
		close(am->stats.fd);
		if (am->device >= 0)
			close(am->device);
	}
	handles = NULL;
	handles_generation++;
	pthread_mutex_unlock(&handles_mutex);
}

/* A constructor, so that libraries register fork handlers in the order of loading. */
static void __attribute__((constructor)) register_fork_handlers(void)
{
	fork_error = pthread_atfork(handles_lock, handles_unlock, after_fork_in_child);
}

void held_add(struct actmem *am, struct held *held)
{
	handles_lock();
	link_append(&am->held, &held->link);
	handles_unlock();
}

void held_drop(struct held *held)
{
	handles_lock();
	link_remove(&held->link);
	handles_unlock();
}

int check_owner(const struct actmem *am)
{
	if (is_owner(am))
		return 0;
	return fail(EOWNERDEAD, "this handle was opened before fork(); open one in the child with actmem_open()");
}

/*
 * Returns true if the error means that the driver is missing. ACTMEM_BACKEND_AUTO then uses memfd.
 * If the driver denies access, or its version does not fit, ACTMEM_BACKEND_AUTO fails, because the
 * administrator should fix this problem.
 */
static bool driver_is_missing(int error)
{
	return error == -ENOENT || error == -ENXIO;
}

static int use_memfd(struct actmem *am, const char *why)
{
	snprintf(am->description, sizeof(am->description), "memfd: %s", why);
	am->backend = &backend_memfd;
	return am->backend->open(&am->device);
}

static int open_backend(struct actmem *am)
{
	int error;

	if (am->options.backend == ACTMEM_BACKEND_MEMFD)
		return use_memfd(am, "as requested");
	if (!am->options.backend && am->options.pages == ACTMEM_PAGES_1G)
		return use_memfd(am, "1G pages come from hugetlb, and the driver has only 2M pages");
	am->backend = &backend_driver;
	error = am->backend->open(&am->device);
	if (!error)
		snprintf(am->description, sizeof(am->description), "driver: /dev/actmem%s",
			 am->options.backend ? ", as requested" : " is usable");
	if (!error || am->options.backend)
		return error;
	if (driver_is_missing(error))
		return use_memfd(am, actmem_error());
	fail_more("; or use memfd instead of the driver, with %s", KNOB(BACKEND));
	return error;
}

/*
 * Sets the prefix of the paths of all heap files. If @name is NULL, heaps have no names.
 */
static int set_heap_name(struct heap_names *names, const char *name, enum actmem_backend wanted)
{
	const struct backend *backend;
	char path[PATH_MAX];
	int error;

	if (!name)
		return 0;
	error = name_to_path(name, path);
	if (!error && strlen(path) + sizeof(".4096") > sizeof(path))
		error = fail(ENAMETOOLONG, "%s is too long a path", path);
	if (!error)
		error = name_backend(path, wanted, &backend);
	if (error)
		return error;
	names->path = strdup(path);
	return names->path ? 0 : fail(ENOMEM, "no memory for a name");
}

static void describe_names(struct actmem *am)
{
	size_t used = strlen(am->description);

	if (am->heap_names.path)
		snprintf(am->description + used, sizeof(am->description) - used,
			 "; regions of heaps are files: %s.0 and so on", am->heap_names.path);
}

static int read_options(struct actmem_options *into, const struct actmem_options *from)
{
	int error;

	ACTMEM_INIT(into);
	if (!from)
		knobs_are_variables();
	error = from ? take_struct(into, sizeof(*into), from, "options") :
		actmem_options_from_environment(into);
	return error ? error : options_check(into);
}

int actmem_open(struct actmem **result, const struct actmem_options *options)
{
	struct actmem *am;
	int error;

	if (!result)
		return fail(EINVAL, "actmem_open: result is NULL");
	if (fork_error)
		return fail(fork_error, "cannot register fork handlers (pthread_atfork: %s)",
			    strerror(fork_error));
	am = calloc(1, sizeof(*am));
	if (!am)
		return fail(ENOMEM, "no memory for a handle");
	link_init(&am->held);
	error = read_options(&am->options, options);
	if (error)
		goto free_handle;
	error = set_heap_name(&am->heap_names, am->options.heap_name, am->options.backend);
	if (error)
		goto free_handle;
	/* The string belongs to the caller, who may free it. */
	am->options.heap_name = NULL;
	error = open_backend(am);
	if (error)
		goto free_names;
	describe_names(am);
	error = stats_open(&am->stats, am->backend->kind);
	if (error)
		goto close_device;
	am->counters = &am->stats.header->counters;
	am->waits = &am->stats.header->waits;

	handles_lock();
	am->generation = handles_generation;
	am->next = handles;
	if (am->next)
		am->next->previous = am;
	handles = am;
	handles_unlock();
	fail_clear();
	*result = am;
	return 0;

close_device:
	if (am->device >= 0)
		close(am->device);
free_names:
	free(am->heap_names.path);
free_handle:
	free(am);
	return error;
}

int actmem_close(struct actmem *am)
{
	int error;

	if (!am)
		return fail(EINVAL, "actmem_close: am is NULL");
	error = check_owner(am);
	if (error)
		return error;
	handles_lock();
	if (am->regions || am->heaps || am->queues || am->runtimes) {
		handles_unlock();
		return fail(EBUSY, "%llu regions, %u heaps, %u queues, %llu stores and %u runtimes are still open",
			    (unsigned long long)am->counters->regions,
			    am->heaps, am->queues,
			    (unsigned long long)am->counters->stores, am->runtimes);
	}
	if (am->previous)
		am->previous->next = am->next;
	else
		handles = am->next;
	if (am->next)
		am->next->previous = am->previous;
	handles_unlock();
	if (am->device >= 0)
		close(am->device);
	stats_close(&am->stats);
	free(am->heap_names.path);
	free(am);
	return 0;
}

enum actmem_backend actmem_get_backend(const struct actmem *am)
{
	return am ? am->backend->kind : ACTMEM_BACKEND_AUTO;
}

const char *actmem_describe(const struct actmem *am)
{
	return am ? am->description : "not open";
}
