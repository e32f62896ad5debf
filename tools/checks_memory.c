// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The memory checks of `actmem doctor`: the driver, huge pages, the pool, and limits. This file
 * also has add_finding() for all checks.
 */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "actmem.h"
#include "checks.h"
#include "facts.h"
#include "machine/machine.h"
#include "reclaim.h"
#include "table.h"
#include "tool.h"

#define HUGE_ORDER	9	/* allocation order of 2 MiB with 4 KiB pages */
#define SMALL_BYTES	4096ULL

int add_finding(json_t *findings, const char *check, const char *state, const char *fix,
		const char *format, ...)
{
	va_list arguments;
	json_t *text;

	va_start(arguments, format);
	text = format_to_json(format, arguments);
	va_end(arguments);
	return json_array_append_new(findings, json_pack(
		"{s:s, s:s, s:o, s:o}", "check", check, "state", state, "finding", text,
		"fix", fix ? json_string(fix) : json_null())) ? -ENOMEM : 0;
}

static uint64_t get_number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

static bool is_null(const json_t *object, const char *key)
{
	return !object || json_is_null(json_object_get(object, key));
}

/* Adds the reason why this process cannot open the device. */
static int add_no_driver(json_t *findings, const char *error)
{
	if (!strcmp(error, strerror(EACCES)) || !strcmp(error, strerror(EPERM)))
		return add_finding(findings, "driver", CHECK_FIX,
				   "as root: usermod -aG actmem USER, and log in again; in a container, pass /dev/actmem",
				   "/dev/actmem exists, but this user may not open it");
	return add_finding(findings, "driver", CHECK_FIX,
			   "build the module with actmem-dkms or `make dkms-install`, then as root: modprobe actmem",
			   "/dev/actmem cannot be opened (%s): no warm pools, no limits by user, regions are not listed after a crash",
			   error);
}

int check_driver(json_t *findings, const json_t *driver, bool *is_usable)
{
	json_t *library = facts_library();
	const char *version, *error;
	int err;

	*is_usable = false;
	if (!library)
		return -ENOMEM;
	error = json_string_value(json_object_get(driver, "error"));
	version = json_string_value(json_object_get(driver, "version"));
	if (error) {
		err = add_no_driver(findings, error);
	} else if (get_number(driver, "abi") < get_number(library, "abi_oldest") ||
		   get_number(library, "abi") < get_number(driver, "abi_oldest")) {
		err = add_finding(findings, "driver", CHECK_FIX,
				  "install the module and the library of one version, then as root: modprobe -r actmem && modprobe actmem",
				  "the module supports ABI %" PRIu64 " to %" PRIu64 ", the library supports ABI %" PRIu64 " to %" PRIu64,
				  get_number(driver, "abi_oldest"), get_number(driver, "abi"),
				  get_number(library, "abi_oldest"), get_number(library, "abi"));
	} else {
		bool is_same = version && !strcmp(version, actmem_version());

		*is_usable = true;
		err = add_finding(findings, "driver", is_same ? CHECK_OK : CHECK_NOTE, is_same ? NULL :
				  "install the module of the library's version, and as root while no region is open: modprobe -r actmem && modprobe actmem",
				  "the loaded module is %s, the library is %s",
				  version ?: "of an unknown version", actmem_version());
	}
	json_decref(library);
	return err;
}

/* Free bytes of a node. */
struct free_memory {
	uint64_t huge_bytes;	/* in blocks of 2 MiB or more; includes CMA, not the movable zone */
	uint64_t movable_bytes;	/* only for movable pages: in the movable zone or in CMA */
	uint64_t cma_bytes;	/* the part of movable_bytes in CMA, which is contiguous */
};

static uint64_t huge_bytes_of(const char *counts)
{
	uint64_t count, bytes = 0;
	unsigned int order;
	char *end;

	for (order = 0; count = strtoull(counts, &end, 10), end != counts; order++, counts = end) {
		if (order >= HUGE_ORDER)
			bytes += count * (SMALL_BYTES << order);
	}
	return bytes;
}

