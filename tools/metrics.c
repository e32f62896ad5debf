// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The metrics of this machine: the values that `actmem list` and `actmem info` show, and the
 * counters that processes publish. Published counters can be garbage. Regions are summed by
 * process, page type and state, so that the number of series does not grow with the number of
 * regions.
 */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actmem.h"
#include "base/base.h"
#include "facts.h"
#include "machine/machine.h"
#include "mallocs.h"
#include "metrics.h"
#include "table.h"
#include "tool.h"

#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))
#define GAUGE(name_, help_, key_, ...)	\
	{ .name = name_, .type = "gauge", .help = help_, .key = key_, __VA_ARGS__ }
#define COUNTER(name_, help_, key_, ...)	\
	{ .name = name_, .type = "counter", .help = help_, .key = key_, __VA_ARGS__ }

static const char *const no_labels[] = { NULL };
static const char *const version_labels[] = { "version", "abi", NULL };
static const char *const node_labels[] = { "node", NULL };
static const char *const page_labels[] = { "node", "pages", NULL };
static const char *const mount_labels[] = { "path", NULL };
static const char *const backend_labels[] = { "backend", NULL };
static const char *const region_labels[] = { "pid", "uid", "command", "backend", "pages", "kind",
					     "state", NULL };
static const char *const surplus_labels[] = { "pid", "uid", "command", "can_return", NULL };
static const char *const process_labels[] = { "pid", "uid", "command", "backend", NULL };

static const struct metric library_metrics[] = {
	GAUGE("actmem_library_info", "Version of the library of this exporter.", "one"),
	GAUGE("actmem_all_users_visible",
	      "1: the metrics include all users; 0: only what this exporter's user may see.",
	      "all_users"),
	GAUGE("actmem_driver_regions_visible",
	      "0: the driver is loaded, but this exporter may not list its regions.", "driver_visible"),
	GAUGE("actmem_processes_left_out",
	      "Processes without their own series; their sums have an empty pid.",
	      "left_out"),
};

static const struct metric driver_metrics[] = {
	GAUGE("actmem_driver_info", "Version of the driver that is loaded.", "one"),
	GAUGE("actmem_driver_regions", "Regions of the driver, of all users.", "regions"),
	GAUGE("actmem_driver_lingering_regions",
	      "Regions of the driver that are closed and still pinned, of all users.",
	      "lingering_regions"),
	GAUGE("actmem_driver_user_limit_bytes",
	      "Limit on the regions of each user; +Inf: RLIMIT_MEMLOCK applies instead.",
	      "user_limit_bytes", .is_limit = true),
};

static const struct metric node_metrics[] = {
	GAUGE("actmem_node_memory_bytes", "Memory of the node.", "total_bytes"),
	GAUGE("actmem_node_memory_free_bytes", "Free memory of the node.", "free_bytes"),
	GAUGE("actmem_node_region_bytes", "The driver's regions on the node, of all users.",
	      "region_bytes"),
	GAUGE("actmem_node_lingering_bytes",
	      "Memory on the node of regions that are closed and still pinned.", "lingering_bytes"),
	GAUGE("actmem_node_limit_bytes", "Limit on the driver's regions on the node.",
	      "limit_bytes", .is_limit = true),
	GAUGE("actmem_node_poisoned_bytes", "Bytes lost to hardware errors.",
	      "poisoned_bytes"),
	GAUGE("actmem_node_pool_bytes", "The driver's pool on the node.", "pool.total_bytes"),
	GAUGE("actmem_node_pool_free_bytes", "Part of the pool that is ready.",
	      "pool.free_bytes"),
	GAUGE("actmem_node_pool_lent_bytes", "Part of the pool that regions use.",
	      "pool.lent_bytes"),
};

static const struct metric page_metrics[] = {
	GAUGE("actmem_node_huge_pages", "Huge pages that hugetlb has reserved.", "total"),
	GAUGE("actmem_node_huge_pages_free", "Reserved huge pages that are free.", "free"),
};

static const struct metric mount_metrics[] = {
	GAUGE("actmem_mount_size_bytes", "Limit of a mounted file system of the driver.",
	      "size_bytes", .is_limit = true),
	GAUGE("actmem_mount_used_bytes", "Memory of the regions of the file system.",
	      "used_bytes"),
};

static const struct metric backend_metrics[] = {
	GAUGE("actmem_backend_regions", "Visible regions, by backend.", "regions"),
	GAUGE("actmem_backend_region_bytes", "Length of the visible regions.",
	      "bytes"),
};

