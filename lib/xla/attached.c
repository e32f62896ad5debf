/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handle with which the handlers make regions, and the reports of waits for a GPU; see
 * attached.h and device_wait.h.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "actmem_store.h"
#include "base/base.h"
#include "config/config.h"
#include "xla/attached.h"
#include "xla/device_wait.h"
#include "xla/forked.h"
#include "xla/own_memory.h"

#define WAIT_WORDS	256	/* more than `actmem waits` shows */

/* No thread holds this lock while it waits for a GPU. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct actmem *attached;
static unsigned int users;	/* calls of attached_open() minus calls of attached_close() */
static struct knobs given;
static struct device_wait *waits;	/* waits that @attached reports */

static bool attached_is_free(void)
{
	return forked_lock_is_free(&lock) && !attached;
}
FORKED_WATCH(attached_is_free)

/* Fails, or prints a line, if a spill directory is in memory. */
static int check_directories(const struct knobs *knobs)
{
	int error = actmem_store_check_paths((const char *const *)knobs->spill_paths,
					   knobs->spill_path_count, knobs->spill_allow);

	if (!error && *actmem_error() && !knob_is_on(KNOB_QUIET))
		fprintf(stderr, "actmem: %s; ACTMEM_QUIET=1 omits this line\n",
			actmem_error_in(knobs->names));
	return error;
}

/*
 * Opens the handle as the environment variables say, unless the program attached one. Caller holds
 * the lock.
 */
static int open_backend(const struct knobs *knobs)
{
	struct actmem_options options;
	int error;

	if (attached)
		return 0;
	error = check_directories(knobs);
	if (error)
		return error;
	given.named = knob_is_set(KNOB_NAME);
	given.placed = knob_is_set(KNOB_NODES) || knob_is_set(KNOB_POLICY);
	ACTMEM_INIT(&options);
	error = actmem_options_from_environment(&options);
	return error ? error : actmem_open(&attached, &options);
}

int attached_open(struct actmem **am, struct knobs *knobs, char *words, size_t words_size)
{
	int error = forked_check(words, words_size);

	if (error)
		return error;
	pthread_mutex_lock(&lock);
	error = knobs_complete(knobs, &given, ACTMEM_NAMES_PYTHON, words, words_size);
	if (!error) {
		error = open_backend(knobs);
		if (error) {
			knobs_error(knobs, words, words_size);
			knobs_forget(knobs);
		}
	}
	if (!error) {
		*am = attached;
		/* open_backend() may have set these two options. */
		knobs->named = given.named;
		knobs->placed = given.placed;
		users++;
	}
	pthread_mutex_unlock(&lock);
	return error;
}

void attached_close(void)
{
	pthread_mutex_lock(&lock);
	users--;
	pthread_mutex_unlock(&lock);
}

int attached_open_runtime(struct actmem *am, uint32_t device, bool spills,
			  struct actmem_runtime **runtime)
{
	struct actmem_runtime_options options;

	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_CUDA;
	options.device = (int32_t)device;
	own_memory_allow(&options, spills);
	return actmem_runtime_open(am, &options, runtime);
}

int attached_place(struct actmem_runtime *runtime, const struct knobs *knobs,
		   struct actmem_region_options *region)
{
	struct actmem_runtime_info info;
	int error;

	if (knobs->placed || knobs->named)
		return 0;
	ACTMEM_INIT(&info);
	error = actmem_runtime_get_info(runtime, &info);
	if (error || info.node < 0)
		return error;
	region->policy = ACTMEM_PLACE_BIND;
	region->flags |= ACTMEM_REGION_NEAR;
	return actmem_runtime_nodes(runtime, &region->nodes);
}

/* Caller holds the lock. */
static void remove_wait(struct device_wait *wait)
{
	actmem_device_wait_end(attached, wait->told);
	*wait->link = wait->next;
	if (wait->next)
		wait->next->link = wait->link;
	wait->link = NULL;
}

void device_wait_begin(struct device_wait *wait, uint32_t device, uint64_t bytes,
		       const char *what, const char *where)
{
	char words[WAIT_WORDS];

	snprintf(words, sizeof(words), "GPU %" PRIu32 ": %s%s%s", device, what,
		 where ? " " : "", where ? where : "");
	wait->link = NULL;
	pthread_mutex_lock(&lock);
	if (attached) {
		wait->told = actmem_device_wait_begin(attached, bytes, words);
		wait->next = waits;
		wait->link = &waits;
		if (waits)
			waits->link = &wait->next;
		waits = wait;
	}
	pthread_mutex_unlock(&lock);
}

void device_wait_end(struct device_wait *wait)
{
	pthread_mutex_lock(&lock);
	if (wait->link)
		remove_wait(wait);
	pthread_mutex_unlock(&lock);
}

int actmem_xla_attach(struct actmem *am, const struct actmem_xla_options *options)
{
	int error = -EBUSY;

	if (is_forked())
		return -EOWNERDEAD;
	pthread_mutex_lock(&lock);
	if (!attached)
		error = knobs_take(&given, options);
	if (!error)
		attached = am;
	pthread_mutex_unlock(&lock);
	return error;
}

int actmem_xla_close(struct actmem *am)
{
	int error;

	if (is_forked())
		return actmem_close(am);
	pthread_mutex_lock(&lock);
	if (attached == am && !users)
		while (waits)
			remove_wait(waits);
	error = actmem_close(am);
	if (!error && attached == am) {
		attached = NULL;
		knobs_forget(&given);
	}
	pthread_mutex_unlock(&lock);
	return error;
}

struct actmem *actmem_xla_attached(void)
{
	struct actmem *am;

	if (is_forked())
		return attached;
	pthread_mutex_lock(&lock);
	am = attached;
	pthread_mutex_unlock(&lock);
	return am;
}
