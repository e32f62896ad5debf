/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The sites that values are put at, by name and by number, and which of their
 * generations were reclaimed. The caller's lock guards all of it.
 */
#ifndef ACTMEM_XLA_SITE_H
#define ACTMEM_XLA_SITE_H

#include <stddef.h>
#include <stdint.h>

#define SITES_MAX	(UINT64_C(1) << 24)	/* their number is in each token */
#define SITES_REMEMBER	8	/* reclaimed generations of each */

struct generation;

struct site {
	char *name;
	size_t name_length;
	uint64_t number;
	struct generation *oldest;
	struct { uint64_t first, last; } reclaimed[SITES_REMEMBER];
	unsigned int reclaimed_next;
};

/* The site of that name, made if there is none yet; NULL if none can be. */
struct site *site_named(const char *name, size_t length);

/* NULL if there is none of that number. They are numbered from 0. */
struct site *site_numbered(uint64_t number);

/* The blocks with serial numbers from @first to @last were reclaimed. */
void site_remember(struct site *site, uint64_t first, uint64_t last);
int site_remembers(const struct site *site, uint64_t serial);

#endif /* ACTMEM_XLA_SITE_H */