static const struct metric region_metrics[] = {
	GAUGE("actmem_regions", "Regions of a process, by pages and state.", "regions"),
	GAUGE("actmem_region_bytes", "Length of the regions.", "bytes"),
	GAUGE("actmem_region_allocated_bytes", "Allocated bytes of the regions.",
	      "allocated_bytes"),
	GAUGE("actmem_region_pinned_bytes",
	      "Bytes pinned by devices and I/O (driver) or locked (memfd).", "pinned_bytes"),
};

static const struct metric process_metrics[] = {
	COUNTER("actmem_process_fallbacks_total",
	      "Number of times that a region got fallback memory.", "fallbacks"),
	COUNTER("actmem_process_regions_total", "Regions that the process created.",
	      "regions_total"),
	GAUGE("actmem_process_heap_bytes", "Bytes of heaps' blocks in use.", "block_bytes"),
	GAUGE("actmem_process_stores", "Stores that the process has.", "stores"),
	GAUGE("actmem_process_spilled_bytes", "Bytes of blocks that are only in files.",
	      "spilled_bytes"),
	COUNTER("actmem_store_puts_total", "Blocks that were put into stores.", "puts"),
	COUNTER("actmem_store_takes_total", "Blocks that were taken.", "takes"),
	COUNTER("actmem_store_takes_ahead_total", "Takes that found their block in memory.",
		"ahead"),
	COUNTER("actmem_store_takes_late_total", "Takes that waited for a block being read.",
		"late"),
	COUNTER("actmem_store_takes_unforeseen_total", "Takes that were not predicted.",
		"misses"),
	COUNTER("actmem_store_put_stall_seconds_total", "Time that puts waited for memory.",
		"put_stall_ns", .is_ns = true),
	COUNTER("actmem_store_take_stall_seconds_total", "Time that takes waited for blocks.",
		"take_stall_ns", .is_ns = true),
	COUNTER("actmem_store_spilled_bytes_total", "Bytes written to files.",
		"spilled_bytes_total"),
	COUNTER("actmem_store_filled_bytes_total", "Bytes read from files.",
		"filled_bytes_total"),
	COUNTER("actmem_store_failed_spills_total", "Blocks that could not be written.",
		"failed_spills"),
	COUNTER("actmem_store_failed_fills_total", "Blocks that could not be read.",
		"failed_fills"),
};

static const struct metric surplus_metrics[] = {
	GAUGE("actmem_process_surplus_bytes",
	      "Bytes that the process has beyond a limit that was lowered.", "surplus_bytes"),
};

static const struct metric malloc_metrics[] = {
	GAUGE("actmem_malloc_processes", "Processes under 'actmem run --malloc'.", "processes"),
	GAUGE("actmem_malloc_used_bytes", "Bytes of large blocks of malloc in use (--malloc).",
	      "block_bytes"),
	GAUGE("actmem_malloc_pooled_bytes", "Freed bytes that the pool keeps.", "pooled_bytes"),
	GAUGE("actmem_malloc_refused_blocks",
	      "Large blocks that the pool could not serve, of running processes.",
	      "refused_total"),
};

static const struct metric scrape_metrics[] = {
	GAUGE("actmem_scrape_duration_seconds", "Time to collect these metrics.",
	      "duration", .is_ns = true),
};

/* Writes @rows and releases them. Returns false if out of memory. */
static bool write_rows(FILE *out, json_t *rows, const char *const *labels,
		       const struct metric *metrics, size_t count)
{
	if (rows)
		metrics_write(out, rows, labels, metrics, count);
	json_decref(rows);
	return rows;
}

static json_t *single_row(json_t *row)
{
	return append_item(json_array(), row);
}

/* Returns no row if there is no driver. */
static json_t *driver_rows(void)
{
	json_t *driver = facts_driver();

	if (driver && json_is_null(json_object_get(driver, "version")) &&
	    json_is_null(json_object_get(driver, "regions"))) {
		json_decref(driver);
		return json_array();
	}
	return single_row(merge_objects(driver, json_pack("{s:i}", "one", 1)));
}

/* Returns a row for each node. Omits a node's limit if no driver enforces it. */
static json_t *node_rows(void)
{
	json_t *nodes = facts_nodes(), *node;
	size_t i;

	json_array_foreach(nodes, i, node)
		if (json_is_null(json_object_get(node, "region_bytes")))
			json_object_del(node, "limit_bytes");
	return nodes;
}

