/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the settings of malloc mode and of CUDA mode, without allocating memory.
 */
#include "base/base.h"
#include "machine/machine.h"
#include "preload/settings.h"

/*
 * XLA's allocator of host memory first requests 2, 4 and 8 MiB, which fit into one region of this
 * length. Each later request gets a region of its own.
 */
#define GROW_BYTES	(16ULL << 20)

void malloc_settings_read(struct malloc_settings *settings, struct reader *reader)
{
	*settings = (struct malloc_settings){ .is_wanted = reader_value(reader, KNOB_MALLOC) };
	if (!settings->is_wanted)
		return;
	settings->min_bytes = reader_value(reader, KNOB_MALLOC_MIN);
	settings->decay_ms = reader_value(reader, KNOB_MALLOC_DECAY);
	if (settings->decay_ms != DECAY_NEVER)
		settings->decay_ms *= 1000;
	settings->policy = reader_value(reader, KNOB_POLICY);
	nodes_read(&settings->nodes, reader);
}

void cuda_settings_read(struct cuda_settings *settings, struct reader *reader)
{
	settings->is_strict = reader_value(reader, KNOB_STRICT);
	settings->min_bytes = reader_value(reader, KNOB_CUDA_MIN);
	settings->keep_bytes = reader_value(reader, KNOB_CUDA_KEEP);
	/* Round up: the variable can have any value, but a heap needs a multiple of 2 MiB. */
	settings->grow_bytes = round_up(reader_value(reader, KNOB_HEAP_GROW) ?: GROW_BYTES,
					HUGE_PAGE_BYTES);
	settings->limit_bytes = reader_value(reader, KNOB_HEAP_LIMIT);
	settings->is_verbose = reader_value(reader, KNOB_VERBOSE);
}
