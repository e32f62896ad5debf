/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Sets of NUMA nodes. The command `actmem` and the LD_PRELOAD library also link this file.
 */
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "config/config.h"
#include "machine/node.h"
#include "machine/sysfile.h"

#define SYSFS_NODES	"/sys/devices/system/node"

bool nodes_empty(const struct actmem_nodes *nodes)
{
	return nodes_next(nodes, 0) == ACTMEM_NODES_MAX;
}

unsigned int nodes_count(const struct actmem_nodes *nodes)
{
	unsigned int count = 0, i;

	for (i = 0; i < ACTMEM_NODES_MAX / 64; i++)
		count += __builtin_popcountll(nodes->word[i]);
	return count;
}

unsigned int nodes_next(const struct actmem_nodes *nodes, unsigned int from)
{
	while (from < ACTMEM_NODES_MAX) {
		uint64_t rest = nodes->word[from / 64] >> (from % 64);

		if (rest)
			return from + __builtin_ctzll(rest);
		from = (from / 64 + 1) * 64;
	}
	return ACTMEM_NODES_MAX;
}

/* Parses a decimal number below ACTMEM_NODES_MAX at *@text, and moves *@text past it. */
static bool parse_node(const char **text, unsigned int *node)
{
	unsigned int value = 0;

	if (**text < '0' || **text > '9')
		return false;
	while (**text >= '0' && **text <= '9') {
		value = value * 10 + (unsigned int)(*(*text)++ - '0');
		if (value >= ACTMEM_NODES_MAX)
			return false;
	}
	*node = value;
	return true;
}

bool nodes_parse(const char *text, struct actmem_nodes *nodes)
{
	unsigned int first, last;

	memset(nodes, 0, sizeof(*nodes));
	if (!*text || !strcmp(text, "\n"))
		return true;
	for (;;) {
		if (!parse_node(&text, &first))
			return false;
		last = first;
		if (*text == '-') {
			text++;
			if (!parse_node(&text, &last) || last < first)
				return false;
		}
		for (; first <= last; first++)
			node_set(nodes, first);
		if (!*text || !strcmp(text, "\n"))
			return true;
		if (*text++ != ',')
			return false;
	}
}

void nodes_read(struct actmem_nodes *nodes, struct reader *reader)
{
	if (!nodes_parse(reader_text(reader, KNOB_NODES) ?: "", nodes))
		reader_refuse(reader, KNOB_NODES, NULL);
}

const char *nodes_text(char text[NODES_TEXT_MAX], const struct actmem_nodes *nodes)
{
	unsigned int node, last;
	size_t used;

	if (nodes_empty(nodes)) {
		snprintf(text, NODES_TEXT_MAX, "no node");
		return text;
	}
	used = (size_t)sprintf(text, nodes_count(nodes) == 1 ? "node " : "nodes ");
	for_each_node(node, nodes) {
		/* Leave space for ",1022-1023" and the dots. */
		if (used + 16 > NODES_TEXT_MAX) {
			sprintf(text + used, "...");
			break;
		}
		for (last = node; last + 1 < ACTMEM_NODES_MAX && node_is_set(nodes, last + 1);)
			last++;
		used += (size_t)sprintf(text + used, "%s%u", text[used - 1] == ' ' ? "" : ",", node);
		if (last > node)
			used += (size_t)sprintf(text + used, "-%u", last);
		node = last;
	}
	return text;
}

void nodes_with_memory(struct actmem_nodes *nodes)
{
	char text[4096];

	if (sysfile_read(SYSFS_NODES "/has_memory", text, sizeof(text)) ||
	    !nodes_parse(text, nodes) || nodes_empty(nodes)) {
		/* A kernel without NUMA has one node and no such file. */
		memset(nodes, 0, sizeof(*nodes));
		node_set(nodes, 0);
	}
}

void nodes_of_cpuset(struct actmem_nodes *nodes)
{
	memset(nodes, 0, sizeof(*nodes));
	if (syscall(SYS_get_mempolicy, NULL, nodes->word, (unsigned long)ACTMEM_NODES_MAX,
		    NULL, (unsigned long)MPOL_F_MEMS_ALLOWED))
		memset(nodes, 0xff, sizeof(*nodes));
}

void nodes_allowed(struct actmem_nodes *nodes)
{
	struct actmem_nodes cpuset;
	unsigned int i;

	nodes_with_memory(nodes);
	nodes_of_cpuset(&cpuset);
	for (i = 0; i < ACTMEM_NODES_MAX / 64; i++)
		nodes->word[i] &= cpuset.word[i];
}
