/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads and checks the options of callers and of the environment.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/options.h"

#define ALLOW_PAGES	(ACTMEM_ALLOW_2M | ACTMEM_ALLOW_THP | ACTMEM_ALLOW_4K)
#define ALLOW_ALL	(ALLOW_PAGES | ACTMEM_ALLOW_NODE | ACTMEM_ALLOW_UNLOCKED)

static void read_strict(struct reader *reader, struct actmem_options *options)
{
	if (reader_value(reader, KNOB_STRICT))
		options->allow |= ACTMEM_ALLOW_ONLY;
}

static int read_variables(const char *const *variables, struct actmem_options *options)
{
	struct reader reader = { variables, .names = NAMES_AS_MARKS };
	struct actmem_options found;

	ACTMEM_INIT(&found);
	found.backend = reader_value(&reader, KNOB_BACKEND);
	found.pages = reader_value(&reader, KNOB_PAGES);
	found.policy = reader_value(&reader, KNOB_POLICY);
	found.allow = reader_value(&reader, KNOB_ALLOW);
	read_strict(&reader, &found);
	found.heap_name = reader_text(&reader, KNOB_NAME);
	nodes_read(&found.nodes, &reader);
	if (*reader.error)
		return fail(EINVAL, "%s", reader.error);
	return give_struct(options, &found, sizeof(found), "options");
}

int actmem_options_from_variables(const char *const *variables, struct actmem_options *options)
{
	if (!variables || !options)
		return fail(EINVAL, "actmem_options_from_variables: %s",
			    variables ? "options is NULL" : "variables is NULL");
	return read_variables(variables, options);
}

int actmem_options_from_environment(struct actmem_options *options)
{
	if (!options)
		return fail(EINVAL, "actmem_options_from_environment: options is NULL");
	return read_variables((const char *const *)environ, options);
}

static int check_common(enum actmem_pages pages, enum actmem_policy policy, uint32_t allow)
{
	if ((unsigned int)pages > ACTMEM_PAGES_1G)
		return fail(EINVAL, "pages %u is none of ACTMEM_PAGES_*", (unsigned int)pages);
	if ((unsigned int)policy > ACTMEM_PLACE_INTERLEAVE)
		return fail(EINVAL, "policy %u is none of ACTMEM_PLACE_*", (unsigned int)policy);
	if (allow & ~(ALLOW_ALL | ACTMEM_ALLOW_ONLY))
		return fail(EINVAL, "allow 0x%x has bits that are none of ACTMEM_ALLOW_*", allow);
	return 0;
}

int options_check(struct actmem_options *options)
{
	struct reader reader = READER(NAMES_AS_MARKS);

	read_strict(&reader, options);
	if (*reader.error)
		return fail(EINVAL, "%s", reader.error);
	if ((unsigned int)options->backend > ACTMEM_BACKEND_MEMFD)
		return fail(EINVAL, "backend %u is none of ACTMEM_BACKEND_*",
			    (unsigned int)options->backend);
	if (options->reserved)
		return fail(EINVAL, "options: reserved is %u, not 0", options->reserved);
	return check_common(options->pages, options->policy, options->allow);
}

int take_name(char name[ACTMEM_NAME_MAX], const char *from)
{
	size_t i;

	memset(name, 0, ACTMEM_NAME_MAX);
	for (i = 0; from && from[i]; i++) {
		if (i == ACTMEM_NAME_MAX - 1)
			return fail(EINVAL, "name is longer than %d bytes", ACTMEM_NAME_MAX - 1);
		if (from[i] < ' ' || from[i] > '~' || from[i] == '/')
			return fail(EINVAL, "name has a byte 0x%02x at %zu; a name may have printable ASCII characters except '/'",
				    (unsigned char)from[i], i);
		name[i] = from[i];
	}
	return 0;
}

static int check_nodes(const struct region_request *request)
{
	unsigned int count = nodes_count(&request->nodes);

	if (request->policy == ACTMEM_PLACE_BIND && !count)
		return fail(EINVAL, "policy bind needs nodes; name them, or use preferred");
	if (request->policy == ACTMEM_PLACE_PREFERRED && count > 1)
		return fail(EINVAL, "policy preferred needs one node, not %s; use bind or interleave",
			    NODES_TEXT(&request->nodes));
	return 0;
}

static int check_length(uint64_t length, enum actmem_pages pages)
{
	uint64_t page_bytes = pages_bytes(pages);

	if (!length || length % page_bytes || length > INT64_MAX)
		return fail(EINVAL, "length is %llu; it must be a multiple of the page size, %llu, and not 0",
			    (unsigned long long)length, (unsigned long long)page_bytes);
	return 0;
}

enum actmem_pages options_pages(const struct actmem_options *defaults,
				enum actmem_pages pages)
{
	return pages ? pages : defaults->pages ? defaults->pages : ACTMEM_PAGES_2M;
}

/* Returns the fallbacks that options rule out because they set pages or a placement. */
static uint32_t ruled_out(enum actmem_pages pages, enum actmem_policy policy,
			  const struct actmem_nodes *nodes)
{
	return (pages ? ALLOW_PAGES : 0) |
	       (policy || !nodes_empty(nodes) ? ACTMEM_ALLOW_NODE : 0);
}

void options_permit(const struct actmem_options *defaults,
		    const struct actmem_region_options *options, struct region_request *request)
{
	uint32_t own = ruled_out(options->pages, options->policy, &options->nodes);
	uint32_t given = options->allow;

	if (options->flags & ACTMEM_REGION_NEAR)
		own &= ~ACTMEM_ALLOW_NODE;
	if (!(given & ACTMEM_ALLOW_ONLY))
		given |= defaults->allow;
	request->by_default = !given;
	if (!given)
		given = ALLOW_ALL & ~ruled_out(defaults->pages, defaults->policy, &defaults->nodes);
	request->allow = (given & ~own) | (options->allow & own);
}

int options_resolve(const struct actmem_options *defaults,
		    const struct actmem_region_options *options, bool any_length,
		    struct region_request *request)
{
	int error = check_common(options->pages, options->policy, options->allow);

	if (!error && options->flags & ~(ACTMEM_REGION_INHERIT | ACTMEM_REGION_LAZY |
					ACTMEM_REGION_NEAR))
		error = fail(EINVAL, "flags 0x%x has bits that are none of ACTMEM_REGION_*",
			     options->flags);
	if (error)
		return error;
	*request = (struct region_request){ .length = options->length };
	options_permit(defaults, options, request);
	request->inherit = options->flags & ACTMEM_REGION_INHERIT;
	request->lazy = options->flags & ACTMEM_REGION_LAZY;
	request->pages = options_pages(defaults, options->pages);
	request->policy = options->policy ? options->policy : defaults->policy;
	request->any_place = !request->policy && nodes_empty(&options->nodes) &&
			     nodes_empty(&defaults->nodes);
	request->nodes = nodes_empty(&options->nodes) ? defaults->nodes : options->nodes;
	if (!request->policy)
		request->policy = nodes_empty(&request->nodes) ? ACTMEM_PLACE_PREFERRED :
				  ACTMEM_PLACE_BIND;
	error = check_nodes(request);
	if (!error && !(any_length && !request->length))
		error = check_length(request->length, request->pages);
	return error ? error : take_name(request->name, options->name);
}