/* read_blocks() and read_zones() return false if the kernel does not report the node. */
static bool read_blocks(int node, struct free_memory *memory)
{
	char text[8192], zone[32], *line, *state;
	bool is_told = false;
	int of, length;

	if (sysfile_read("/proc/buddyinfo", text, sizeof(text)))
		return false;
	for (line = strtok_r(text, "\n", &state); line; line = strtok_r(NULL, "\n", &state)) {
		if (sscanf(line, "Node %d, zone %31s%n", &of, zone, &length) != 2 || of != node)
			continue;
		is_told = true;
		if (strcmp(zone, "Movable"))
			memory->huge_bytes += huge_bytes_of(line + length);
	}
	return is_told;
}

static bool read_zones(int node, struct free_memory *memory)
{
	FILE *file = fopen("/proc/zoneinfo", "re");
	bool is_movable = false, is_told = false;
	char line[256], name[64];
	int here = -1, of;
	uint64_t count;

	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node %d, zone %63s", &of, name) == 2) {
			here = of;
			is_movable = !strcmp(name, "Movable");
			is_told |= here == node;
		} else if (here == node && sscanf(line, " %63s %" SCNu64, name, &count) == 2) {
			if (strcmp(name, is_movable ? "nr_free_pages" : "nr_free_cma"))
				continue;
			memory->movable_bytes += count * SMALL_BYTES;
			if (!is_movable)
				memory->cma_bytes += count * SMALL_BYTES;
		}
	}
	if (file)
		fclose(file);
	return is_told;
}

/*
 * The driver's pages cannot move, so the driver gets no memory that the kernel keeps for movable
 * pages.
 */
static int check_movable(json_t *findings, const json_t *facts, const struct free_memory *memory)
{
	char *text;
	int err;

	if (memory->movable_bytes < get_number(facts, "total_bytes") / 16)
		return 0;
	text = bytes_to_text(memory->movable_bytes, 0);
	err = text ? add_finding(findings, "movable memory", CHECK_NOTE, NULL,
				 "node %" PRIu64 ": regions cannot use %s of the free memory, which is in a movable zone or CMA; kho=off on the kernel's command line frees memory that is reserved for kexec handover",
				 get_number(facts, "node"), text) : -ENOMEM;
	free(text);
	return err;
}

/*
 * Checks the contiguous free memory, from which the driver allocates huge pages. Skips a node that
 * is almost full.
 */
static int check_contiguous(json_t *findings, const json_t *facts,
			    const struct free_memory *memory, bool *is_good)
{
	uint64_t all = get_number(facts, "free_bytes"), total = get_number(facts, "total_bytes");
	uint64_t huge = memory->huge_bytes > memory->cma_bytes ?
			memory->huge_bytes - memory->cma_bytes : 0;
	char *text;
	int err;

	if (all < memory->movable_bytes + total / 16 || huge >= (all - memory->movable_bytes) / 2)
		return 0;
	*is_good = false;
	text = bytes_to_text(huge, 0);
	err = text ? add_finding(findings, "contiguous memory", CHECK_FIX,
				 "as root, while no job runs: echo 1 > /proc/sys/vm/compact_memory; a pool that is filled at boot does not need this",
				 "node %" PRIu64 ": only %s are in blocks of 2 MiB, less than half of the free memory for regions",
				 get_number(facts, "node"), text) : -ENOMEM;
	free(text);
	return err;
}

static int check_free(json_t *findings, const json_t *nodes)
{
	json_t *movable = json_array();
	int err = movable ? 0 : -ENOMEM;
	bool is_good = true;
	const json_t *node;
	size_t i;

	json_array_foreach(nodes, i, node) {
		int number = (int)get_number(node, "node");
		struct free_memory memory = { 0 };

		if (err || !read_blocks(number, &memory) || !read_zones(number, &memory))
			continue;
		err = check_contiguous(findings, node, &memory, &is_good) ?:
		      check_movable(movable, node, &memory);
	}
	if (!err && is_good)
		err = add_finding(findings, "contiguous memory", CHECK_OK, NULL,
				  "free memory is in blocks of 2 MiB and more");
	if (!err && json_array_extend(findings, movable))
		err = -ENOMEM;
	json_decref(movable);
	return err;
}

