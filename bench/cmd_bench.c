// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* actmem bench measures this machine's memory and spill devices. */
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "actmem_queue.h"
#include "base/base.h"
#include "bench.h"
#include "machine/machine.h"
#include "parse.h"
#include "../tools/memory_options.h"
#include "../tools/table.h"
#include "../tools/tool.h"

#define MIB		(1ULL << 20)
#define BYTES_USUAL	(256 * MIB)
#define FILE_USUAL	(1024 * MIB)
#define BYTES_MAX	(1ULL << 50)

static const char help[] =
	"Measures how fast this machine copies memory between each pair of nodes and, with\n"
	"--spill, how fast it writes and reads each spill device alone and all of them\n"
	"together. The bandwidth of copies is that of the median.\n"
	"\n"
	"Measurements:\n"
	"  -s, --spill DIR             a folder on a device to measure; may be repeated.\n"
	"                              The file in it has no name, and ends with the command\n"
	"  -B, --block SIZES           lengths of spills and fills; default: 1M,4M,16M\n"
	"  -f, --file-bytes SIZE       length of the file; default: 1G\n"
	"      --allow-buffered        use the page cache if there is no direct I/O\n"
	"  -o, --only copying|spilling  measure nothing else\n"
	"  -m, --memory SIZE           length of each region; default: 256M\n"
	"  -t, --seconds SECONDS       duration of each measurement; default: 1\n"
	"\n"
	MEMORY_OPTIONS_HELP
	"Output:\n"
	"  -J, --json                  print JSON; bandwidths are bytes per second\n"
	"  -h, --help                  print this\n"
	"\n"
	"Exit status 1 if a copy or a spill device could not be measured.";

enum { OPTION_ALLOW_BUFFERED = 256 };

enum part { COPYING, SPILLING, PARTS };

static const char *const part_names[] = { "copying", "spilling", NULL };
static json_t *(*const part_functions[])(const struct bench *) = {
	bench_copy, bench_spill,
};

unsigned int bench_node(const struct bench *bench, unsigned int from)
{
	while (from < ACTMEM_NODES_MAX && !(bench->nodes.word[from / 64] >> (from % 64) & 1))
		from++;
	return from;
}

/* Parses a list of sizes, such as "1M,4M". */
static bool parse_sizes(struct bench *bench, const char *list)
{
	char *copy = strdup(list), *rest = copy, *word;
	bool good = copy;

	bench->size_count = 0;
	while (good && (word = strsep(&rest, ","))) {
		good = bench->size_count < BENCH_SIZES_MAX &&
		       option_bytes("--block", word, 4096, ACTMEM_BLOCK_BYTES_MAX,
				    &bench->sizes[bench->size_count]);
		if (bench->size_count == BENCH_SIZES_MAX)
			warnx("--block has more than %d sizes", BENCH_SIZES_MAX);
		bench->size_count++;
	}
	free(copy);
	return good;
}

static bool bench_option(void *data, int option, const char *value)
{
	struct bench *bench = data;

	switch (option) {
	case 's':
		return option_folder(value, bench->spill_paths, &bench->spill_path_count);
	case 'o':
		return option_choice("--only", value, part_names, &bench->only);
	case 'B':
		return parse_sizes(bench, value);
	case 'f':
		return option_bytes("--file-bytes", value, MIB, BYTES_MAX, &bench->file_bytes);
	case 'm':
		return option_bytes("--memory", value, 2 * MIB, BYTES_MAX, &bench->bytes);
	case 't':
		return option_number("--seconds", value, 0, 3600, &bench->seconds);
	case OPTION_ALLOW_BUFFERED:
		bench->file_flags |= ACTMEM_FILE_ALLOW_BUFFERED;
		return true;
	default:
		return memory_option(option, value);
	}
}

/*
 * Finds the nodes to measure: those that the options name, or all nodes with memory. The library
 * parses the list of the options and the kernel's list of nodes with memory.
 */
