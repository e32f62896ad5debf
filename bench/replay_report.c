// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Reports the time of each step and its bound, max(compute, I/O).
 *
 * The compute time of a layer is the time that the options or the plan request, or the time of
 * filling and verifying if that is longer.
 *
 * I/O time is the number of bytes that were moved, divided by the speed of the disks. The disks are
 * measured just before and just after the step, with requests of the same sizes, while a thread
 * fills or verifies data at the rate of the step. "I/O alone" uses a measurement without that
 * thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "replay.h"
#include "../tools/table.h"

/*
 * The figures of a step, or the sums of the figures over steps. Figures up to FILLING are times in
 * ns. SPILLED and FILLED are bytes. HITS, LATE and MISSES are numbers of blocks.
 */
enum figure {
	TIME, COMPUTE, OVERRUN, IO, IO_ALONE, BOUND, BOUND_ALONE, STALL, SPILLING, FILLING, TIMES,
	SPILLED = TIMES, FILLED, HITS, LATE, MISSES, FIGURES
};

static const char *const time_names[TIMES] = {
	[TIME] = "ms", [COMPUTE] = "compute_ms", [OVERRUN] = "overrun_ms", [IO] = "io_ms",
	[IO_ALONE] = "io_alone_ms", [BOUND] = "bound_ms", [BOUND_ALONE] = "bound_alone_ms",
	[STALL] = "stall_ms",
};

static double transfer_ns(double bytes, double bandwidth)
{
	return bandwidth > 0 ? bytes * NS_PER_SECOND / bandwidth : 0;
}

static double longer_of(double a, double b)
{
	return a > b ? a : b;
}

static void add_step(double sums[FIGURES], const struct replay_step *step)
{
	const struct actmem_store_stats *stats = &step->stats;
	double each[FIGURES] = {
		[TIME] = (double)step->ns,
		[COMPUTE] = (double)(step->compute_ns + step->overrun_ns),
		[OVERRUN] = (double)step->overrun_ns,
		[STALL] = (double)step->stall_ns,
		[SPILLED] = (double)stats->spilled_bytes_total,
		[FILLED] = (double)stats->filled_bytes_total,
		[HITS] = (double)stats->hits_total,
		[LATE] = (double)stats->late_total,
		[MISSES] = (double)stats->misses_total,
	};
	unsigned int i;

	each[SPILLING] = transfer_ns(each[SPILLED], step->speeds.beside.spill);
	each[FILLING] = transfer_ns(each[FILLED], step->speeds.beside.fill);
	each[IO] = each[SPILLING] + each[FILLING];
	each[IO_ALONE] = transfer_ns(each[SPILLED], step->speeds.alone.spill) +
			 transfer_ns(each[FILLED], step->speeds.alone.fill);
	each[BOUND] = longer_of(each[COMPUTE], each[IO]);
	each[BOUND_ALONE] = longer_of(each[COMPUTE], each[IO_ALONE]);
	for (i = 0; i < FIGURES; i++)
		sums[i] += each[i];
}

static json_t *share_to_json(double part, double whole)
{
	return whole > 0 ? json_real(part / whole) : json_null();
}

/* Returns bytes per second, or null if nothing was moved. */
static json_t *bandwidth_to_json(double bytes, double ns)
{
	return bytes > 0 && ns > 0 ? json_integer((json_int_t)(bytes * NS_PER_SECOND / ns))
				   : json_null();
}

/* Returns a row of the results. Takes ownership of @name. */
static json_t *row_to_json(json_t *name, const double sums[FIGURES])
{
	json_t *row = json_pack("{s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:I, s:I, s:I}",
				"step", name, "ratio", share_to_json(sums[TIME], sums[BOUND]),
				"stall_share", share_to_json(sums[STALL], sums[TIME]),
				"spilled_bytes", (json_int_t)sums[SPILLED],
				"filled_bytes", (json_int_t)sums[FILLED],
				"device_spill_bandwidth",
				bandwidth_to_json(sums[SPILLED], sums[SPILLING]),
				"device_fill_bandwidth",
				bandwidth_to_json(sums[FILLED], sums[FILLING]),
				"hits", (json_int_t)sums[HITS], "late", (json_int_t)sums[LATE],
				"misses", (json_int_t)sums[MISSES]);
	unsigned int i;

	for (i = 0; i < TIMES; i++)
		if (time_names[i] && json_object_set_new(row, time_names[i],
							 json_real(sums[i] / NS_PER_MS))) {
			json_decref(row);
			return NULL;
		}
	return row;
}

static json_t *steps_to_json(const struct replay *replay)
{
	json_t *rows = json_array();
	uint64_t i;

	for (i = 0; i < replay->done_count; i++) {
		double sums[FIGURES] = { 0 };

		add_step(sums, &replay->done[i]);
		rows = append_item(rows, row_to_json(json_integer((json_int_t)i), sums));
	}
	return rows;
}

