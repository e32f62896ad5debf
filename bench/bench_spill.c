// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The spilling part of actmem bench: measures a file on each device alone, and then one file that
 * is striped over all devices.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/base.h"
#include "bench.h"
#include "disk.h"
#include "../tools/table.h"
#include "transfers.h"

struct spill_row {
	double spill, fill;
	struct actmem_file_info file;
	char engine[256];
	char words[TRANSFERS_WORDS];
	bool is_open;
	bool is_good;
};

static void measure_file(const struct bench *bench, const char *const *paths, unsigned int count,
			 uint64_t size, struct spill_row *row)
{
	struct transfers_options options = {
		.paths = paths,
		.path_count = count,
		.flags = bench->file_flags,
		.file_bytes = bench->file_bytes,
		.page_bytes = bench->page_bytes,
		.sizes = { size },
		.size_count = 1,
	};
	uint64_t ns = (uint64_t)(bench->seconds * NS_PER_SECOND);
	struct transfers *transfers;

	transfers = transfers_open(bench->am, &options, row->words);
	if (!transfers)
		return;
	row->is_open = true;
	row->file = *transfers_file(transfers);
	snprintf(row->engine, sizeof(row->engine), "%s", transfers_engine(transfers));
	row->is_good = !transfers_run(transfers, true, size, ns, &row->spill, row->words) &&
		       !transfers_run(transfers, false, size, ns, &row->fill, row->words);
	transfers_close(transfers);
}

static json_t *measured_to_json(const struct spill_row *row, double bandwidth)
{
	return row->is_good ? json_integer((json_int_t)bandwidth) : json_null();
}

static json_t *spill_to_json(const struct spill_row *row, const char *const *paths,
			     unsigned int count, uint64_t size)
{
	json_t *file;

	if (row->is_open)
		file = json_pack("{s:b, s:b, s:i, s:I, s:I, s:s}",
				 "direct", (int)row->file.direct,
				 "rotational", (int)row->file.rotational,
				 "depth", (int)row->file.depth,
				 "block_bytes", (json_int_t)row->file.block_bytes,
				 "alignment", (json_int_t)row->file.alignment,
				 "engine", row->engine);
	else
		file = json_pack("{s:n, s:n, s:n, s:n, s:n, s:n}", "direct", "rotational", "depth",
				 "block_bytes", "alignment", "engine");
	return merge_objects(json_pack("{s:o, s:I, s:o, s:o, s:o}",
				       "disks", disks_to_json(paths, count),
				       "request_bytes", (json_int_t)size,
				       "spill_bandwidth", measured_to_json(row, row->spill),
				       "fill_bandwidth", measured_to_json(row, row->fill),
				       "note", row->is_good ? json_null() :
					       text_to_json(row->words)), file);
}

static int measure_files(const struct bench *bench, const char *const *paths, unsigned int count,
			 json_t *rows)
{
	unsigned int i;

	for (i = 0; i < bench->size_count; i++) {
		struct spill_row row = { 0 };

		measure_file(bench, paths, count, bench->sizes[i], &row);
		if (json_array_append_new(rows, spill_to_json(&row, paths, count, bench->sizes[i])))
			return -ENOMEM;
	}
	return 0;
}

json_t *bench_spill(const struct bench *bench)
{
	json_t *rows = json_array();
	int error = rows ? 0 : -ENOMEM;
	unsigned int i;

	for (i = 0; !error && i < bench->spill_path_count; i++)
		error = measure_files(bench, &bench->spill_paths[i], 1, rows);
	if (!error && bench->spill_path_count > 1)
		error = measure_files(bench, bench->spill_paths, bench->spill_path_count, rows);
	if (error) {
		json_decref(rows);
		return NULL;
	}
	return rows;
}
