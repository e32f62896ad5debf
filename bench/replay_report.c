// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reports a replay: each step beside its bound, max(compute, I/O).
 *
 * Compute is the time that the options request, or the time of filling and verifying if that is
 * longer.
 *
 * I/O is the bytes that had to be moved, without those that were read in vain, divided by the speed
 * of the disks. The disks are measured just before and just after the step, in requests of the same
 * sizes, beside as much filling and verifying. I/O alone uses their speed with nothing beside.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "replay.h"
#include "../tools/table.h"

struct sums {
	uint64_t steps;
	uint64_t ns, forward_ns, compute_ns, pattern_ns, overrun_ns, put_stall_ns, take_stall_ns;
	double io_ns, io_alone_ns, bound_ns, bound_alone_ns, spill_ns, fill_ns;
	uint64_t needed_bytes;			/* filled, without wasted bytes */
	struct actmem_store_stats stats;
};

static double transfer_ns(uint64_t bytes, double bandwidth)
{
	return bandwidth > 0 ? (double)bytes * NS_PER_SECOND / bandwidth : 0;
}

static double longer_of(double a, double b)
{
	return a > b ? a : b;
}

/* Excludes blocks that were read ahead and dropped, because no step needs them. */
static uint64_t needed_of(const struct actmem_store_stats *stats)
{
	uint64_t filled = stats->filled_bytes_total, wasted = stats->wasted_bytes_total;

	return filled > wasted ? filled - wasted : 0;
}

static void add_step(struct sums *sums, const struct replay_step *step)
{
	double compute_ns = (double)(step->compute_ns + step->overrun_ns);
	uint64_t spilled = step->stats.spilled_bytes_total, needed = needed_of(&step->stats);
	double spill_ns = transfer_ns(spilled, step->speeds.beside.spill);
	double fill_ns = transfer_ns(needed, step->speeds.beside.fill);
	double io_alone_ns = transfer_ns(spilled, step->speeds.alone.spill) +
			     transfer_ns(needed, step->speeds.alone.fill);

	sums->steps++;
	sums->ns += step->ns;
	sums->forward_ns += step->forward_ns;
	sums->compute_ns += step->compute_ns;
	sums->pattern_ns += step->pattern_ns;
	sums->overrun_ns += step->overrun_ns;
	sums->put_stall_ns += step->put_stall_ns;
	sums->take_stall_ns += step->take_stall_ns;
	sums->spill_ns += spill_ns;
	sums->fill_ns += fill_ns;
	sums->io_ns += spill_ns + fill_ns;
	sums->io_alone_ns += io_alone_ns;
	sums->bound_ns += longer_of(compute_ns, spill_ns + fill_ns);
	sums->bound_alone_ns += longer_of(compute_ns, io_alone_ns);
	sums->needed_bytes += needed;
	sums->stats.hits_total += step->stats.hits_total;
	sums->stats.handed_over_total += step->stats.handed_over_total;
	sums->stats.late_total += step->stats.late_total;
	sums->stats.misses_total += step->stats.misses_total;
	sums->stats.put_stall_ns_total += step->stats.put_stall_ns_total;
	sums->stats.take_stall_ns_total += step->stats.take_stall_ns_total;
	sums->stats.spilled_bytes_total += spilled;
	sums->stats.filled_bytes_total += step->stats.filled_bytes_total;
	sums->stats.wasted_bytes_total += step->stats.wasted_bytes_total;
}

static json_t *ms_to_json(double ns)
{
	return json_real(ns / NS_PER_MS);
}

static json_t *share_to_json(double part, double whole)
{
	return whole > 0 ? json_real(part / whole) : json_null();
}

/* Returns bytes per second, or null if nothing was moved. */
static json_t *bandwidth_to_json(uint64_t bytes, double ns)
{
	return bytes && ns > 0 ? json_integer((json_int_t)((double)bytes * NS_PER_SECOND / ns))
			       : json_null();
}

static json_t *times_to_json(const struct sums *sums)
{
	double stall_ns = (double)(sums->put_stall_ns + sums->take_stall_ns);

	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
			 "s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "ms", ms_to_json((double)sums->ns),
			 "forward_ms", ms_to_json((double)sums->forward_ns),
			 "compute_ms", ms_to_json((double)(sums->compute_ns + sums->overrun_ns)),
			 "pattern_ms", ms_to_json((double)sums->pattern_ns),
			 "overrun_ms", ms_to_json((double)sums->overrun_ns),
			 "io_ms", ms_to_json(sums->io_ns),
			 "io_alone_ms", ms_to_json(sums->io_alone_ns),
			 "bound_ms", ms_to_json(sums->bound_ns),
			 "bound_alone_ms", ms_to_json(sums->bound_alone_ns),
			 "ratio", share_to_json((double)sums->ns, sums->bound_ns),
			 "stall_ms", ms_to_json(stall_ns),
			 "put_stall_ms", ms_to_json((double)sums->put_stall_ns),
			 "take_stall_ms", ms_to_json((double)sums->take_stall_ns),
			 "waited_put_ms", ms_to_json((double)sums->stats.put_stall_ns_total),
			 "waited_take_ms", ms_to_json((double)sums->stats.take_stall_ns_total),
			 "stall_share", share_to_json(stall_ns, (double)sums->ns));
}

