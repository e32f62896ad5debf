/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The sites: places in programs where values are put into blocks. Each site has a name, a number,
 * and a list of its latest reclaimed generations (saved.h). The caller's lock guards all sites.
 */
#ifndef LIB_XLA_SITE_H
#define LIB_XLA_SITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SITES_MAX	(UINT64_C(1) << 24)	/* a token has 24 bits for the site */
#define SITES_REMEMBER	8	/* reclaimed generations that a site records */

struct generation;

struct site {
	char *name;
	size_t name_length;
	uint64_t number;
	struct generation *oldest;
	struct { uint64_t first, last; } reclaimed[SITES_REMEMBER];
	unsigned int reclaimed_next;
};

/* Returns the site @name. Makes the site if necessary. Returns NULL on failure. */
struct site *site_named(const char *name, size_t length);

/* Returns site @number, or NULL. Sites are numbered from 0. */
struct site *site_numbered(uint64_t number);

/* Records that the blocks with serial numbers from @first to @last were reclaimed. */
void site_remember(struct site *site, uint64_t first, uint64_t last);
bool site_remembers(const struct site *site, uint64_t serial);

#endif /* LIB_XLA_SITE_H */
