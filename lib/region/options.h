/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads what callers and the environment ask for.
 */
#ifndef LIB_REGION_OPTIONS_H
#define LIB_REGION_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "actmem.h"
#include "region/backend.h"

/* 0, or -EINVAL with words for a value that actmem_open() does not take. */
int options_check(const struct actmem_options *options);

/* Copies a label, "" for NULL; -EINVAL with words: too long, unprintable, '/'. */
int take_name(char name[ACTMEM_NAME_MAX], const char *from);

/* The pages of a region whose options say @pages. */
enum actmem_pages options_pages(const struct actmem_options *defaults,
				enum actmem_pages pages);

/*
 * Checks what a region shall be and fills in what it leaves to @defaults.
 * @any_length: a length of 0 will do.
 */
int options_resolve(const struct actmem_options *defaults,
		    const struct actmem_region_options *options, bool any_length,
		    struct region_request *request);

#endif /* LIB_REGION_OPTIONS_H */