static int find_nodes(struct bench *bench, struct actmem_options *options)
{
	char all[256] = "0";
	struct actmem_options of_all;
	unsigned int node;
	int status;

	if (!sysfile_read("/sys/devices/system/node/has_memory", all, sizeof(all)))
		all[strcspn(all, "\n")] = '\0';
	memory_option('n', all);
	status = memory_options(&of_all);
	if (status)
		return status;
	bench->nodes = options->nodes;
	if (bench_node(bench, 0) == ACTMEM_NODES_MAX)
		bench->nodes = of_all.nodes;
	for (node = bench_node(bench, 0); node < ACTMEM_NODES_MAX;
	     node = bench_node(bench, node + 1)) {
		if (of_all.nodes.word[node / 64] >> (node % 64) & 1)
			continue;
		warnx("node %u has no memory (--nodes, ACTMEM_NODES); nodes with memory: %s", node,
		      all);
		return STATUS_USAGE;
	}
	/*
	 * bench_copy() itself binds regions to these nodes. All other regions use the default
	 * policy.
	 */
	memset(&options->nodes, 0, sizeof(options->nodes));
	options->policy = ACTMEM_PLACE_DEFAULT;
	return STATUS_OK;
}

static int open_bench(struct bench *bench)
{
	struct actmem_options options;
	int status = memory_options(&options);

	if (!status)
		status = find_nodes(bench, &options);
	if (status)
		return status;
	bench->page_bytes = memory_page_bytes(&options);
	bench->bytes = round_up(bench->bytes, bench->page_bytes);
	if (actmem_open(&bench->am, &options))
		return print_library_error();
	return STATUS_OK;
}

static char *cell_yes(const json_t *row, const char *key, unsigned int flags)
{
	const json_t *value = json_object_get(row, key);

	return strdup(json_is_boolean(value) ? json_is_true(value) ? "yes" : "no" : "-");
}

/* Returns the name of the queue's engine: the part of its description before the colon. */
static char *cell_engine(const json_t *row, const char *key, unsigned int flags)
{
	const char *engine = json_string_value(json_object_get(row, key));

	return engine ? strndup(engine, strcspn(engine, ":")) : strdup("-");
}

static char *cell_disks(const json_t *row, const char *key, unsigned int flags)
{
	const json_t *disks = json_object_get(row, "disks"), *disk;
	char *text = NULL;
	size_t i, length;
	FILE *stream = open_memstream(&text, &length);

	if (!stream)
		return NULL;
	json_array_foreach(disks, i, disk) {
		char *word = cell_text(disk, key, flags);

		fprintf(stream, "%s%s", i ? "," : "", word ? word : "");
		free(word);
	}
	if (!fclose(stream))
		return text;
	free(text);
	return NULL;
}

/* Prints why the backend is used, and then each table that has rows. */
static int print_tables(const json_t *result)
{
	static const struct column copy[] = {
		{ "COPYING FROM", "from", cell_text, COLUMN_RIGHT },
		{ "TO", "to", cell_text, COLUMN_RIGHT },
		{ "SIZE", "bytes", cell_bytes, COLUMN_RIGHT },
		{ "PAGES", "pages", cell_text, COLUMN_LEFT },
		{ "ROUNDS", "rounds", cell_text, COLUMN_RIGHT },
		{ "GiB/s", "bandwidth", cell_bandwidth, COLUMN_RIGHT },
		{ "NOTE", "note", cell_text, COLUMN_LEFT },
	};
	static const struct column spill[] = {
		{ "SPILLING TO", "path", cell_disks, COLUMN_LEFT },
		{ "DEVICE", "device", cell_disks, COLUMN_LEFT },
		{ "ENGINE", "engine", cell_engine, COLUMN_LEFT },
		{ "DIRECT", "direct", cell_yes, COLUMN_LEFT },
		{ "BLOCK", "request_bytes", cell_bytes, COLUMN_RIGHT },
		{ "DEPTH", "depth", cell_text, COLUMN_RIGHT },
		{ "SPILL GiB/s", "spill_bandwidth", cell_bandwidth, COLUMN_RIGHT },
		{ "FILL GiB/s", "fill_bandwidth", cell_bandwidth, COLUMN_RIGHT },
		{ "NOTE", "note", cell_text, COLUMN_LEFT },
	};
	static const struct {
		const struct column *columns;
		size_t count;
	} tables[PARTS] = {
		[COPYING] = { copy, sizeof(copy) / sizeof(copy[0]) },
		[SPILLING] = { spill, sizeof(spill) / sizeof(spill[0]) },
	};
	unsigned int i;
	int err = 0;

	puts(json_string_value(json_object_get(result, "reason")));
	for (i = 0; !err && i < PARTS; i++) {
		const json_t *rows = json_object_get(result, part_names[i]);

		if (!json_array_size(rows))
			continue;
		putchar('\n');
		err = table_print(rows, tables[i].columns, tables[i].count, 0);
	}
	return err;
}

