/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <sched.h>

#include "base/base.h"
#include "machine/cpus.h"
#include "machine/helpers.h"
#include "machine/node.h"

/* A thread is worth starting if it zeroes this many bytes, which takes a few milliseconds. */
#define THREAD_BYTES	(HELPERS_LENGTH / 2)
/*
 * Length of a part. A helper always finishes the part that it began, even if the caller fails, so a
 * part must take only a millisecond or two.
 */
#define PART_BYTES	(8ULL << 20)

/* Finds the CPUs that this thread may run on; if is_near, only those of its current node. */
static bool find_cpus(struct helpers *helpers)
{
	if (sched_getaffinity(0, sizeof(helpers->cpus), cpus_set(&helpers->cpus)))
		return false;
	return !helpers->is_near || cpus_keep_node(&helpers->cpus, node_of_caller());
}

/* Returns how many helpers are worth starting in addition to the caller, which populates, too. */
static unsigned int count_useful(struct helpers *helpers, uint64_t length)
{
	unsigned int half, most = HELPERS_MAX;

	if (length < HELPERS_LENGTH || length <= helpers->part_bytes || !find_cpus(helpers))
		return 0;
	half = (unsigned int)CPU_COUNT_S(sizeof(helpers->cpus), cpus_set(&helpers->cpus)) / 2;
	if (length / THREAD_BYTES <= most)
		most = (unsigned int)(length / THREAD_BYTES) - 1;
	return half < most ? half : most;
}

/* Claims a part at the end of the remaining range. Returns its length; 0 if nothing is left. */
static uint64_t take_part(struct helpers *helpers, uint64_t *offset)
{
	uint64_t left = atomic_load(&helpers->left), length;

	do {
		if (!left)
			return 0;
		length = left % helpers->part_bytes;
		if (!length)
			length = helpers->part_bytes;
	} while (!atomic_compare_exchange_weak(&helpers->left, &left, left - length));
	*offset = helpers->offset + left - length;
	return length;
}

static void *help(void *data)
{
	struct helpers *helpers = data;
	uint64_t offset, length;

	if (helpers->is_near &&
	    sched_setaffinity(0, sizeof(helpers->cpus), cpus_set(&helpers->cpus)))
		return NULL;
	while (!atomic_load(&helpers->ended)) {
		length = take_part(helpers, &offset);
		if (!length || helpers->help(helpers->context, offset, length))
			atomic_store(&helpers->ended, true);
	}
	return NULL;
}

void helpers_begin(struct helpers *helpers, uint64_t offset, uint64_t length,
		   uint64_t page_bytes)
{
	unsigned int useful;

	helpers->part_bytes = page_bytes > PART_BYTES ? page_bytes : PART_BYTES;
	helpers->offset = offset;
	atomic_init(&helpers->left, length);
	atomic_init(&helpers->ended, false);
	helpers->count = 0;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &helpers->cancel_state);
	useful = count_useful(helpers, length);
	while (helpers->count < useful &&
	       !thread_create(&helpers->threads[helpers->count], "actmem-populate", help,
			      helpers))
		helpers->count++;
}

bool helpers_end(struct helpers *helpers)
{
	bool any = helpers->count;

	atomic_store(&helpers->ended, true);
	while (helpers->count)
		pthread_join(helpers->threads[--helpers->count], NULL);
	pthread_setcancelstate(helpers->cancel_state, NULL);
	return any;
}