/*
 * Sums all steps except the first one, in which the store learns the order. If there is only one
 * step, returns the row of that step.
 */
static json_t *sum_to_json(const struct replay *replay)
{
	uint64_t first = replay->done_count > 1, i;
	double sums[FIGURES] = { 0 };
	json_t *name;

	if (!replay->done_count)
		return json_null();
	for (i = first; i < replay->done_count; i++)
		add_step(sums, &replay->done[i]);
	name = json_sprintf("%" PRIu64 "-%" PRIu64, first, replay->done_count - 1);
	return name ? row_to_json(name, sums) : NULL;
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
 * Returns an array with the size of each tensor in bytes. For a plan, each tensor has the size of
 * the largest layer.
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

static json_t *traffic_to_json(const struct replay *replay)
{
	const struct replay_options *options = &replay->options;
	bool is_plan = replay->plan.layers;

	return json_pack("{s:s, s:i, s:o, s:f, s:o, s:o, s:o, s:I}",
			 "model", replay->name, "layers", (int)replay->layer_count,
			 "tokens", is_plan ? json_null() : json_integer((json_int_t)options->tokens),
			 "scale", options->scale, "compute_ms_per_layer",
			 options->compute_ms < 0 ? json_null() : json_real(options->compute_ms),
			 "foreseen_ms", is_plan ? json_real((double)replay->plan.step_ns / NS_PER_MS) :
			 json_null(),
			 "tensor_bytes", tensors_to_json(replay),
			 "step_bytes", (json_int_t)replay->step_bytes);
}

/* Returns a JSON null if the disks are not measured. */
static json_t *queue_to_json(const struct replay *replay)
{
	const struct actmem_file_info *file;

	if (!replay->transfers)
		return json_null();
	file = transfers_file(replay->transfers);
	return json_pack("{s:o, s:b, s:i, s:I, s:I}",
			 "engine", text_to_json(transfers_engine(replay->transfers)),
			 "direct", (int)file->direct, "depth", (int)file->depth,
			 "block_bytes", (json_int_t)file->block_bytes,
			 "worked_bytes", (json_int_t)replay->worked_bytes);
}

json_t *replay_to_json(const struct replay *replay)
{
	json_t *rest = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:I, s:I}",
				 "backend", text_to_json(actmem_describe(replay->am)),
				 "store", text_to_json(replay->store_text),
				 "disks", disks_to_json(replay->options.spill_paths,
							replay->options.spill_path_count),
				 "queue", queue_to_json(replay),
				 "memory", memory_to_json(replay),
				 "steps", steps_to_json(replay), "sum", sum_to_json(replay),
				 "interrupted", !!replay_signal,
				 "wrong_blocks", (json_int_t)replay->wrong_blocks,
				 "wrong_bytes", (json_int_t)replay->wrong_bytes);

	return merge_objects(traffic_to_json(replay), rest);
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

static void print_head(const json_t *result)
{
	const json_t *memory = json_object_get(result, "memory");

	printf("%s\n%s\n", json_string_value(json_object_get(result, "backend")),
	       json_string_value(json_object_get(result, "store")));
	printf("%s: %" JSON_INTEGER_FORMAT " layers",
	       json_string_value(json_object_get(result, "model")),
	       json_integer_value(json_object_get(result, "layers")));
	print_bytes(", ", result, "step_bytes");
	print_bytes(" per step; at most ", memory, "block_bytes_peak");
	print_bytes(" live, ", memory, "region_bytes_peak");
	print_bytes(" in regions, ", memory, "spilled_bytes_peak");
	printf(" spilled; memory overhead %.3f\n",
	       json_number_value(json_object_get(memory, "overhead")));
	if (!json_is_null(json_object_get(result, "foreseen_ms")))
		printf("the plan predicts %.1f ms per step\n",
		       json_number_value(json_object_get(result, "foreseen_ms")));
	if (!json_is_null(json_object_get(result, "queue")))
		puts("the bound is an estimate: the disks were measured before and after each step");
	putchar('\n');
}

int replay_print(const json_t *result)
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
	json_t *rows = json_copy(json_object_get(result, "steps"));
	json_t *sum = json_object_get(result, "sum");
	int err = 0;

	if (!rows)
		return -ENOMEM;
	if (json_is_object(sum) && json_array_size(rows) > 1)
		err = json_array_append(rows, sum) ? -ENOMEM : 0;
	if (!err)
		print_head(result);
	if (!err)
		err = table_print(rows, columns, sizeof(columns) / sizeof(columns[0]), 0);
	json_decref(rows);
	return err;
}
