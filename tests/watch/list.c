/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The list tells of other processes' regions as they are, and of none once
 * their process was killed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common.h"

static struct actmem_region_info *regions;
static size_t region_count;

static const struct actmem_region_info *find(const char *name, unsigned int *times)
{
	const struct actmem_region_info *found = NULL;
	size_t i;

	free(regions);
	regions = NULL;
	*times = 0;
	if (actmem_region_list(&regions, &region_count))
		tap_bail("actmem_region_list");
	for (i = 0; i < region_count; i++) {
		if (strcmp(regions[i].name, name))
			continue;
		found = &regions[i];
		(*times)++;
	}
	return found;
}

static bool hold_region(void *name)
{
	memory_or_bail(region_or_bail(open_or_bail(), name));
	return true;
}

static void test_other_process(void)
{
	char name[ACTMEM_NAME_MAX];
	const struct actmem_region_info *info;
	unsigned int times;
	uint64_t sum;
	pid_t child;

	snprintf(name, sizeof(name), "held for %d", getpid());
	child = holder(hold_region, name);
	info = find(name, &times);
	if (ok(info && times == 1, "another process's region is listed once")) {
		sum = bytes_on_nodes(info);
		ok(info->pid == child && info->uid == getuid(), "its owner is told");
		ok(!strcmp(info->command, "list"), "its command is told (%s)", info->command);
		ok(info->length == LENGTH && sum == LENGTH, "its bytes on each node are told");
		ok(info->page_bytes == page_bytes_wanted() && info->pages == pages_wanted(),
		   "its pages are told");
		ok(info->mapped_bytes <= LENGTH && !info->lingering, "its use is told");
	}
	kill_and_wait(child);
	find(name, &times);
	ok(!times, "kill -9 leaves nothing");
}

static void test_own(struct actmem *am)
{
	char name[ACTMEM_NAME_MAX];
	struct actmem_region *region, *second;
	const struct actmem_region_info *info;
	struct actmem_region_info own;
	unsigned int times;

	snprintf(name, sizeof(name), "own of %d", getpid());
	region = region_or_bail(am, name);
	returns(actmem_region_from_fd(am, actmem_region_fd(region), &second), 0);
	own = info_or_bail(region);
	info = find(name, &times);
	ok(info && times == 1, "a region with two handles is listed once");
	ok(info && info->id == own.id && info->pid == getpid() &&
	   info->node_count == own.node_count &&
	   !memcmp(info->node_bytes, own.node_bytes, own.node_count * sizeof(uint64_t)),
	   "the list and the region's own info agree");
	returns(actmem_region_close(region), 0);
	find(name, &times);
	ok(times == 1, "it is listed while the second handle is open");
	returns(actmem_region_close(second), 0);
	find(name, &times);
	ok(!times, "and no longer");
}

/* As a program that was compiled with a shorter and with a longer struct. */
static void test_item_sizes(struct actmem *am)
{
	struct actmem_region *region = region_or_bail(am, "sizes");
	const size_t sizes[] = { 64, sizeof(struct actmem_region_info) + 64 };
	struct actmem_region_info *items, *item;
	size_t count, i, s;
	bool found;

	for (s = 0; s < 2; s++) {
		returns(actmem_region_list_sized(&items, &count, sizes[s]), 0);
		found = false;
		for (i = 0; i < count; i++) {
			item = (struct actmem_region_info *)((char *)items + i * sizes[s]);
			found = found || (item->size == sizes[s] && item->length == LENGTH);
		}
		ok(found, "items of %zu bytes can be read", sizes[s]);
		free(items);
	}
	returns(actmem_region_list_sized(&items, &count, 0), -EINVAL);
	returns(actmem_region_list_sized(NULL, &count, 64), -EINVAL);
	returns(actmem_region_close(region), 0);
}

int main(void)
{
	struct usage before = usage_now();
	struct actmem *am;

	test_other_process();
	am = open_or_bail();
	test_own(am);
	test_item_sizes(am);
	free(regions);
	return end_tests(am, before);
}
