/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Puts regions under ranges that a program registers: maps the regions' pages at the addresses of
 * the ranges.
 *
 * If no page of the range was touched, a region replaces the part of the range that consists of
 * whole, aligned huge pages. The ends of the range stay as they are. Then the driver registers the
 * program's own addresses with the program's own flags. So all other CUDA calls with these
 * addresses work without the preload.
 *
 * The preload keeps the region open while the range is registered. Afterwards only the program's
 * mapping holds the pages, with their contents. The program's munmap() frees the pages; the preload
 * does not see that call.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine/machine.h"
#include "preload/cuda/cuda.h"
#include "preload/cuda/region.h"
#include "preload/cuda/under.h"
#include "preload/cuda/untouched.h"
#include "preload/malloc/large.h"

struct under {
	struct under *next;
	char *address;			/* address that the program registered */
	char *first;			/* start of the region's mapping */
	uint64_t length;		/* of the region */
	struct cuda_policy policy;	/* of the range before it got the region */
	struct cuda_region its;		/* the region under the range */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct under *unders;
/* ID + 1 of a context in which CUDA registers no memory at all, or 0. */
static _Atomic unsigned long long refusing_context;

/* Sets first and length to the part of the range that consists of whole pages of @unit bytes. */
static void fit_region(struct under *under, size_t bytes, uint64_t unit)
{
	uintptr_t first = ((uintptr_t)under->address + unit - 1) / unit * unit;
	uintptr_t end = ((uintptr_t)under->address + bytes) / unit * unit;

	under->first = (char *)first;
	under->length = end > first ? end - first : 0;
}

/*
 * Maps anonymous memory in place of the region. If that fails, the region's pages stay mapped; they
 * hold no data.
 */
static void map_untouched(const struct under *under)
{
	if (mmap(under->first, under->length, PROT_READ | PROT_WRITE, MAP_PRIVATE |
		 MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED)
		syscall(SYS_mbind, under->first, (unsigned long)under->length, under->policy.mode,
			under->policy.nodes.word, (unsigned long)ACTMEM_NODES_MAX + 1, 0UL);
}

/*
 * Maps the region in place of the range's pages. No data is lost, because no thread has touched
 * these pages.
 */
static bool map_region(struct under *under, struct cuda_failure *failure)
{
	int fd = cuda_library.actmem_region_fd(under->its.region);

	if (mmap(under->first, under->length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
		 0) != MAP_FAILED) {
		/* Ignore errors: MADV_HUGEPAGE fails for pages that are always huge. */
		madvise(under->first, under->length, MADV_HUGEPAGE);
		if (!madvise(under->first, under->length, MADV_DONTDUMP) &&
		    !madvise(under->first, under->length, MADV_DONTFORK)) {
			/*
			 * The program expects zeros, but an existing file has the contents that the
			 * last process left.
			 */
			if (cuda_library.actmem_region_found(under->its.region) > 0)
				memset(under->first, 0, under->length);
			return true;
		}
	}
	cuda_failure_set(failure, TALE_REGION, "cannot map a region at %p (%s)", under->first,
			 strerror(errno));
	map_untouched(under);
	return false;
}

/* Returns the ID + 1 of the current context, or 0 if there is none. */
static unsigned long long current_context(void)
{
	cuda_context context = NULL;
	unsigned long long id;

	return cuda.cuCtxGetCurrent(&context) || !context || cuda.cuCtxGetId(context, &id) ? 0 :
	       id + 1;
}

static void add_under(struct under *under)
{
	pthread_mutex_lock(&lock);
	under->next = unders;
	unders = under;
	pthread_mutex_unlock(&lock);
}

/* Caller holds the lock. */
static void unlink_under(struct under *under)
{
	struct under **link = &unders;

	while (*link != under)
		link = &(*link)->next;
	*link = under->next;
}

static void end_under(struct under *under)
{
	cuda_region_close(&under->its);
	free(under);
}

/*
 * Closes the regions of earlier ranges that overlap the new range: the program has unmapped the
 * earlier ranges without unregistering them.
 */
static void forget_unders(const char *first, uint64_t length)
{
	struct under *under;

	do {
		pthread_mutex_lock(&lock);
		for (under = unders; under; under = under->next)
			if (under->first < first + length &&
			    first < under->first + under->length)
				break;
		if (under)
			unlink_under(under);
		pthread_mutex_unlock(&lock);
		if (under)
			end_under(under);
	} while (under);
}

/*
 * Registers the range with the region in it. If the driver refuses, tries again without the region.
 * If the driver refuses both attempts, *@result is the driver's error, and the outcome is
 * OUTCOME_OURS. If the driver refuses the region but accepts the range without it, the function
 * undoes this registration, and the outcome is OUTCOME_FAILED.
 */
static enum cuda_outcome register_range(struct under *under, size_t bytes, unsigned int flags,
					cuda_result *result, struct cuda_failure *failure)
{
	cuda_result first;

	if (!map_region(under, failure))
		return OUTCOME_FAILED;
	first = cuda_driver.cuMemHostRegister_v2(under->address, bytes, flags);
	*result = first;
	if (!first)
		return OUTCOME_OURS;
	map_untouched(under);
	*result = cuda_driver.cuMemHostRegister_v2(under->address, bytes, flags);
	if (first == CUDA_NOT_SUPPORTED && *result == CUDA_NOT_SUPPORTED)
		refusing_context = current_context();
	if (*result)
		return OUTCOME_OURS;
	cuda_driver.cuMemHostUnregister(under->address);
	cuda_failure_set(failure, TALE_REFUSED, "CUDA registers other pages at this address, but not the pages of a region: %s",
			 CUDA_TEXT(first));
	return OUTCOME_FAILED;
}

enum cuda_outcome cuda_under_register(const struct cuda_settings *settings, void *address,
				      size_t bytes, unsigned int flags, cuda_result *result,
				      struct cuda_failure *failure)
{
	/* XLA registers lengths that are not whole pages, but owns all of the last page. */
	size_t whole = (bytes + BASE_PAGE_BYTES - 1) & ~(BASE_PAGE_BYTES - 1);
	struct under look = { .address = address }, *under;
	enum cuda_outcome outcome = OUTCOME_FAILED;
	uint64_t unit;

	if ((uintptr_t)address % BASE_PAGE_BYTES || bytes > SIZE_MAX - BASE_PAGE_BYTES ||
	    (uintptr_t)address + whole < whole)
		return OUTCOME_DRIVERS;
	/*
	 * Use no region in a block of malloc mode: later blocks reuse its memory, and must be
	 * private.
	 */
	if (large_has(address, bytes))
		return OUTCOME_DRIVERS;
	cuda_policy_of(&look.policy, address);
	if (!cuda_is_untouched(address, whole, &look.policy, settings->is_verbose))
		return OUTCOME_DRIVERS;
	/*
	 * A range without a whole huge page is not a failure, because no setting can change the
	 * range. Print a line, and let the driver serve the request.
	 */
	fit_region(&look, bytes, HUGE_PAGE_BYTES);
	if (!look.length) {
		say_once(TALE_SHORT, "cuMemHostRegister of %s at %p uses the program's own pages instead of a region: the range contains no whole page of 2 MiB",
			 SAY_BYTES(bytes), address);
		return OUTCOME_DRIVERS;
	}
	if (!cuda_library_load(failure))
		return OUTCOME_FAILED;
	/* The driver refuses to register any memory in the current context. */
	if (refusing_context && refusing_context == current_context())
		return OUTCOME_DRIVERS;
	if (!cuda_region_prepare(settings, &unit, failure))
		return OUTCOME_FAILED;
	fit_region(&look, bytes, unit);
	if (!look.length) {
		cuda_failure_set(failure, TALE_REGION, "the range at %p contains no whole page of 1 GiB; use pages of 2 MiB (ACTMEM_PAGES=2M, actmem run --pages 2M)",
				 address);
		return OUTCOME_FAILED;
	}
	forget_unders(look.first, look.length);
	if (!cuda_region_open(&look.its, look.length, &look.policy, failure))
		return OUTCOME_FAILED;
	/* Another thread may have written to the range while the region was being made. */
	if (!cuda_is_untouched(address, whole, &look.policy, settings->is_verbose)) {
		cuda_region_close(&look.its);
		return OUTCOME_DRIVERS;
	}
	under = malloc(sizeof(*under));
	if (under) {
		*under = look;
		outcome = register_range(under, bytes, flags, result, failure);
	} else {
		cuda_failure_set(failure, TALE_REGION, "no memory for bookkeeping");
	}
	if (outcome == OUTCOME_OURS && !*result) {
		add_under(under);
		return outcome;
	}
	cuda_region_close(&look.its);
	free(under);
	return outcome;
}

static struct under *claim_under(const char *address)
{
	struct under *under;

	pthread_mutex_lock(&lock);
	for (under = unders; under && under->address != address;)
		under = under->next;
	if (under)
		unlink_under(under);
	pthread_mutex_unlock(&lock);
	return under;
}

/* Unregisters a range. The program keeps the pages, even if the driver refuses. */
enum cuda_outcome cuda_under_unregister(void *address, cuda_result *result)
{
	struct under *under = claim_under(address);

	if (!under)
		return OUTCOME_DRIVERS;
	*result = cuda_driver.cuMemHostUnregister(address);
	end_under(under);
	return OUTCOME_OURS;
}
