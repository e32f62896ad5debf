/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Registers regions with runtimes.
 *
 * A region has at most one registration, which exists as soon as a thread begins to register the
 * region. The registration is busy while a thread registers or unregisters the region. Other
 * threads do not use a busy registration.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/region.h"
#include "runtime/inside.h"

/* Adds a registration to the counters, or subtracts it. Caller holds the runtime's lock. */
static void count_registration(struct registration *registration, bool is_there)
{
	struct actmem_runtime_info *info = &registration->runtime->info;
	uint64_t chunk = registration->chunk_bytes;
	uint64_t sign = is_there ? 1 : UINT64_MAX;

	info->regions += sign;
	info->chunks += sign * ((registration->registered + chunk - 1) / chunk);
	info->bytes += sign * registration->registered;
	info->own_bytes += registration->own ? sign * registration->registered : 0;
	info->far_bytes += sign * registration->far_bytes;
}

/* Sets the region's registration, unless another thread has set one. */
static int claim_region(struct registration *registration)
{
	struct actmem_region *region = registration->region;
	struct actmem_runtime *runtime = registration->runtime;
	const struct registration *other;
	int error = 0;

	pthread_mutex_lock(&region->lock);
	other = region->registration;
	if (other)
		error = fail(EEXIST, "the region is already registered (%s)",
			     other->runtime->description);
	else
		region->registration = registration;
	pthread_mutex_unlock(&region->lock);
	if (error)
		return error;
	/*
	 * Wait for a discard of a memfd region that has not seen the registration. The discard must
	 * end before pages are pinned. The driver never discards pinned pages.
	 */
	pthread_mutex_lock(&region->pages_lock);
	pthread_mutex_unlock(&region->pages_lock);
	pthread_mutex_lock(&runtime->lock);
	link_append(&runtime->registrations, &registration->link);
	pthread_mutex_unlock(&runtime->lock);
	return 0;
}

static void disclaim_region(struct registration *registration)
{
	struct actmem_region *region = registration->region;
	struct actmem_runtime *runtime = registration->runtime;

	pthread_mutex_lock(&runtime->lock);
	link_remove(&registration->link);
	pthread_mutex_unlock(&runtime->lock);
	pthread_mutex_lock(&region->lock);
	region->registration = NULL;
	pthread_mutex_unlock(&region->lock);
	free(registration);
}

/* Populates the region if it is writable, and counts the bytes that are far from the device. */
static int place_pages(struct registration *registration)
{
	struct actmem_region *region = registration->region;
	const struct actmem_runtime *runtime = registration->runtime;
	bool writable = !region_check_writable(region);
	uint64_t node_bytes[ACTMEM_NODES_MAX];
	struct actmem_region_info info;
	unsigned int other;
	int error;

	ACTMEM_INIT(&info);
	error = actmem_region_get_info(region, &info);
	if (!error && writable && info.allocated_bytes < registration->length)
		error = actmem_region_populate(region, 0, registration->length);
	if (error || runtime->info.node < 0)
		return error;
	info.node_bytes = node_bytes;
	info.node_count = ACTMEM_NODES_MAX;
	error = actmem_region_get_info(region, &info);
	for (other = 0; !error && other < info.node_count; other++)
		if (!node_is_set(&runtime->nodes, other))
			registration->far_bytes += node_bytes[other];
	return error;
}

static void settle_registration(struct registration *registration, bool failed)
{
	struct actmem_runtime *runtime = registration->runtime;

	pthread_mutex_lock(&runtime->lock);
	count_registration(registration, true);
	registration->busy = false;
	if (!failed) {
		runtime->info.regions_total++;
		runtime->info.far_total += registration->far_bytes > 0;
	}
	pthread_mutex_unlock(&runtime->lock);
}

/*
 * Counts a failed registration. After -EOPNOTSUPP, the runtime refuses all later registrations,
 * unless this registration was read-only or an earlier one succeeded.
 */
static void count_failure(const struct registration *registration, int error)
{
	struct actmem_runtime *runtime = registration->runtime;

	pthread_mutex_lock(&runtime->lock);
	runtime->info.failures_total++;
	if (error == -EOPNOTSUPP && !runtime->info.regions_total &&
	    !(registration->flags & ACTMEM_REGISTER_READ_ONLY))
		snprintf(runtime->refusal, sizeof(runtime->refusal), "%s", fail_words());
	pthread_mutex_unlock(&runtime->lock);
}

/* Sets the message of a success, which is empty if all pages are near the device. */
static void tell_place(const struct registration *registration)
{
	const struct actmem_runtime *runtime = registration->runtime;

	fail_clear();
	if (registration->far_bytes)
		fail(0, "%s of %s are not on %s, where %s is; create the region there (actmem_runtime_nodes)",
		     BYTES_TEXT(registration->far_bytes), BYTES_TEXT(registration->length),
		     NODES_TEXT(&runtime->nodes), runtime->info.text);
}