/*
 * Prints why measurements failed. If consecutive rows have the same reason, prints it only once.
 * Returns true if any measurement failed.
 */
static bool print_failures(const json_t *rows, const char *bandwidth, const char *what)
{
	const char *last = NULL;
	const json_t *row;
	bool any = false;
	size_t i;

	json_array_foreach(rows, i, row) {
		const char *note = json_string_value(json_object_get(row, "note"));

		if (!json_is_null(json_object_get(row, bandwidth)))
			continue;
		any = true;
		if (note && (!last || strcmp(note, last)))
			warnx("%s: %s", what, note);
		last = note;
	}
	return any;
}

static json_t *measure_parts(const struct bench *bench)
{
	json_t *result = json_pack("{s:s, s:o}", "backend",
				 backend_text(actmem_get_backend(bench->am)),
				 "reason", text_to_json(actmem_describe(bench->am)));
	unsigned int i;

	for (i = 0; result && i < PARTS; i++) {
		bool is_wanted = bench->only == PARTS || bench->only == i;

		if (json_object_set_new(result, part_names[i],
					is_wanted ? part_functions[i](bench) : json_array())) {
			json_decref(result);
			result = NULL;
		}
	}
	return result;
}

static int measure_all(const struct bench *bench, bool as_json)
{
	json_t *result = measure_parts(bench);
	bool failed;

	failed = !table_show(result, as_json, print_tables);
	failed |= print_failures(json_object_get(result, "copying"), "bandwidth", "copying");
	failed |= print_failures(json_object_get(result, "spilling"), "spill_bandwidth", "spilling");
	json_decref(result);
	return failed ? STATUS_FAILED : STATUS_OK;
}

int cmd_bench(int argc, char **argv)
{
	static const struct option long_options[] = {
		MEMORY_OPTIONS,
		{ "spill", required_argument, NULL, 's' },
		{ "block", required_argument, NULL, 'B' },
		{ "file-bytes", required_argument, NULL, 'f' },
		{ "allow-buffered", no_argument, NULL, OPTION_ALLOW_BUFFERED },
		{ "only", required_argument, NULL, 'o' },
		{ "memory", required_argument, NULL, 'm' },
		{ "seconds", required_argument, NULL, 't' },
		COMMON_OPTIONS
	};
	static const struct option_table table = {
		MEMORY_OPTIONS_SHORT "s:B:f:o:m:t:Jh", long_options, help, bench_option,
	};
	struct bench bench = {
		.bytes = BYTES_USUAL,
		.file_bytes = FILE_USUAL,
		.seconds = 1,
		.only = PARTS,
		.sizes = { MIB, 4 * MIB, 16 * MIB },
		.size_count = 3,
	};
	bool as_json = false;
	int status;

	if (!take_options(&table, &bench, argc, argv, &as_json, &status))
		return status;
	if (bench.only == SPILLING && !bench.spill_path_count) {
		warnx("--only spilling needs --spill");
		return usage_hint();
	}
	status = open_bench(&bench);
	if (status)
		return status == STATUS_USAGE ? usage_hint() : status;
	status = measure_all(&bench, as_json);
	actmem_close(bench.am);
	return status;
}
