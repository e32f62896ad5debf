/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads and checks the options of callers and of the environment.
 */
#ifndef LIB_REGION_OPTIONS_H
#define LIB_REGION_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "actmem.h"
#include "region/backend.h"

/*
 * Checks the options of actmem_open(), and applies ACTMEM_STRICT=1 of the environment. Returns 0,
 * or -EINVAL with an error message.
 */
int options_check(struct actmem_options *options);

/*
 * Copies the name of a region; NULL becomes "". Returns -EINVAL with an error message if the name
 * is too long, or contains a '/' or an unprintable character.
 */
int take_name(char name[ACTMEM_NAME_MAX], const char *from);

/* Returns @pages, or the default kind of pages if @pages is ACTMEM_PAGES_DEFAULT. */
enum actmem_pages options_pages(const struct actmem_options *defaults,
				enum actmem_pages pages);

/* Sets which fallbacks a region may use, by the rule in the comment on struct actmem_options. */
void options_permit(const struct actmem_options *defaults,
		    const struct actmem_region_options *options, struct region_request *request);

/*
 * Checks the options of a region, and sets *@request from @options and @defaults. If @any_length is
 * true, accepts a length of 0. Returns 0, or -EINVAL with an error message.
 */
int options_resolve(const struct actmem_options *defaults,
		    const struct actmem_region_options *options, bool any_length,
		    struct region_request *request);

#endif /* LIB_REGION_OPTIONS_H */
