/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The sites, at which programs put values into blocks; see site.h. Each call of a checkpointed
 * function in a program of the process is a site. Sites are never freed.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "xla/site.h"

static struct site **sites;
static uint64_t sites_count;

struct site *site_named(const char *name, size_t length)
{
	struct site **more, *site;
	uint64_t i;

	/* Search the newest sites first: they usually belong to the running program. */
	for (i = sites_count; i-- > 0; ) {
		site = sites[i];
		if (site->name_length == length &&
		    !memcmp(site->name, name, length))
			return site;
	}
	if (sites_count == SITES_MAX)
		return NULL;
	more = realloc(sites, (sites_count + 1) * sizeof(*sites));
	if (!more)
		return NULL;
	sites = more;
	site = calloc(1, sizeof(*site));
	if (!site)
		return NULL;
	site->name = strndup(name, length);
	if (!site->name) {
		free(site);
		return NULL;
	}
	site->name_length = length;
	site->number = sites_count;
	sites[sites_count++] = site;
	return site;
}

struct site *site_numbered(uint64_t number)
{
	return number < sites_count ? sites[number] : NULL;
}

void site_remember(struct site *site, uint64_t first, uint64_t last)
{
	site->reclaimed[site->reclaimed_next].first = first;
	site->reclaimed[site->reclaimed_next].last = last;
	site->reclaimed_next = (site->reclaimed_next + 1) % SITES_REMEMBER;
}

bool site_remembers(const struct site *site, uint64_t serial)
{
	int i;

	for (i = 0; i < SITES_REMEMBER; i++)
		if (site->reclaimed[i].first <= serial &&
		    serial <= site->reclaimed[i].last)
			return true;
	return false;
}
