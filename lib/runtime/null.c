/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The runtime of machines without an accelerator. This runtime registers nothing, so that a program
 * can make the same calls everywhere. The runtime's counters show what would be registered.
 */
#include <stdio.h>

#include "runtime/inside.h"

static int null_open(struct actmem_runtime *runtime)
{
	snprintf(runtime->info.text, sizeof(runtime->info.text), "no device");
	runtime->info.node = -1;
	return 0;
}

static int null_begin(struct registration *registration)
{
	return 0;
}

static void null_end(struct registration *registration)
{
}

static int null_range(struct registration *registration, void *address, uint64_t length)
{
	return 0;
}

static int null_look(struct registration *registration, void *address, uint32_t *flags)
{
	return 0;
}

const struct runtime_kind runtime_null = {
	.kind = ACTMEM_RUNTIME_NULL,
	.name = "null",
	.open = null_open,
	.begin = null_begin,
	.end = null_end,
	.add = null_range,
	.drop = null_range,
	.look = null_look,
};