static json_t *traffic_to_json(const struct sums *sums)
{
	const struct actmem_store_stats *stats = &sums->stats;
	uint64_t moved = stats->spilled_bytes_total + stats->filled_bytes_total;

	return json_pack("{s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I}",
			 "spilled_bytes", (json_int_t)stats->spilled_bytes_total,
			 "filled_bytes", (json_int_t)stats->filled_bytes_total,
			 "wasted_bytes", (json_int_t)stats->wasted_bytes_total,
			 "moved_bandwidth", bandwidth_to_json(moved, (double)sums->ns),
			 "device_spill_bandwidth", bandwidth_to_json(stats->spilled_bytes_total,
								     sums->spill_ns),
			 "device_fill_bandwidth", bandwidth_to_json(sums->needed_bytes,
								    sums->fill_ns),
			 "hits", (json_int_t)stats->hits_total,
			 "handed_over", (json_int_t)stats->handed_over_total,
			 "late", (json_int_t)stats->late_total,
			 "misses", (json_int_t)stats->misses_total);
}

/* Takes ownership of @name. */
static json_t *row_to_json(json_t *name, const struct sums *sums)
{
	return merge_objects(json_pack("{s:o}", "step", name),
			     merge_objects(times_to_json(sums), traffic_to_json(sums)));
}

static json_t *steps_to_json(const struct replay *replay)
{
	json_t *rows = json_array();
	uint64_t i;

	for (i = 0; i < replay->done_count; i++) {
		struct sums sums = { 0 };

		add_step(&sums, &replay->done[i]);
		rows = append_item(rows, row_to_json(json_integer((json_int_t)i), &sums));
	}
	return rows;
}

/*
 * Sums the steps. Omits the first one, in which the store learns the order, unless it is the only
 * one.
 */
static json_t *sum_to_json(const struct replay *replay)
{
	uint64_t first = replay->done_count > 1, i;
	struct sums sums = { 0 };
	json_t *name;

	if (!replay->done_count)
		return json_null();
	for (i = first; i < replay->done_count; i++)
		add_step(&sums, &replay->done[i]);
	name = json_sprintf("%" PRIu64 "-%" PRIu64, first, replay->done_count - 1);
	return name ? row_to_json(name, &sums) : NULL;
}

static json_t *memory_to_json(const struct replay *replay)
{
	const struct actmem_store_stats *stats = &replay->stats;
	uint64_t budget = replay->options.budget_bytes;
	uint64_t least = budget && budget < stats->block_bytes_peak ? budget :
			 stats->block_bytes_peak;

	return json_pack("{s:o, s:I, s:I, s:I, s:I, s:o}",
			 "budget_bytes", budget ? json_integer((json_int_t)budget) : json_null(),
			 "block_bytes_peak", (json_int_t)stats->block_bytes_peak,
			 "region_bytes_peak", (json_int_t)stats->memory_bytes_peak,
			 "spilled_bytes_peak", (json_int_t)stats->spilled_bytes_peak,
			 "file_bytes", (json_int_t)stats->file_bytes,
			 "overhead", share_to_json((double)stats->memory_bytes_peak,
						   (double)least));
}

/*
 * Returns the bytes of each tensor. For a plan, these are the bytes of the largest layer for each
 * device.
 */
static json_t *tensors_to_json(const struct replay *replay)
{
	json_t *bytes = json_array();
	unsigned int i;

	for (i = 0; i < replay->tensors; i++)
		json_array_append_new(bytes, json_integer((json_int_t)replay->bytes
							  [replay->plan.layers ? 0 : i]));
	return bytes;
}

static json_t *traffic_model_to_json(const struct replay *replay)
{
	const struct replay_options *options = &replay->options;
	bool is_plan = replay->plan.layers;

	return json_pack("{s:s, s:i, s:o, s:f, s:o, s:o, s:o, s:I, s:s, s:I, s:o}",
			 "model", replay->model.name, "layers", (int)replay->model.layers,
			 "tokens", is_plan ? json_null() : json_integer((json_int_t)options->tokens),
			 "scale", options->scale, "compute_ms_per_layer",
			 options->compute_ms < 0 ? json_null() : json_real(options->compute_ms),
			 "foreseen_ms", is_plan ? ms_to_json((double)replay->plan.step_ns) :
			 json_null(),
			 "tensor_bytes", tensors_to_json(replay),
			 "step_bytes", (json_int_t)replay->step_bytes,
			 "order", order_names[options->order], "seed", (json_int_t)options->seed,
			 "change_order_at", options->change_order_at ?
			 json_integer((json_int_t)options->change_order_at) : json_null());
}

