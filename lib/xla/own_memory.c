/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Allows, counts and reports memory that the CUDA driver allocates if it refuses to register
 * regions; see own_memory.h.
 *
 * Such memory cannot be attached to a queue, so blocks in it cannot spill.
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "xla/own_memory.h"

#define LINE_BYTES	2048

static _Atomic uint64_t now_bytes, total_bytes;
static atomic_flag told = ATOMIC_FLAG_INIT;

/*
 * Prints a line with one write(2). It does not use stdio, because another thread may hold stdio's
 * lock while that thread waits for the calling thread.
 */
static void own_memory_print(uint64_t bytes, const char *why)
{
	char line[LINE_BYTES];
	size_t used;

	snprintf(line, sizeof(line) - 1,
		 "actmem: %" PRIu64 " MiB are the CUDA driver's own memory (cuMemHostAlloc), not a region; later memory may be, too: %.1500s. ACTMEM_STRICT=1 (actmem run --strict) makes this an error.",
		 bytes >> 20, why);
	used = strlen(line);
	line[used++] = '\n';
	if (write(STDERR_FILENO, line, used) < 0)
		return;
}

static void own_memory_changed(uint64_t bytes, const char *why)
{
	if (!why) {
		atomic_fetch_sub(&now_bytes, bytes);
		return;
	}
	atomic_fetch_add(&now_bytes, bytes);
	atomic_fetch_add(&total_bytes, bytes);
	if (!atomic_flag_test_and_set(&told))
		own_memory_print(bytes, why);
}

void own_memory_allow(struct actmem_runtime_options *options, bool spills)
{
	options->own_memory = spills || knob_is_on(KNOB_STRICT) ? NULL : own_memory_changed;
}

void own_memory_explain(bool spills, char *words, size_t words_size)
{
	size_t used = strlen(words);

	if (!strstr(words, "cannot register ") || used >= words_size)
		return;
	if (knob_is_on(KNOB_STRICT))
		snprintf(words + used, words_size - used,
			 "; ACTMEM_STRICT=1 (actmem run --strict) forbids the CUDA driver's own memory as a replacement");
	else if (spills)
		snprintf(words + used, words_size - used,
			 "; the CUDA driver's own memory cannot replace it, because only registered regions can be spilled: omit %s",
			 knob_name(KNOB_SPILL, ACTMEM_NAMES_PYTHON));
}

void own_memory_count(struct actmem_xla_stats *stats)
{
	stats->own_bytes = atomic_load(&now_bytes);
	stats->own_bytes_total = atomic_load(&total_bytes);
}