/*
 * Registers a claimed region. After a failure, frees the registration unless chunks stay
 * registered. After settle_registration(), another thread can unregister the region, and so free
 * the registration.
 */
static int registration_make(struct registration *registration, uint64_t *chunk_bytes)
{
	struct actmem_runtime *runtime = registration->runtime;
	void *address;
	int error = actmem_region_map(registration->region, &address);

	if (error)
		goto disclaim;
	registration->address = address;
	error = place_pages(registration);
	if (error)
		goto unmap;
	error = runtime->kind->begin(registration);
	if (!error) {
		error = chunks_add(registration);
		if (error && !registration->registered)
			runtime->kind->end(registration);
	}
	if (error)
		count_failure(registration, error);
	if (!error || registration->registered) {
		if (!error)
			tell_place(registration);
		*chunk_bytes = registration->chunk_bytes;
		settle_registration(registration, error);
		return error;
	}
unmap:
	actmem_region_unmap(registration->region);
disclaim:
	disclaim_region(registration);
	return error;
}

static int check_registrable(const struct actmem_region *region,
			     const struct actmem_runtime *runtime, uint32_t flags)
{
	int error;

	if (!region || region->am != runtime->am)
		return fail(EINVAL, region ? "the region and the runtime come from different calls of actmem_open()" :
			    "actmem_region_register: no region");
	if (flags & ~ACTMEM_REGISTER_ALL)
		return fail(EINVAL, "register flags 0x%x are unknown", flags & ~ACTMEM_REGISTER_ALL);
	if (flags & ACTMEM_REGISTER_READ_ONLY)
		return 0;
	error = region_check_writable(region);
	if (error)
		fail_more(", so devices may only read it: register it with ACTMEM_REGISTER_READ_ONLY");
	return error;
}

int region_register_in(struct actmem_region *region, struct actmem_runtime *runtime,
		       uint32_t flags, uint64_t *chunk_bytes, uint64_t chunk_least)
{
	struct registration *registration;
	int error = check_registrable(region, runtime, flags);

	if (!error && !own_is(region))
		error = runtime_check_registers(runtime);
	if (error)
		return error;
	registration = calloc(1, sizeof(*registration));
	if (!registration)
		return fail(ENOMEM, "no memory to register a region");
	link_init(&registration->link);
	registration->runtime = runtime;
	registration->region = region;
	registration->length = actmem_region_length(region);
	registration->chunk_bytes = *chunk_bytes;
	registration->chunk_least = chunk_least > PIECE_LEAST ? chunk_least : PIECE_LEAST;
	registration->flags = flags;
	registration->own = own_is(region);
	registration->busy = true;
	error = claim_region(registration);
	if (error) {
		free(registration);
		return error;
	}
	thread_hold_cancellation();
	error = registration_make(registration, chunk_bytes);
	thread_let_cancellation();
	return error;
}

int actmem_region_register(struct actmem_region *region, struct actmem_runtime *runtime,
			   uint32_t flags)
{
	int error = runtime_check(runtime, "actmem_region_register");
	uint64_t chunk_bytes;

	if (error)
		return error;
	chunk_bytes = runtime_accepted_bytes(runtime);
	return region_register_in(region, runtime, flags, &chunk_bytes, 0);
}

static int check_region(const struct actmem_region *region, const char *call)
{
	return region ? check_owner(region->am) : fail(EINVAL, "%s: no region", call);
}

/*
 * Finds the registration of a region. Returns -EBUSY if another thread registers or unregisters the
 * region. Caller holds the region's lock, so that the registration stays valid. If @ends is set,
 * marks the registration as busy, and the caller must then end the registration.
 */
static int find_registration(struct actmem_region *region, struct registration **result, bool ends)
{
	struct registration *registration = region->registration;
	int error = 0;

	if (!registration)
		return fail(ENOENT, "the region is not registered");
	pthread_mutex_lock(&registration->runtime->lock);
	if (registration->busy) {
		error = fail(EBUSY, "another thread is registering or unregistering the region");
	} else if (ends) {
		registration->busy = true;
		count_registration(registration, false);
	}
	pthread_mutex_unlock(&registration->runtime->lock);
	*result = registration;
	return error;
}

int actmem_region_unregister(struct actmem_region *region)
{
	struct registration *registration;
	struct actmem_runtime *runtime;
	int error = check_region(region, "actmem_region_unregister");

	if (error)
		return error;
	pthread_mutex_lock(&region->lock);
	error = find_registration(region, &registration, true);
	pthread_mutex_unlock(&region->lock);
	if (error)
		return error;
	runtime = registration->runtime;
	error = chunks_drop(registration);
	if (error < 0) {
		settle_registration(registration, true);
		return error;
	}
	runtime->kind->end(registration);
	actmem_region_unmap(region);
	if (registration->own)
		runtime->options.own_memory(registration->length, NULL);
	if (error != RUNTIME_LOST)
		fail_clear();
	pthread_mutex_lock(&runtime->lock);
	runtime->info.lost_total += error == RUNTIME_LOST;
	pthread_mutex_unlock(&runtime->lock);
	/* The last step: after this call, another thread can close the region and the runtime. */
	disclaim_region(registration);
	return 0;
}

