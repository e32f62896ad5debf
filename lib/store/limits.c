/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Adapts a store that can spill to the memory limits. If a limit falls below the usage, the store
 * frees memory. It grows again when the limits allow it. A thread watches the limits, which can
 * change at any time:
 *
 * - the driver's limits of the user, the node and the mount, and since Linux 7.3 the dmem.max of
 *   the cgroup (the driver reports the excess as a surplus);
 * - the limit of this handle, which `actmem limit --pid` sets;
 * - memory.high of the memory cgroup, for memfd regions whose pages the cgroup counts.
 *
 * If the store shares a limit with other users, it returns only its own share of the excess.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "store/store.h"

#define LOOK_MS		100
/*
 * While memory is being returned, the driver's descriptors stay ready, so poll() on them returns at
 * once. Therefore the thread first waits for this time without polling them.
 */
#define RETURN_MS	50
/*
 * The thread finds the cgroup of this process, and reads memory.high, once a second. If memory.high
 * is set, the thread also reads it each time that it checks the limits. So the thread notices
 * within a second that memory.high was set, or that the process was moved to another cgroup. A move
 * is not urgent: pages stay charged to the old cgroup.
 */
#define CGROUP_NS	NS_PER_SECOND
#define WATCHED_MAX	1024
#define WHY_MAX		(CGROUP_FILE_MAX + 64)

/* How much more memory the limits allow a store. */
struct room {
	int64_t bytes;			/* negative: bytes to return; INT64_MAX: no limit */
	char why[WHY_MAX];
};

/* The cgroup of this process, as a store's thread last found it. */
struct own_cgroup {
	struct memory_folder folder;
	uint64_t found;			/* ns: time of the last search; 0: never */
	bool has_limit;
};

/* Records a limit if it leaves less memory than the limits seen so far. */
static void take_limit(struct room *room, int64_t left, const char *why)
{
	if (left >= room->bytes)
		return;
	room->bytes = left;
	snprintf(room->why, sizeof(room->why), "%s", why);
}

/*
 * Returns the store's share of @left bytes: one of @sharers equal parts. If @left is negative, the
 * usage exceeds the limit. The result is then @left * @held / @used, rounded down: the store's
 * share of the excess.
 */
static int64_t share_of(int64_t left, uint64_t held, uint64_t used, uint64_t sharers)
{
	if (left >= 0)
		return left / (int64_t)sharers;
	return -(int64_t)((-(__int128_t)left * held + used - 1) / used);
}

static void take_handle_limit(struct actmem_store *store, uint64_t held, struct room *room)
{
	uint64_t limit = atomic_load(&store->am->stats.header->limit_bytes);
	uint64_t used = store->am->counters->region_bytes;
	char why[WHY_MAX];

	if (!limit || !used || limit > INT64_MAX)
		return;
	snprintf(why, sizeof(why), "'actmem limit --pid' allows this process %s",
		 BYTES_TEXT(limit));
	/* This thread can run before its store is counted. */
	take_limit(room, share_of((int64_t)(limit - used), held, used,
				  store->am->counters->stores ?: 1), why);
}

static void take_cgroup_limit(struct own_cgroup *own, uint64_t held, struct room *room)
{
	uint64_t now = clock_ns();
	struct cgroup_limit high;
	char why[WHY_MAX];

	if (!own->found || now - own->found >= CGROUP_NS) {
		memory_folder_find(&own->folder, "/proc/self/cgroup", "/proc/self/mounts");
		own->found = now;
	} else if (!own->has_limit) {
		return;
	}
	own->has_limit = memory_high_read(&high, &own->folder);
	if (!own->has_limit || !high.used_bytes)
		return;
	snprintf(why, sizeof(why), "%s is %s", high.file, BYTES_TEXT(high.limit_bytes));
	/*
	 * Other processes of the cgroup may grow, too, so the store uses only half of the remaining
	 * bytes.
	 */
	take_limit(room, share_of((int64_t)(high.limit_bytes - high.used_bytes), held,
				  high.used_bytes, 2), why);
}

/* Finds the tightest limit. Reads files, so the caller does not hold the lock. */
static void find_room(struct actmem_store *store, struct own_cgroup *own, uint64_t held,
		      uint64_t surplus, struct room *room)
{
	room->bytes = INT64_MAX;
	if (surplus)
		take_limit(room, -(int64_t)surplus, "the driver's limit was lowered");
	take_handle_limit(store, held, room);
	if (heap_is_charged(store->heap))
		take_cgroup_limit(own, held, room);
}

/* Returns the ceiling of a store that has @held bytes. */
static uint64_t ceiling_of(const struct room *room, uint64_t held)
{
	if (room->bytes == INT64_MAX)
		return UINT64_MAX;
	if (room->bytes < 0 && held < (uint64_t)-room->bytes)
		return 0;
	return held + (uint64_t)room->bytes;
}

/* Sets the ceiling that the limits allow. Returns true if the store has memory to return. */
static bool follow_limits(struct actmem_store *store, struct own_cgroup *own, uint64_t surplus)
{
	uint64_t held = heap_bytes(store->heap);
	struct room room;

	find_room(store, own, held, surplus, &room);
	pthread_mutex_lock(&store->lock);
	if (!store->is_ending)
		store_set_ceiling(store, ceiling_of(&room, held), room.why);
	pthread_mutex_unlock(&store->lock);
	return room.bytes < 0;
}

static bool store_is_ending(struct actmem_store *store)
{
	bool is_ending;

	pthread_mutex_lock(&store->lock);
	is_ending = store->is_ending;
	pthread_mutex_unlock(&store->lock);
	return is_ending;
}

static bool any_has_surplus(const struct pollfd *watched, unsigned int count)
{
	while (count)
		if (watched[--count].revents & POLLPRI)
			return true;
	return false;
}

static void *limits_thread(void *data)
{
	struct actmem_store *store = data;
	struct pollfd watched[1 + WATCHED_MAX];
	struct own_cgroup own = { .found = 0 };
	bool is_over = false;
	uint64_t surplus;
	unsigned int count;

	while (!store_is_ending(store)) {
		watched[0] = (struct pollfd){ .events = POLLIN };
		watched[0].fd = store->limits_wake.descriptor;
		count = heap_watch(store->heap, watched + 1, WATCHED_MAX);
		if (is_over)
			poll(watched, 1, RETURN_MS);
		poll(watched, 1 + count, is_over ? 0 : LOOK_MS);
		surplus = any_has_surplus(watched + 1, count) ? heap_surplus(store->heap) : 0;
		is_over = follow_limits(store, &own, surplus);
	}
	return NULL;
}

int store_watch_limits(struct actmem_store *store)
{
	int error = store_make_event(store, &store->limits_wake, 0);

	if (error)
		return error;
	error = thread_start(&store->limits_thread, "actmem-limits", limits_thread, store);
	if (!error)
		return 0;
	store_end_event(&store->limits_wake);
	return fail(error, "cannot start a thread for the store (pthread_create: %s)",
		    strerror(error));
}

void store_unwatch_limits(struct actmem_store *store)
{
	eventfd_write(store->limits_wake.descriptor, 1);
	pthread_join(store->limits_thread, NULL);
	store_end_event(&store->limits_wake);
}
