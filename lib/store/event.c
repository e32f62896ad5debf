/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The eventfds of a store: one for programs that poll, and one that wakes a thread (limits.c). */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/base.h"
#include "store/store.h"

int store_make_event(struct actmem_store *store, struct store_event *event, int flags)
{
	event->descriptor = eventfd(0, EFD_CLOEXEC | flags);
	if (event->descriptor < 0)
		return fail(errno, "cannot create an eventfd for the store (%s)", strerror(errno));
	event->held.descriptors = &event->descriptor;
	event->held.count = 1;
	held_add(store->am, &event->held);
	return 0;
}

void store_end_event(struct store_event *event)
{
	held_drop(&event->held);
	close(event->descriptor);
}

int actmem_store_eventfd(struct actmem_store *store)
{
	int result = store_check(store, "actmem_store_eventfd");

	if (result)
		return result;
	pthread_mutex_lock(&store->lock);
	if (store->event.descriptor < 0)
		result = store_make_event(store, &store->event, EFD_NONBLOCK);
	if (!result)
		result = store->event.descriptor;
	pthread_mutex_unlock(&store->lock);
	return result;
}
