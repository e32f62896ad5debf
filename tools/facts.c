// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Reads the resources of this machine, and the limits of this process, from the kernel. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "actmem.h"
#include "facts.h"
#include "machine/machine.h"
#include "settings.h"
#include "table.h"
#include "../uapi/actmem.h"

#define DEVICE		"/dev/actmem"
#define MODULE_SYSFS	"/sys/module/actmem"
#define NODES_SYSFS	"/sys/devices/system/node"
#define THP_SYSFS	"/sys/kernel/mm/transparent_hugepage"

static json_t *optional_text(int err, const char *text)
{
	return err ? json_null() : text_to_json(text);
}

static json_t *optional_number(int err, uint64_t number)
{
	return err ? json_null() : limit_to_json(number);
}

static json_t *driver_total(const char *name)
{
	uint64_t number = 0;
	int err = sysfile_value(&number, DRIVER_SYSFS "/%s", name);

	return optional_number(err, number);
}

static json_t *driver_node_total(int node, const char *name)
{
	uint64_t number = 0;
	int err = sysfile_value(&number, DRIVER_SYSFS "/node%d/%s", node, name);

	return optional_number(err, number);
}

/* Returns the version of the loaded module, such as "0.1.0". */
static json_t *driver_version(void)
{
	char version[64];
	int err = sysfile_read(MODULE_SYSFS "/version", version, sizeof(version));

	if (!err)
		version[strcspn(version, "\n")] = '\0';
	return optional_text(err, version);
}

/*
 * Queries the driver. Returns 0 even if the driver's ABI is incompatible, because an incompatible
 * driver also reports its versions.
 */
static int ask_driver(struct actmem_ioctl_query *query)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC);
	int err = 0;

	if (fd < 0)
		return -errno;
	*query = (struct actmem_ioctl_query){
		.size = sizeof(*query),
		.abi = ACTMEM_ABI_VERSION,
		.abi_oldest = ACTMEM_ABI_OLDEST,
	};
	if (ioctl(fd, ACTMEM_IOC_QUERY, query) && errno != EPROTONOSUPPORT)
		err = -errno;
	close(fd);
	return err;
}

json_t *facts_library(void)
{
	return json_pack("{s:s, s:i, s:i}", "version", actmem_version(), "abi", ACTMEM_ABI_VERSION,
			 "abi_oldest", ACTMEM_ABI_OLDEST);
}

json_t *facts_driver(void)
{
	struct actmem_ioctl_query query = { 0 };
	int err = ask_driver(&query);

	uint64_t limit;
	json_t *driver;

	driver = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			   "device", DEVICE,
			   "error", err ? json_string(strerror(-err)) : json_null(),
			   "version", driver_version(),
			   "abi", optional_number(err, query.abi),
			   "abi_oldest", optional_number(err, query.abi_oldest),
			   "cgroup_limits", err ? json_null() :
				json_boolean(query.features & ACTMEM_FEATURE_DMEM),
			   "regions", driver_total("regions"),
			   "lingering_regions", driver_total("lingering_regions"));
	if (driver && !sysfile_value(&limit, DRIVER_SYSFS "/user_limit_bytes") &&
	    json_object_set_new(driver, "user_limit_bytes", limit_to_json(limit))) {
		json_decref(driver);
		return NULL;
	}
	return driver;
}

static bool add_mount(void *context, const struct mount *mount)
{
	json_t **mounts = context;
	struct statfs files;
	bool limited;
	char size[32];
	uint64_t unit;

	if (!*mounts || strcmp(mount->type, "actmem") || statfs(mount->point, &files) ||
	    files.f_type != ACTMEM_SUPER_MAGIC)
		return false;
	/* Without size=, statfs() reports the memory of the mount's nodes as the size. */
	limited = mount_option(mount, "size=", size, sizeof(size));
	unit = (uint64_t)files.f_bsize;
	*mounts = append_item(*mounts, json_pack(
		"{s:o, s:o, s:o}", "path", text_to_json(mount->point),
		"size_bytes", limited ? limit_to_json((uint64_t)files.f_blocks * unit) :
					json_null(),
		"used_bytes", limit_to_json(((uint64_t)files.f_blocks -
					     (uint64_t)files.f_bfree) * unit)));
	return false;
}

json_t *facts_mounts(void)
{
	json_t *mounts = json_array();

	mounts_find(add_mount, &mounts);
	return mounts;
}

json_t *facts_io_uring(void)
{
	uint64_t disabled = 0;
	int disabled_err = sysfile_value(&disabled, "/proc/sys/kernel/io_uring_disabled");
	bool usable;

	/*
	 * The kernel checks whether io_uring is allowed before it reads the parameters. EFAULT, for
	 * the NULL pointer, therefore means that io_uring can be used.
	 */
	syscall(SYS_io_uring_setup, 1, NULL);
	usable = errno == EFAULT;
	return json_pack("{s:o, s:o}",
			 "error", usable ? json_null() : json_string(strerror(errno)),
			 "disabled", optional_number(disabled_err, disabled));
}

