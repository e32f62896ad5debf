// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Divides the settings in the environment among the processes of a job; see share.h. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/base.h"
#include "config/config.h"
#include "share.h"
#include "table.h"
#include "tool.h"

#define PART_BYTES	4096

struct folder {
	char *path;
	unsigned int place;		/* position in the list of folders */
	int node;
};

uint64_t share_bytes(uint64_t bytes, const struct rank *rank)
{
	return bytes / rank->of / PART_BYTES * PART_BYTES;
}

static int set_knob(enum knob knob, const char *value)
{
	return variable_set(knob_name(knob, ACTMEM_NAMES_VARIABLES), value);
}

/*
 * Replaces a size by the rank's part. Leaves an invalid value unchanged: the code that reads it
 * later prints the error message.
 */
static int divide_size(enum knob knob, const char *label, const struct rank *rank,
		       FILE *told)
{
	const char *text = reader_text(&READER(0), knob);
	char number[32], *part;
	uint64_t whole, bytes;

	if (!text || !size_from_text(text, &whole) || !whole)
		return STATUS_OK;
	bytes = share_bytes(whole, rank);
	if (!bytes) {
		warnx("%s is '%s', which is too small for %u processes; raise it",
		      knob_name(knob, ACTMEM_NAMES_RUN), text, rank->of);
		return STATUS_USAGE;
	}
	snprintf(number, sizeof(number), "%llu", (unsigned long long)bytes);
	part = bytes_to_text(bytes, 0);
	fprintf(told, ", %s %s", label, part ? part : number);
	free(part);
	return set_knob(knob, number);
}

static int by_node(const void *left, const void *right)
{
	const struct folder *one = left, *other = right;

	if (one->node != other->node)
		return one->node < other->node ? -1 : 1;
	return one->place < other->place ? -1 : one->place > other->place;
}

/*
 * Sorts the folders by the node of their disks, and keeps only the rank's part. Higher ranks are
 * mostly on higher nodes, so each rank gets disks that are close to it.
 */
static int keep_folders(char *paths, const struct rank *rank, FILE *told)
{
	unsigned int count = 1, i;
	struct folder *folders;
	struct slice slice;
	char *kept, *rest;
	size_t length;
	int status;
	FILE *text;

	for (rest = paths; *rest; rest++)
		count += *rest == ':';
	folders = calloc(count, sizeof(*folders));
	text = open_memstream(&kept, &length);
	if (!folders || !text)
		err(STATUS_FAILED, "no memory for bookkeeping");
	for (i = 0, rest = paths; i < count; i++) {
		folders[i].path = strsep(&rest, ":");
		folders[i].place = i;
		folders[i].node = share_node_of_folder(folders[i].path);
	}
	qsort(folders, count, sizeof(*folders), by_node);
	slice = share_slice(count, rank);
	for (i = slice.first; i < slice.first + slice.count; i++)
		fprintf(text, "%s%s", i > slice.first ? ":" : "", folders[i].path);
	if (fclose(text))
		err(STATUS_FAILED, "no memory for bookkeeping");
	fprintf(told, ", spills to %s", kept);
	status = set_knob(KNOB_SPILL, kept);
	free(kept);
	free(folders);
	return status;
}

static int divide_folders(const struct rank *rank, FILE *told)
{
	const char *paths = reader_text(&READER(0), KNOB_SPILL);
	char *copy;
	int status;

	/* An empty path is an error, which other code reports later. */
	if (!paths || *paths == ':' || strstr(paths, "::") || paths[strlen(paths) - 1] == ':')
		return STATUS_OK;
	copy = strdup(paths);
	if (!copy)
		err(STATUS_FAILED, "no memory for bookkeeping");
	status = keep_folders(copy, rank, told);
	free(copy);
	return status;
}

static int set_nodes(const struct rank *rank, FILE *told)
{
	char list[ACTMEM_NODES_MAX * 5] = "", why[SHARE_WHY_MAX];
	const char *separator = "";
	struct actmem_nodes nodes;
	unsigned int node;
	size_t used = 0;

	if (!share_nodes(rank, &nodes, why))
		return STATUS_OK;
	for (node = 0; node < ACTMEM_NODES_MAX; node++) {
		if (!(nodes.word[node / 64] >> (node % 64) & 1))
			continue;
		used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%u", separator, node);
		separator = ",";
	}
	fprintf(told, ", node%s %s %s", strchr(list, ',') ? "s" : "", list, why);
	return set_knob(KNOB_NODES, list);
}

static int set_name(const struct rank *rank, FILE *told)
{
	const char *name = reader_text(&READER(0), KNOB_NAME);
	char *own;
	int status;

	if (!name)
		return STATUS_OK;
	if (asprintf(&own, "%s.%u", name, rank->number) < 0)
		err(STATUS_FAILED, "no memory for bookkeeping");
	fprintf(told, ", name %s", own);
	status = set_knob(KNOB_NAME, own);
	free(own);
	return status;
}

int share_set(const struct rank *rank, bool places)
{
	size_t length;
	char *words;
	FILE *told = open_memstream(&words, &length);
	int status;

	if (!told)
		err(STATUS_FAILED, "no memory for bookkeeping");
	status = divide_size(KNOB_BUDGET, "budget", rank, told);
	if (!status)
		status = divide_size(KNOB_HEAP_LIMIT, "heap limit", rank, told);
	if (!status)
		status = divide_folders(rank, told);
	if (!status)
		status = divide_size(KNOB_SPILL_LIMIT, "at most", rank, told);
	if (!status && places)
		status = set_nodes(rank, told);
	if (!status)
		status = set_name(rank, told);
	if (fclose(told))
		err(STATUS_FAILED, "no memory for bookkeeping");
	if (!status && !knob_is_on(KNOB_QUIET))
		warnx("rank %u of %u on this machine (%s)%s%s", rank->number, rank->of, rank->by,
		      length ? ":" : "", length ? words + 1 : "");
	free(words);
	return status;
}
