/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"

struct actmem *open_or_bail(void)
{
	struct actmem *am;

	if (actmem_open(&am, NULL))
		tap_bail("actmem_open");
	printf("# %s\n", actmem_describe(am));
	return am;
}

struct actmem_region *region_or_bail(struct actmem *am, const char *name)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = LENGTH, .name = name,
	};
	struct actmem_region *region;

	if (actmem_region_create(am, &options, &region))
		tap_bail("actmem_region_create of %s", name);
	return region;
}

int create_region(struct actmem *am, uint64_t length, uint32_t flags,
		  struct actmem_region **region)
{
	struct actmem_region_options options = {
		.size = sizeof(options), .length = length, .flags = flags,
	};

	return actmem_region_create(am, &options, region);
}

enum actmem_pages pages_wanted(void)
{
	struct actmem_options options = { .size = sizeof(options) };

	if (actmem_options_from_environment(&options))
		tap_bail("actmem_options_from_environment");
	return options.pages ? options.pages : ACTMEM_PAGES_2M;
}

uint64_t page_bytes_wanted(void)
{
	return pages_wanted() == ACTMEM_PAGES_4K ? 4096 : 2 * MIB;
}

bool on_driver(struct actmem *am)
{
	return actmem_get_backend(am) == ACTMEM_BACKEND_DRIVER;
}

static unsigned int count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned int count = 0;

	if (!directory)
		tap_bail("/proc/self/fd");
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static unsigned int count_mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned int count = 0;
	char line[4096];

	if (!file)
		tap_bail("/proc/self/maps");
	while (fgets(line, sizeof(line), file))
		if (strstr(line, "actmem"))
			count++;
	fclose(file);
	return count;
}

struct usage usage_now(void)
{
	return (struct usage){ count_descriptors(), count_mappings() };
}

void same_usage(struct usage before)
{
	struct usage now = usage_now();

	ok(now.descriptors == before.descriptors, "no descriptor is left (%u, before %u)",
	   now.descriptors, before.descriptors);
	ok(now.mappings == before.mappings, "no mapping is left (%u, before %u)",
	   now.mappings, before.mappings);
}

struct actmem_counters counters_of(struct actmem *am)
{
	struct actmem_counters counters = { .size = sizeof(counters) };

	if (actmem_get_counters(am, &counters))
		tap_bail("actmem_get_counters");
	return counters;
}

uint64_t fallbacks(struct actmem *am)
{
	return counters_of(am).fallbacks_total;
}

void counters_are_zero(struct actmem *am)
{
	struct actmem_counters counters = counters_of(am);

	ok(!counters.regions && !counters.region_bytes && !counters.regions_mapped &&
	   !counters.heaps && !counters.blocks && !counters.block_bytes &&
	   !counters.stores && !counters.spilled_bytes,
	   "the counters returned to 0");
}

int end_tests(struct actmem *am, struct usage before)
{
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	return tap_end();
}

int run_tests(void (**tests)(struct actmem *am))
{
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();

	for (; *tests; tests++)
		(*tests)(am);
	return end_tests(am, before);
}

const char *mount_folder;

int run_mounted_tests(void (**tests)(struct actmem *am))
{
	struct usage before;
	struct actmem *am;

	skip_without_root();
	before = usage_now();
	am = open_or_bail();
	mount_folder = mount_own(am);
	for (; *tests; tests++)
		(*tests)(am);
	counters_are_zero(am);
	returns(actmem_close(am), 0);
	same_usage(before);
	unmount_own(mount_folder);
	return tap_end();
}

pthread_t start_thread(void *(*body)(void *context), void *context)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, body, context))
		tap_bail("pthread_create");
	return thread;
}

bool lower_memlock(uint64_t bytes)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	struct rlimit limit = { bytes, bytes };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) || syscall(SYS_capget, &header, data))
		return false;
	data[0].effective &= ~(1U << CAP_IPC_LOCK);
	return !syscall(SYS_capset, &header, data);
}

/* Hugetlb pages cannot be swapped, and so need no lock. */
bool memlock_counts(struct actmem *am)
{
	return on_driver(am) || pages_wanted() != ACTMEM_PAGES_2M;
}

/* Sets of a line such as "0,2-3"; the tests do not trust the library's parser. */
static struct actmem_nodes parse_nodes(const char *text)
{
	struct actmem_nodes nodes = { { 0 } };
	char *end;

	while (*text >= '0' && *text <= '9') {
		unsigned long first = strtoul(text, &end, 10), last = first;

		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < ACTMEM_NODES_MAX; first++)
			add_node(&nodes, (unsigned int)first);
		text = *end == ',' ? end + 1 : end;
	}
	return nodes;
}

bool all_bytes(const void *memory, uint64_t length, unsigned char byte)
{
	const unsigned char *bytes = memory;

	return bytes[0] == byte && !memcmp(bytes, bytes + 1, length - 1);
}

struct actmem_nodes usable_nodes(void)
{
	struct actmem_nodes memory = { { 1 } }, allowed = { { 1 } };
	FILE *file = fopen("/sys/devices/system/node/has_memory", "re");
	char line[4096];
	unsigned int i;

	if (file && fgets(line, sizeof(line), file))
		memory = parse_nodes(line);
	if (file)
		fclose(file);
	file = fopen("/proc/self/status", "re");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, "Mems_allowed_list:\t", 19))
			allowed = parse_nodes(line + 19);
	if (file)
		fclose(file);
	for (i = 0; i < ACTMEM_NODES_MAX / 64; i++)
		memory.word[i] &= allowed.word[i];
	return memory;
}