/* Without the driver, huge pages come from hugetlb or are transparent. */
static int check_hugetlb(json_t *findings, const json_t *nodes)
{
	json_t *thp = facts_thp();
	const char *shmem = json_string_value(json_object_get(thp, "shmem_enabled"));
	uint64_t total = 0;
	const json_t *node;
	int without = -1, err;
	size_t i;

	json_array_foreach(nodes, i, node) {
		uint64_t pages = get_number(json_object_get(node, "huge_2M"), "total");

		total += pages;
		if (!pages)
			without = (int)get_number(node, "node");
	}
	if (total && without >= 0)
		err = add_finding(findings, "huge pages", CHECK_FIX,
				  "as root: write the same number to each /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages",
				  "node %d has none of the %" PRIu64 " hugetlb pages of 2 MiB",
				  without, total);
	else if (total)
		err = add_finding(findings, "huge pages", CHECK_OK, NULL,
				  "%" PRIu64 " hugetlb pages of 2 MiB", total);
	else if (shmem && strcmp(shmem, "never") && strcmp(shmem, "deny"))
		err = add_finding(findings, "huge pages", CHECK_OK, NULL,
				  "transparent huge pages for shared memory: %s", shmem);
	else
		err = add_finding(findings, "huge pages", CHECK_FIX,
				  "as root: sysctl vm.nr_hugepages=N, or echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
				  "no hugetlb pages and no transparent huge pages for shared memory (%s), so pages have 4 KiB",
				  shmem ?: "the kernel does not support them");
	json_decref(thp);
	return err;
}

int check_pages(json_t *findings, const json_t *nodes, bool has_driver)
{
	if (!has_driver)
		return check_hugetlb(findings, nodes);
	return check_free(findings, nodes);
}

int check_pools(json_t *findings, const json_t *nodes, bool has_driver)
{
	json_t *memory;
	uint64_t ready = 0, total = 0, available;
	char *ready_text = NULL, *available_text = NULL;
	const json_t *node;
	int err = -ENOMEM;
	size_t i;

	if (!has_driver)
		return 0;
	memory = facts_memory();
	if (!memory)
		return -ENOMEM;
	json_array_foreach(nodes, i, node) {
		const json_t *pool = json_object_get(node, "pool");

		ready += get_number(pool, "free_bytes");
		total += get_number(pool, "total_bytes");
	}
	available = get_number(memory, "available_bytes");
	ready_text = bytes_to_text(ready, 0);
	available_text = bytes_to_text(available, 0);
	if (!ready_text || !available_text)
		goto out;
	if (!total)
		err = add_finding(findings, "pool", CHECK_FIX,
				  "as root: actmem pool --nodes 0 64G --save, for each node",
				  "no warm pool: each job zeroes its pages while it starts");
	else if (ready > available)
		err = add_finding(findings, "pool", CHECK_FIX,
				  "as root, set a smaller SIZE: actmem pool --nodes LIST SIZE",
				  "%s are ready in the pool, and only %s are available to everything else",
				  ready_text, available_text);
	else
		err = add_finding(findings, "pool", CHECK_OK, NULL,
				  "%s are ready; %s are available to everything else", ready_text,
				  available_text);
out:
	json_decref(memory);
	free(ready_text);
	free(available_text);
	return err;
}

/*
 * Returns true if this process has CAP_IPC_LOCK in the initial user namespace. In another one, such
 * as a container's, the capability has no effect.
 */
static bool may_lock_all(void)
{
	unsigned long inner, outer, count;
	char map[128];

	return has_capability(CAP_IPC_LOCK) &&
	       !sysfile_read("/proc/self/uid_map", map, sizeof(map)) &&
	       sscanf(map, "%lu %lu %lu", &inner, &outer, &count) == 3 && !inner && !outer &&
	       count == UINT32_MAX;
}