json_t *facts_thp(void)
{
	char enabled[32], shmem_enabled[32];
	int enabled_err = sysfile_choice(enabled, sizeof(enabled), THP_SYSFS "/enabled");
	int shmem_err = sysfile_choice(shmem_enabled, sizeof(shmem_enabled),
					THP_SYSFS "/shmem_enabled");

	return json_pack("{s:o, s:o}",
			 "enabled", optional_text(enabled_err, enabled),
			 "shmem_enabled", optional_text(shmem_err, shmem_enabled));
}

json_t *facts_memlock(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return json_null();
	/* RLIM_INFINITY is UINT64_MAX, which limit_to_json() takes as no limit. */
	return json_pack("{s:o, s:o}",
			 "soft_bytes", limit_to_json(limit.rlim_cur),
			 "hard_bytes", limit_to_json(limit.rlim_max));
}

json_t *facts_memory_cgroup(void)
{
	struct memory_cgroup cgroup;

	if (memory_cgroup_read(&cgroup, "/proc/self/cgroup", "/proc/self/mounts") ||
	    !cgroup.version)
		return json_null();
	return json_pack("{s:i, s:o, s:o, s:I}",
			 "version", cgroup.version,
			 "path", text_to_json(cgroup.path),
			 "limit_bytes", limit_to_json(cgroup.tightest.limit_bytes),
			 "used_bytes", (json_int_t)cgroup.tightest.used_bytes);
}

/*
 * Finds a value in /proc/meminfo, or in a node's meminfo, where "Node 0 " or similar precedes each
 * label.
 */
static json_t *meminfo_bytes(const char *meminfo, const char *label)
{
	const char *line = strstr(meminfo, label);
	uint64_t kilobytes;

	if (!line || sscanf(line + strlen(label), "%" SCNu64, &kilobytes) != 1)
		return json_null();
	return json_integer((json_int_t)(kilobytes * 1024));
}

json_t *facts_memory(void)
{
	char meminfo[8192];
	int err = sysfile_read("/proc/meminfo", meminfo, sizeof(meminfo));

	return json_pack("{s:o, s:o}",
			 "total_bytes", err ? json_null() : meminfo_bytes(meminfo, "MemTotal:"),
			 "available_bytes",
			 err ? json_null() : meminfo_bytes(meminfo, "MemAvailable:"));
}

static json_t *pool_to_json(const char *folder, const char *size)
{
	uint64_t total, available;

	if (sysfile_value(&total, "%s/hugepages-%s/nr_hugepages", folder, size) ||
	    sysfile_value(&available, "%s/hugepages-%s/free_hugepages", folder, size))
		return json_null();
	return json_pack("{s:I, s:I}", "total", (json_int_t)total, "free", (json_int_t)available);
}

static json_t *warm_pool_to_json(int node)
{
	uint64_t total, ready, lent;

	if (sysfile_value(&total, DRIVER_SYSFS "/node%d/pool_bytes", node) ||
	    sysfile_value(&ready, DRIVER_SYSFS "/node%d/pool_free_bytes", node) ||
	    sysfile_value(&lent, DRIVER_SYSFS "/node%d/pool_lent_bytes", node))
		return json_null();
	return json_pack("{s:I, s:I, s:I}", "total_bytes", (json_int_t)total,
			 "free_bytes", (json_int_t)ready, "lent_bytes", (json_int_t)lent);
}

static json_t *node_to_json(int node, const char *meminfo, const char *pools)
{
	return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "node", node,
			 "total_bytes", meminfo_bytes(meminfo, "MemTotal:"),
			 "free_bytes", meminfo_bytes(meminfo, "MemFree:"),
			 "huge_2M", pool_to_json(pools, "2048kB"),
			 "huge_1G", pool_to_json(pools, "1048576kB"),
			 "pool", warm_pool_to_json(node),
			 "region_bytes", driver_node_total(node, "region_bytes"),
			 "lingering_bytes", driver_node_total(node, "lingering_bytes"),
			 "limit_bytes", driver_node_total(node, "limit_bytes"),
			 "poisoned_bytes", driver_node_total(node, "poisoned_bytes"));
}

json_t *facts_nodes(void)
{
	json_t *nodes = json_array();
	char meminfo[8192];
	int node;

	for (node = 0; nodes && node < ACTMEM_NODES_MAX; node++) {
		char path[64];

		snprintf(path, sizeof(path), NODES_SYSFS "/node%d/meminfo", node);
		if (sysfile_read(path, meminfo, sizeof(meminfo)))
			continue;
		snprintf(path, sizeof(path), NODES_SYSFS "/node%d/hugepages", node);
		nodes = append_item(nodes, node_to_json(node, meminfo, path));
	}
	/* A kernel without NUMA has no folder for its only node. */
	if (nodes && !json_array_size(nodes) &&
	    !sysfile_read("/proc/meminfo", meminfo, sizeof(meminfo)))
		nodes = append_item(nodes, node_to_json(0, meminfo, "/sys/kernel/mm/hugepages"));
	return nodes;
}

int driver_missing(void)
{
	struct actmem_options options;
	struct actmem *am;
	int err;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_DRIVER;
	err = actmem_open(&am, &options);
	if (!err)
		actmem_close(am);
	return err == -ENOENT || err == -ENXIO ? 0 : err;
}

bool driver_lacks_device(void)
{
	return !access(DRIVER_SYSFS, F_OK) && access(DEVICE, F_OK) && errno == ENOENT;
}
