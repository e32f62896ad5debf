/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A forked child has no use of its parent's handles, mappings and descriptors,
 * and opens its own; a mapping is inherited if that was asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common.h"

struct parent {
	struct actmem *am;
	struct actmem_region *region, *inherited;
	struct actmem_heap *heap;
	void *block;
	char *memory, *shared;
};

static bool is_mapped(void *address)
{
	unsigned char page;

	return !mincore(address, 4096, &page);
}

static bool handles_are_refused(void *context)
{
	struct parent *p = context;
	struct actmem_counters counters = { .size = sizeof(counters) };
	struct actmem_region_info info = { .size = sizeof(info) };
	struct actmem_heap_stats stats = { .size = sizeof(stats) };
	struct actmem_region *region;
	struct actmem_heap *heap;
	void *address;

	return refused(actmem_get_counters(p->am, &counters)) &&
	       refused(create_region(p->am, LENGTH, 0, &region)) &&
	       refused(actmem_region_from_fd(p->am, 0, &region)) &&
	       refused(actmem_region_fd(p->region)) &&
	       refused(actmem_region_map(p->region, &address)) &&
	       refused(actmem_region_unmap(p->region)) &&
	       refused(actmem_region_get_info(p->region, &info)) &&
	       refused(actmem_region_close(p->region)) &&
	       refused(actmem_heap_create(p->am, NULL, &heap)) &&
	       refused(actmem_heap_alloc(p->heap, 1, 0, &address)) &&
	       refused(actmem_heap_free(p->heap, p->block)) &&
	       refused(actmem_heap_trim(p->heap)) &&
	       refused(actmem_heap_get_stats(p->heap, &stats)) &&
	       refused(actmem_heap_destroy(p->heap)) &&
	       refused(actmem_close(p->am));
}

static bool mappings_are_gone(void *context)
{
	struct parent *p = context;

	return !is_mapped(p->memory) && !is_mapped(p->block);
}

static bool inherited_is_there(void *context)
{
	struct parent *p = context;

	if (!is_mapped(p->shared) || strcmp(p->shared, "by the parent"))
		return false;
	strcpy(p->shared, "by the child");
	return true;
}

static bool descriptors_are_closed(void *context)
{
	char path[64], link[256];
	ssize_t length;
	int fd;

	for (fd = 3; fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		length = readlink(path, link, sizeof(link) - 1);
		if (length <= 0)
			continue;
		link[length] = '\0';
		if (strstr(link, "actmem")) {
			printf("# descriptor %d is %s\n", fd, link);
			return false;
		}
	}
	return true;
}

static bool child_has_its_own(void *context)
{
	struct actmem_region *region;
	struct actmem *am;

	if (actmem_open(&am, NULL) || create_region(am, LENGTH, 0, &region))
		return false;
	memset(memory_or_bail(region), 1, LENGTH);
	return !actmem_region_close(region) && !actmem_close(am);
}

static bool child_publishes_nothing(void *context)
{
	struct actmem_region_info *regions;
	bool none = true;
	size_t count, i;

	if (actmem_region_list(&regions, &count))
		return false;
	for (i = 0; i < count; i++)
		none = none && regions[i].pid != getpid();
	free(regions);
	return none;
}

static void test_fork(struct actmem *am)
{
	struct actmem_heap_options heap = { .size = sizeof(heap), .grow_bytes = LENGTH };
	struct parent p = { .am = am, .region = region_or_bail(am, "parents") };

	returns(create_region(p.am, LENGTH, ACTMEM_REGION_INHERIT, &p.inherited), 0);
	returns(actmem_heap_create(p.am, &heap, &p.heap), 0);
	returns(actmem_heap_alloc(p.heap, 1000, 0, &p.block), 0);
	p.memory = memory_or_bail(p.region);
	p.shared = memory_or_bail(p.inherited);
	strcpy(p.shared, "by the parent");

	ok(in_child(handles_are_refused, &p), "every call on an inherited handle is refused");
	ok(in_child(mappings_are_gone, &p), "mappings are not inherited");
	ok(in_child(inherited_is_there, &p), "unless it was asked for");
	ok(!strcmp(p.shared, "by the child"), "and then it is the same memory");
	ok(in_child(descriptors_are_closed, &p), "no descriptor stays open in the child");
	ok(in_child(child_has_its_own, &p), "a child opens its own");
	ok(in_child(child_publishes_nothing, &p), "a child does not publish as its parent");

	strcpy(p.memory, "still here");
	ok(!strcmp(p.memory, "still here"), "the parent goes on");
	returns(actmem_heap_free(p.heap, p.block), 0);
	returns(actmem_heap_destroy(p.heap), 0);
	returns(actmem_region_close(p.inherited), 0);
	returns(actmem_region_close(p.region), 0);
}

