/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Hugetlb pages that come back a moment after they are wanted, as those of a process that
 * has just ended: a region waits for them, where nothing else is allowed, and not for ever.
 * The library's naps end here, and pages come back at one of them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common.h"

#define HUGE_PAGE	(2 * MIB)
#define FREE_PAGES	"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
#define NAP_OF_RETURN	3

static struct actmem *am;
static struct actmem_region *held;	/* all pages but one; closed at that nap */
static unsigned int naps;

int nanosleep(const struct timespec *time, struct timespec *left)
{
	if (++naps == NAP_OF_RETURN && held && actmem_region_close(held))
		abort();
	return 0;
}

static uint64_t free_pages(void)
{
	FILE *file = fopen(FREE_PAGES, "r");
	unsigned long long pages = 0;

	if (file && fscanf(file, "%llu", &pages) != 1)
		pages = 0;
	if (file)
		fclose(file);
	return pages;
}

static int make(uint64_t pages, struct actmem_region **region)
{
	return create_region(am, pages * HUGE_PAGE, 0, region);
}

static bool begin(uint32_t allow)
{
	uint64_t pages = free_pages();
	struct actmem_options options = {
		.size = sizeof(options), .backend = ACTMEM_BACKEND_MEMFD, .pages = ACTMEM_PAGES_2M,
		.allow = allow,
	};

	return pages > 1 && !actmem_open(&am, &options) && !make(pages - 1, &held);
}

static bool pages_come_back(void *unused)
{
	struct actmem_region *region;

	if (!begin(0) || make(2, &region)) {
		printf("# %s\n", actmem_error());
		return false;
	}
	return naps == NAP_OF_RETURN && !*actmem_error() && !actmem_region_close(region) &&
	       !actmem_close(am);
}

/* The first region waits for as long as one may; the next one does not any more. */
static bool pages_stay_away(void *unused)
{
	struct actmem_region *first, *keeps, *region;
	unsigned int waited;

	if (!begin(0))
		return false;
	first = held;
	held = NULL;
	if (make(2, &region) != -ENOMEM)
		return false;
	printf("# after %u naps: %s\n", naps, actmem_error());
	if (naps <= NAP_OF_RETURN || !strstr(actmem_error(), "free, but 4.0 MiB are needed") ||
	    !strstr(actmem_error(), "`actmem list` shows which processes use the other pages"))
		return false;
	waited = naps;
	return make(2, &region) == -ENOMEM && naps == waited && !make(1, &keeps) &&
	       !actmem_region_close(keeps) && !actmem_region_close(first) && !actmem_close(am);
}

static bool others_are_allowed(void *unused)
{
	struct actmem_region *region;

	return begin(ACTMEM_ALLOW_4K | ACTMEM_ALLOW_UNLOCKED) && !make(2, &region) && !naps &&
	       info_or_bail(region).pages == ACTMEM_PAGES_4K;
}

/* More than there are: nobody could give them back. */
static bool more_than_there_are(void *unused)
{
	struct actmem_region *region;

	return begin(0) && make(1ULL << 30, &region) == -ENOMEM && !naps &&
	       !strstr(actmem_error(), "actmem list");
}

int main(void)
{
	struct actmem *wanted = open_or_bail();
	bool has_pages = !on_driver(wanted) && pages_wanted() == ACTMEM_PAGES_2M;

	returns(actmem_close(wanted), 0);
	/* The other kinds of pages are nobody's to give back; tests/common/run lends these. */
	if (has_pages) {
		ok(in_child(pages_come_back, NULL), "a region waits for pages that come back");
		ok(in_child(pages_stay_away, NULL), "it fails if none do, and so does the next");
		ok(in_child(others_are_allowed, NULL), "it takes other pages where it may");
		ok(in_child(more_than_there_are, NULL), "it fails at once if there are too few");
	}
	return tap_end();
}