/* With the driver, the administrator's limit on each user, if set, replaces RLIMIT_MEMLOCK. */
int check_memlock(json_t *findings, const json_t *driver, bool has_driver)
{
	json_t *memlock = facts_memlock();
	char *limit = NULL;
	int err;

	if (!memlock)
		return -ENOMEM;
	if (has_driver && !is_null(driver, "user_limit_bytes") &&
	    json_object_get(driver, "user_limit_bytes")) {
		limit = bytes_to_text(get_number(driver, "user_limit_bytes"), 0);
		err = limit ? add_finding(findings, "limit", CHECK_NOTE, NULL,
					  "each user may use %s of the driver's memory (user_limit_bytes)",
					  limit) : -ENOMEM;
	} else if (is_null(memlock, "soft_bytes")) {
		err = add_finding(findings, "limit", CHECK_OK, NULL,
				  "locked memory (ulimit -l) is unlimited");
	} else if (may_lock_all()) {
		err = add_finding(findings, "limit", CHECK_OK, NULL,
				  "no limit for this user (CAP_IPC_LOCK); ulimit -l applies to other users");
	} else {
		limit = bytes_to_text(get_number(memlock, "soft_bytes"), 0);
		err = limit ? add_finding(findings, "limit", CHECK_FIX,
					  has_driver ?
					  "as root: actmem limit --user SIZE --save; or LimitMEMLOCK=infinity in the job's unit" :
					  "LimitMEMLOCK=infinity in the job's unit, or 'memlock unlimited' in /etc/security/limits.d",
					  "a process may lock %s (ulimit -l)", limit) : -ENOMEM;
	}
	json_decref(memlock);
	free(limit);
	return err;
}

int check_cgroup(json_t *findings)
{
	struct memory_cgroup cgroup;
	char *limit, *left;
	int err = -ENOMEM;

	if (memory_cgroup_read(&cgroup, "/proc/self/cgroup", "/proc/self/mounts") ||
	    !cgroup.version || cgroup.tightest.limit_bytes == UINT64_MAX)
		return add_finding(findings, "cgroup", CHECK_OK, NULL, "no memory limit");
	limit = bytes_to_text(cgroup.tightest.limit_bytes, 0);
	left = bytes_to_text(cgroup.tightest.available_bytes, 0);
	if (limit && left)
		err = add_finding(findings, "cgroup", CHECK_NOTE, NULL,
				  "%s left of %s (%s)", left, limit, cgroup.tightest.file);
	free(limit);
	free(left);
	return err;
}

static int add_surplus(json_t *findings, const json_t *row)
{
	bool can_return = json_is_true(json_object_get(row, "can_return"));
	char *surplus = bytes_to_text(get_number(row, "surplus_bytes"), 0);
	int err = -ENOMEM;

	if (surplus)
		err = add_finding(findings, "surplus", can_return ? CHECK_NOTE : CHECK_FIX,
				  can_return ? NULL :
				  "raise the limit (actmem limit), or restart the program with --budget and --spill",
				  "process %" PRIu64 " (%s) has %s more than a limit allows, and %s",
				  get_number(row, "pid"),
				  json_string_value(json_object_get(row, "command")), surplus,
				  can_return ? "is returning memory" :
				  "cannot return memory, because none of its stores spills");
	free(surplus);
	return err;
}

int check_surplus(json_t *findings)
{
	json_t *rows = reclaim_rows(0);
	int err = rows ? 0 : -ENOMEM;
	const json_t *row;
	size_t i;

	json_array_foreach(rows, i, row)
		err = err ?: add_surplus(findings, row);
	if (!err && !json_array_size(rows))
		err = add_finding(findings, "surplus", CHECK_OK, NULL,
				  "no process has more than a limit allows");
	json_decref(rows);
	return err;
}