void registration_abandon(struct actmem_region *region)
{
	struct actmem_runtime *runtime;

	pthread_mutex_lock(&region->lock);
	runtime = region->registration->runtime;
	pthread_mutex_lock(&runtime->lock);
	region->registration->abandoned = true;
	pthread_mutex_unlock(&runtime->lock);
	pthread_mutex_unlock(&region->lock);
}

/* Returns the abandoned registration after @skipped others, or NULL. */
static struct registration *find_abandoned(struct actmem_runtime *runtime, unsigned int skipped)
{
	struct registration *found = NULL;
	struct link *link;

	pthread_mutex_lock(&runtime->lock);
	for (link = runtime->registrations.next; !found && link != &runtime->registrations;
	     link = link->next)
		if (link_item(link, struct registration, link)->abandoned && !skipped--)
			found = link_item(link, struct registration, link);
	pthread_mutex_unlock(&runtime->lock);
	return found;
}

void registration_end_abandoned(struct actmem_runtime *runtime)
{
	struct registration *registration;
	unsigned int failed = 0;

	while ((registration = find_abandoned(runtime, failed))) {
		struct actmem_region *region = registration->region;

		if (actmem_region_unregister(region))
			failed++;
		else
			region_close(region);
	}
}

/* Caller holds the region's lock. */
static int look_at_chunks(struct actmem_region *region, struct actmem_registration *now)
{
	struct registration *registration;
	uint64_t at, chunk;
	int error = find_registration(region, &registration, false);

	if (error)
		return error;
	now->address = registration->address;
	now->length = registration->length;
	now->far_bytes = registration->far_bytes;
	now->flags = registration->flags;
	chunk = registration->chunk_bytes;
	for (at = 0; at < registration->registered; at += chunk) {
		uint32_t flags = 0;

		error = registration->runtime->kind->look(registration, registration->address + at,
							  &flags);
		if (error < 0)
			return error;
		now->chunks++;
		now->lost_chunks += error == RUNTIME_LOST;
		if (!at)
			now->runtime_flags = flags;
	}
	return 0;
}

int actmem_region_get_registration(struct actmem_region *region, struct actmem_registration *result)
{
	struct actmem_registration now;
	int error = check_region(region, "actmem_region_get_registration");

	if (error)
		return error;
	if (!result)
		return fail(EINVAL, "actmem_region_get_registration: result is NULL");
	ACTMEM_INIT(&now);
	pthread_mutex_lock(&region->lock);
	error = look_at_chunks(region, &now);
	pthread_mutex_unlock(&region->lock);
	return error ? error : give_struct(result, &now, sizeof(now), "registration");
}

/*
 * Finds the registration that contains @address. Caller holds the runtime's lock, so that the
 * registration stays valid.
 */
static struct registration *registration_with(struct actmem_runtime *runtime, const char *address)
{
	struct registration *found = NULL;
	struct link *link;

	for (link = runtime->registrations.next; !found && link != &runtime->registrations;
	     link = link->next) {
		struct registration *registration = link_item(link, struct registration, link);

		if (!registration->busy && address >= registration->address &&
		    address < registration->address + registration->registered)
			found = registration;
	}
	return found;
}

static int translate_address(struct actmem_runtime *runtime, const void *address, uint64_t *pointer,
			     uint64_t *bytes)
{
	struct registration *registration = registration_with(runtime, address);
	uint64_t offset, chunk_end;
	int error;

	if (!registration)
		return fail(ENOENT, "%p is not in a region that is registered with %s", address,
			    runtime->info.text);
	offset = (uint64_t)((const char *)address - registration->address);
	error = runtime->kind->pointer(registration, registration->address + offset, pointer);
	if (error || !bytes)
		return error;
	chunk_end = (offset / registration->chunk_bytes + 1) * registration->chunk_bytes;
	*bytes = (chunk_end < registration->length ? chunk_end : registration->length) - offset;
	return 0;
}

int actmem_runtime_pointer(struct actmem_runtime *runtime, const void *address, uint64_t *pointer,
			   uint64_t *length)
{
	int error = runtime_check(runtime, "actmem_runtime_pointer");

	if (error)
		return error;
	if (!pointer)
		return fail(EINVAL, "actmem_runtime_pointer: pointer is NULL");
	if (!runtime->kind->pointer)
		return fail(EOPNOTSUPP, "this runtime gives devices no addresses of their own (%s)",
			    runtime->description);
	pthread_mutex_lock(&runtime->lock);
	error = translate_address(runtime, address, pointer, length);
	pthread_mutex_unlock(&runtime->lock);
	return error;
}