/* Returns null if nothing is spilled, or if the disks are not measured. */
static json_t *queue_to_json(const struct replay *replay)
{
	const struct actmem_file_info *file;

	if (!replay->transfers)
		return json_null();
	file = transfers_file(replay->transfers);
	return json_pack("{s:o, s:b, s:i, s:I, s:I}", "engine", text_to_json(replay->engine_words),
			 "direct", (int)file->direct, "depth", (int)file->depth,
			 "block_bytes", (json_int_t)file->block_bytes,
			 "worked_bytes", (json_int_t)replay->worked_bytes);
}

json_t *replay_to_json(const struct replay *replay)
{
	json_t *rest = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:I}",
				 "backend", text_to_json(actmem_describe(replay->am)),
				 "store", text_to_json(replay->store_words),
				 "disks", disks_to_json(replay->options.spill_paths,
							replay->options.spill_path_count),
				 "queue", queue_to_json(replay),
				 "memory", memory_to_json(replay),
				 "steps", steps_to_json(replay), "sum", sum_to_json(replay),
				 "interrupted", !!replay_signal,
				 "wrong_blocks", (json_int_t)replay->wrong_blocks,
				 "wrong_bytes", (json_int_t)replay->wrong_bytes);

	return merge_objects(traffic_model_to_json(replay), rest);
}

/* Formats a share as a percentage. */
static char *cell_share(const json_t *row, const char *key, unsigned int flags)
{
	const json_t *value = json_object_get(row, key);
	char *text;

	if (!json_is_number(value))
		return strdup("-");
	return asprintf(&text, "%.2f%%", 100 * json_number_value(value)) < 0 ? NULL : text;
}

static void print_bytes(const char *before, const json_t *object, const char *key)
{
	char *text = cell_bytes(object, key, 0);

	printf("%s%s", before, text ? text : "");
	free(text);
}

static void print_head(const json_t *told)
{
	const json_t *memory = json_object_get(told, "memory");

	printf("%s\n%s\n", json_string_value(json_object_get(told, "backend")),
	       json_string_value(json_object_get(told, "store")));
	printf("%s: %" JSON_INTEGER_FORMAT " layers",
	       json_string_value(json_object_get(told, "model")),
	       json_integer_value(json_object_get(told, "layers")));
	print_bytes(", ", told, "step_bytes");
	print_bytes(" a step; at most ", memory, "block_bytes_peak");
	print_bytes(" live, ", memory, "region_bytes_peak");
	print_bytes(" of regions, ", memory, "spilled_bytes_peak");
	printf(" spilled; memory overhead %.3f\n",
	       json_number_value(json_object_get(memory, "overhead")));
	if (!json_is_null(json_object_get(told, "foreseen_ms")))
		printf("the plan foresees a step of %.1f ms\n",
		       json_number_value(json_object_get(told, "foreseen_ms")));
	if (!json_is_null(json_object_get(told, "queue")))
		puts("the bound is an estimate, from what the disks did before and after each step");
	putchar('\n');
}

int replay_print(const json_t *told)
{
	static const struct column columns[] = {
		{ "STEP", "step", cell_text, COLUMN_RIGHT },
		{ "TIME ms", "ms", cell_number, COLUMN_RIGHT },
		{ "COMPUTE ms", "compute_ms", cell_number, COLUMN_RIGHT },
		{ "I/O ms", "io_ms", cell_number, COLUMN_RIGHT },
		{ "I/O ALONE ms", "io_alone_ms", cell_number, COLUMN_RIGHT },
		{ "BOUND ms", "bound_ms", cell_number, COLUMN_RIGHT },
		{ "TIME/BOUND", "ratio", cell_number, COLUMN_RIGHT },
		{ "STALL ms", "stall_ms", cell_number, COLUMN_RIGHT },
		{ "STALL", "stall_share", cell_share, COLUMN_RIGHT },
		{ "SPILLED", "spilled_bytes", cell_bytes, COLUMN_RIGHT },
		{ "FILLED", "filled_bytes", cell_bytes, COLUMN_RIGHT },
		{ "SPILL GiB/s", "device_spill_bandwidth", cell_bandwidth, COLUMN_RIGHT },
		{ "FILL GiB/s", "device_fill_bandwidth", cell_bandwidth, COLUMN_RIGHT },
		{ "HITS", "hits", cell_text, COLUMN_RIGHT },
		{ "LATE", "late", cell_text, COLUMN_RIGHT },
		{ "MISSES", "misses", cell_text, COLUMN_RIGHT },
	};
	json_t *rows = json_copy(json_object_get(told, "steps"));
	json_t *sum = json_object_get(told, "sum");
	int err = 0;

	if (!rows)
		return -ENOMEM;
	if (json_is_object(sum) && json_array_size(rows) > 1)
		err = json_array_append(rows, sum) ? -ENOMEM : 0;
	if (!err)
		print_head(told);
	if (!err)
		err = table_print(rows, columns, sizeof(columns) / sizeof(columns[0]), 0);
	json_decref(rows);
	return err;
}