bool has_node(const struct actmem_nodes *nodes, unsigned int node)
{
	return nodes->word[node / 64] >> (node % 64) & 1;
}

void add_node(struct actmem_nodes *nodes, unsigned int node)
{
	nodes->word[node / 64] |= 1ULL << (node % 64);
}

uint64_t node_total(unsigned int node)
{
	char path[128], line[256];
	uint64_t kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/meminfo", node);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strstr(line, "MemTotal:"))
			kib = strtoull(strstr(line, ":") + 1, NULL, 10);
	if (file)
		fclose(file);
	return (kib * 1024 + 2 * MIB) / (2 * MIB) * (2 * MIB);
}

int node_of(void *address)
{
	int status = -EIO;

	if (syscall(SYS_move_pages, 0, 1UL, &address, NULL, &status, 0))
		return -errno;
	return status;
}

bool child_passed(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return false;
	return WIFEXITED(status) && !WEXITSTATUS(status);
}

bool in_child(bool (*body)(void *context), void *context)
{
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child < 0)
		tap_bail("fork: %s", strerror(errno));
	if (!child) {
		bool passed = body(context);

		if (!passed)
			printf("# in the child: %s\n", actmem_error());
		fflush(stdout);
		_exit(!passed);
	}
	return child_passed(child);
}

bool refused(int returned)
{
	return returned == -EOWNERDEAD && strstr(actmem_error(), "fork");
}

pid_t begin_child(void (*body)(void *context, int begun), void *context)
{
	int ends[2];
	pid_t child;
	char byte;

	fflush(stdout);
	if (pipe2(ends, O_CLOEXEC))
		tap_bail("pipe: %s", strerror(errno));
	child = fork();
	if (child < 0)
		tap_bail("fork: %s", strerror(errno));
	if (!child) {
		close(ends[0]);
		body(context, ends[1]);
		printf("# in the child: %s\n", actmem_error());
		fflush(stdout);
		_exit(1);
	}
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1)
		tap_bail("the child did not begin");
	close(ends[0]);
	return child;
}

bool kill_and_wait(pid_t child)
{
	int status;

	kill(child, SIGKILL);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			tap_bail("waitpid: %s", strerror(errno));
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

struct holding {
	bool (*hold)(void *context);
	void *context;
};

static void hold_until_killed(void *context, int begun)
{
	struct holding *holding = context;

	if (holding->hold(holding->context) && write(begun, "", 1) == 1)
		pause();
}

pid_t holder(bool (*hold)(void *context), void *context)
{
	struct holding holding = { hold, context };

	return begin_child(hold_until_killed, &holding);
}

char *memory_or_bail(struct actmem_region *region)
{
	void *memory;

	if (actmem_region_map(region, &memory))
		tap_bail("actmem_region_map");
	return memory;
}

struct actmem_region_info info_or_bail(struct actmem_region *region)
{
	static uint64_t node_bytes[ACTMEM_NODES_MAX];
	struct actmem_region_info info = { .size = sizeof(info) };

	info.node_bytes = node_bytes;
	info.node_count = ACTMEM_NODES_MAX;
	if (actmem_region_get_info(region, &info))
		tap_bail("actmem_region_get_info");
	return info;
}

uint64_t bytes_on_nodes(const struct actmem_region_info *info)
{
	uint64_t bytes = 0;
	uint32_t node;

	for (node = 0; node < info->node_count; node++)
		bytes += info->node_bytes[node];
	return bytes;
}

unsigned int count_files(const char *folder)
{
	DIR *directory = opendir(folder);
	struct dirent *entry;
	unsigned int count = 0;

	while (directory && (entry = readdir(directory)))
		count += entry->d_name[0] != '.';
	closedir(directory);
	return count;
}

void skip_without_root(void)
{
	if (!geteuid())
		return;
	tap_skip("needs root, to mount a file system");
	exit(tap_end());
}

const char *mount_own(struct actmem *am)
{
	static char folder[] = "/tmp/actmem-test-XXXXXX";
	const char *type = "tmpfs", *options = "mode=0700,size=40M";

	if (on_driver(am)) {
		type = "actmem";
	} else if (pages_wanted() == ACTMEM_PAGES_2M) {
		type = "hugetlbfs";
		options = "mode=0700,size=40M,pagesize=2M";
	} else if (pages_wanted() == ACTMEM_PAGES_THP) {
		options = "mode=0700,size=40M,huge=advise";
	}
	if (!mkdtemp(folder))
		tap_bail("%s: %s", folder, strerror(errno));
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		tap_bail("unshare: %s", strerror(errno));
	if (mount("none", folder, type, 0, options))
		tap_bail("mount -t %s -o %s: %s", type, options, strerror(errno));
	return folder;
}

void unmount_own(const char *folder)
{
	struct statfs files = { 0 };

	if (statfs(folder, &files))
		tap_bail("%s: %s", folder, strerror(errno));
	ok(files.f_blocks && files.f_bfree == files.f_blocks,
	   "all of size= is free again (%llu of %llu)", (unsigned long long)files.f_bfree,
	   (unsigned long long)files.f_blocks);
	returns(umount(folder), 0);
	returns(rmdir(folder), 0);
}

bool region_is_listed(const char *name)
{
	struct actmem_region_info *regions;
	bool found = false;
	size_t count, i;

	if (actmem_region_list(&regions, &count))
		tap_bail("actmem_region_list");
	for (i = 0; i < count; i++)
		found |= !strcmp(regions[i].name, name);
	free(regions);
	return found;
}