#define LONG		(32 * MIB)
#define ROUNDS		8
/* A child may be forked in the instant between open() and the note of its result. */
#define KEPT_MAX	1

/* A region that a thread creates, opens, receives or closes while another thread forks. */
struct busy {
	struct actmem *am;
	struct actmem_region *region;
	struct actmem_region *sent;	/* to receive */
	const char *name;		/* to open */
	bool has_begun;
};

static void begin(struct busy *busy)
{
	__atomic_store_n(&busy->has_begun, true, __ATOMIC_RELEASE);
}

static void *create_long(void *context)
{
	struct busy *busy = context;

	begin(busy);
	returns(create_region(busy->am, LONG, 0, &busy->region), 0);
	return NULL;
}

static void *open_long(void *context)
{
	struct actmem_region_options options = { .size = sizeof(options), .length = LONG };
	struct busy *busy = context;

	begin(busy);
	returns(actmem_region_open(busy->am, busy->name, &options, ACTMEM_OPEN_CREATE,
				   &busy->region), 0);
	return NULL;
}

static void *receive_long(void *context)
{
	struct busy *busy = context;

	begin(busy);
	returns(actmem_region_from_fd(busy->am, actmem_region_fd(busy->sent), &busy->region), 0);
	return NULL;
}

static void *close_long(void *context)
{
	struct busy *busy = context;

	begin(busy);
	returns(actmem_region_close(busy->region), 0);
	return NULL;
}

/*
 * Returns true if a child that is forked during the call has the descriptor of a region. @round
 * sets when the child is forked, from 0.1 to 12.8 ms after the call has begun.
 */
static bool child_keeps_region(void *(*body)(void *context), struct busy *busy, int round)
{
	pthread_t thread;
	bool closed;

	busy->has_begun = false;
	thread = start_thread(body, busy);
	while (!__atomic_load_n(&busy->has_begun, __ATOMIC_ACQUIRE))
		;
	usleep(100U << round);
	closed = in_child(descriptors_are_closed, busy);
	pthread_join(thread, NULL);
	return !closed;
}

static void test_busy(struct actmem *am)
{
	unsigned int created = 0, received = 0, closed = 0;
	struct busy busy = { .am = am };
	int i;

	for (i = 0; i < ROUNDS; i++) {
		created += child_keeps_region(create_long, &busy, i);
		busy.sent = busy.region;
		received += child_keeps_region(receive_long, &busy, i);
		returns(actmem_region_close(busy.sent), 0);
		closed += child_keeps_region(close_long, &busy, i);
	}
	ok(created <= KEPT_MAX, "a child forked during the creation of a region does not keep the region");
	ok(received <= KEPT_MAX, "nor does a child forked while a region is received");
	ok(!closed, "nor does a child forked while a region is closed");
}

static void test_busy_named(struct actmem *am)
{
	struct busy busy = { .am = am };
	unsigned int created = 0, opened = 0;
	const char *folder;
	char name[64];
	int i;

	if (geteuid())
		return;
	folder = mount_own(am);
	snprintf(name, sizeof(name), "%s/region", folder);
	busy.name = name;
	for (i = 0; i < ROUNDS; i++) {
		created += child_keeps_region(open_long, &busy, i);
		returns(actmem_region_close(busy.region), 0);
		opened += child_keeps_region(open_long, &busy, i);
		returns(actmem_region_close(busy.region), 0);
		returns(unlink(name), 0);
	}
	ok(created <= KEPT_MAX, "a child forked while a name is created does not keep the region");
	ok(opened <= KEPT_MAX, "nor does a child forked while a name is opened");
	unmount_own(folder);
}

int main(void)
{
	return RUN_TESTS(test_fork, test_busy, test_busy_named);
}
