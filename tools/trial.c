// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Makes what a program would make, before it runs. */
#include <ctype.h>
#include <err.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../lib/actmem.h"
#include "tool.h"
#include "trial.h"

#define TRIAL_BYTES	(2ULL << 20)
#define GIANT_BYTES	(1ULL << 30)
#define GROW_DEFAULT	(64ULL << 20)

/* Digits and one of K, M, G, T, as the Python module reads it. */
static bool parse_size(const char *text, uint64_t *bytes)
{
	static const char suffixes[] = "KMGT";
	const char *suffix;
	unsigned int shift = 0;
	char *end;

	errno = 0;
	*bytes = strtoull(text, &end, 10);
	if (errno || *text < '0' || *text > '9')
		return false;
	if (*end) {
		suffix = strchr(suffixes, toupper((unsigned char)*end));
		if (!suffix || end[1])
			return false;
		shift = 10 * (unsigned int)(suffix - suffixes + 1);
	}
	if (*bytes > UINT64_MAX >> shift)
		return false;
	*bytes <<= shift;
	return true;
}

static bool take_size(const char *name, uint64_t *bytes)
{
	const char *text = getenv(name);

	*bytes = 0;
	if (!text || !*text || parse_size(text, bytes))
		return true;
	warnx("%s is '%s'; it may be a number of bytes, such as 268435456 or 256M", name, text);
	return false;
}

static void describe(const struct actmem *am, struct actmem_region *region)
{
	static const char * const pages[] = {
		[ACTMEM_PAGES_1G] = "1G", [ACTMEM_PAGES_2M] = "2M",
		[ACTMEM_PAGES_THP] = "thp", [ACTMEM_PAGES_4K] = "4K",
	};
	struct actmem_region_info info;
	const char *separator = "";
	int node;

	if (*actmem_error())
		warnx("%s", actmem_error());
	warnx("%s", actmem_describe(am));
	ACTMEM_INIT(&info);
	if (actmem_region_info(region, &info)) {
		warnx("%s", actmem_error());
		return;
	}
	if (info.named)
		warnx("%s %s", info.name, actmem_region_found(region) ? "was found" : "was made");
	fprintf(stderr, "%s: a region now gets %s pages on node ", program_invocation_short_name,
		pages[info.pages]);
	for (node = 0; node < ACTMEM_NODES_MAX; node++) {
		if (!info.node_bytes[node])
			continue;
		fprintf(stderr, "%s%d", separator, node);
		separator = ",";
	}
	fputc('\n', stderr);
}

/*
 * A heap makes no region before its first block, but knows its limits: what
 * else could be wrong, a region will show.
 */
static int try_heap(struct actmem *am, uint64_t grow_bytes, uint64_t limit_bytes)
{
	struct actmem_heap_options options;
	struct actmem_heap *heap;

	ACTMEM_INIT(&options);
	ACTMEM_INIT(&options.region);
	options.grow_bytes = grow_bytes;
	options.limit_bytes = limit_bytes;
	if (actmem_heap_create(am, &options, &heap)) {
		warnx("%s%s", actmem_error(), strstr(actmem_error(), "_bytes") ?
		      " (ACTMEM_HEAP_GROW, ACTMEM_HEAP_LIMIT)" : "");
		return STATUS_USAGE;
	}
	actmem_heap_destroy(heap);
	return STATUS_OK;
}

static int give_back(struct actmem *am, struct actmem_region *region, int error, bool verbose)
{
	if (error) {
		warnx("%s", actmem_error());
		return error == -EINVAL ? STATUS_USAGE : STATUS_FAILED;
	}
	if (verbose)
		describe(am, region);
	actmem_region_close(region);
	return STATUS_OK;
}

static int try_region(struct actmem *am, enum actmem_pages pages, bool verbose)
{
	struct actmem_region_options options;
	struct actmem_region *region = NULL;
	int error;

	ACTMEM_INIT(&options);
	options.length = pages == ACTMEM_PAGES_1G ? GIANT_BYTES : TRIAL_BYTES;
	options.name = "actmem run";
	error = actmem_region_create(am, &options, &region);
	return give_back(am, region, error, verbose);
}

/*
 * The first file that the program's heap would take. It stays, made or found, and
 * is free again until the program locks it.
 */
static int try_name(struct actmem *am, const char *name, uint64_t grow_bytes,
		    enum actmem_pages pages, bool verbose)
{
	struct actmem_region_options options;
	struct actmem_region *region = NULL;
	char *path;
	int error;

	ACTMEM_INIT(&options);
	options.length = grow_bytes ? grow_bytes : GROW_DEFAULT;
	if (pages == ACTMEM_PAGES_1G)
		options.length = (options.length + GIANT_BYTES - 1) / GIANT_BYTES * GIANT_BYTES;
	if (asprintf(&path, "%s.0", name) < 0) {
		warnx("%s", strerror(ENOMEM));
		return STATUS_FAILED;
	}
	error = actmem_region_open(am, path, &options, ACTMEM_OPEN_CREATE | ACTMEM_OPEN_LOCK |
				   ACTMEM_OPEN_ANY_LENGTH, &region);
	free(path);
	return give_back(am, region, error, verbose);
}

int try_environment(bool verbose)
{
	struct actmem_options options;
	uint64_t grow_bytes, limit_bytes;
	struct actmem *am;
	int status;

	ACTMEM_INIT(&options);
	if (actmem_options_from_environment(&options)) {
		warnx("%s", actmem_error());
		return STATUS_USAGE;
	}
	if (!take_size("ACTMEM_HEAP_GROW", &grow_bytes) ||
	    !take_size("ACTMEM_HEAP_LIMIT", &limit_bytes))
		return STATUS_USAGE;
	if (actmem_open(&am, &options)) {
		warnx("%s", actmem_error());
		return STATUS_FAILED;
	}
	status = try_heap(am, grow_bytes, limit_bytes);
	if (!status)
		status = options.heap_name ? try_name(am, options.heap_name, grow_bytes,
						      options.pages, verbose) :
			 try_region(am, options.pages, verbose);
	actmem_close(am);
	return status;
}