/* Returns a row for each node and each size of huge pages. */
static json_t *page_rows(const json_t *nodes)
{
	static const char *const sizes[] = { "2M", "1G" };
	json_t *rows = json_array(), *node, *pool;
	char key[16];
	size_t i, size;

	json_array_foreach(nodes, i, node) {
		for (size = 0; size < COUNT(sizes); size++) {
			snprintf(key, sizeof(key), "huge_%s", sizes[size]);
			pool = json_object_get(node, key);
			if (json_is_object(pool))
				rows = append_item(rows, json_pack(
					"{s:O, s:s, s:O, s:O}", "node",
					json_object_get(node, "node"), "pages", sizes[size], "total",
					json_object_get(pool, "total"), "free",
					json_object_get(pool, "free")));
		}
	}
	return rows;
}

static bool write_nodes(FILE *out)
{
	json_t *nodes = node_rows(), *pages = nodes ? page_rows(nodes) : NULL;

	return write_rows(out, nodes, node_labels, node_metrics, COUNT(node_metrics)) &
	       write_rows(out, pages, page_labels, page_metrics, COUNT(page_metrics));
}

static bool write_machine(FILE *out)
{
	json_t *driver = driver_rows();

	if (driver)
		metrics_write(out, driver, version_labels, driver_metrics, 1);
	return write_rows(out, driver, no_labels, driver_metrics + 1,
			  COUNT(driver_metrics) - 1) &&
	       write_nodes(out) &&
	       write_rows(out, facts_mounts(), mount_labels, mount_metrics, COUNT(mount_metrics));
}

/* Sums all processes in malloc mode into one row, because there may be many. */
static json_t *malloc_rows(void)
{
	static const char *const sums[] = { "block_bytes", "pooled_bytes", "refused_total" };
	json_t *mallocs = mallocs_to_json(), *sum, *row;
	size_t i, key;
	bool good;

	sum = json_pack("{s:I}", "processes", (json_int_t)json_array_size(mallocs));
	good = mallocs && sum;
	for (key = 0; good && key < COUNT(sums); key++) {
		good = row_add(sum, sums[key], 0);
		json_array_foreach(mallocs, i, row)
			good = good && row_add(sum, sums[key], (uint64_t)json_integer_value(
						       json_object_get(row, sums[key])));
	}
	json_decref(mallocs);
	if (good)
		return single_row(sum);
	json_decref(sum);
	return NULL;
}

static bool write_processes(FILE *out, const struct process_rows *rows)
{
	metrics_write(out, rows->backends, backend_labels, backend_metrics,
		      COUNT(backend_metrics));
	metrics_write(out, rows->regions, region_labels, region_metrics, COUNT(region_metrics));
	metrics_write(out, rows->processes, process_labels, process_metrics,
		      COUNT(process_metrics));
	metrics_write(out, rows->surplus, surplus_labels, surplus_metrics, COUNT(surplus_metrics));
	return write_rows(out, malloc_rows(), no_labels, malloc_metrics, COUNT(malloc_metrics));
}

static bool write_self(FILE *out, const struct process_rows *rows, uint64_t began)
{
	json_t *self = merge_objects(facts_library(), json_pack(
		"{s:i, s:b, s:b, s:I}", "one", 1, "all_users", sees_machine(),
		"driver_visible", !driver_missing() && !driver_lacks_device(),
		"left_out", (json_int_t)rows->left_out));

	return write_rows(out, single_row(json_incref(self)), version_labels, library_metrics, 1) &
	       write_rows(out, single_row(self), no_labels, library_metrics + 1,
			  COUNT(library_metrics) - 1) &&
	       write_rows(out, single_row(json_pack("{s:I}", "duration",
						    (json_int_t)(clock_ns() - began))),
			  no_labels, scrape_metrics, COUNT(scrape_metrics));
}

char *metrics_read(size_t *length)
{
	const uint64_t began = clock_ns();
	struct process_rows rows = { 0 };
	char *text = NULL;
	bool good = false;
	FILE *out;

	if (!process_rows_read(&rows))
		return NULL;
	out = open_memstream(&text, length);
	if (out) {
		good = write_machine(out) && write_processes(out, &rows) &&
		       write_self(out, &rows, began) && !ferror(out);
		good = !fclose(out) && good;
	}
	process_rows_free(&rows);
	if (good)
		return text;
	warnx("%s", strerror(ENOMEM));
	free(text);
	return NULL;
}
