/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * refusal ACTMEM: what the library says where the limit of a cgroup refuses memory that a
 * pool has: the node, the numbers and the file; and that it can be had once the limit is
 * raised; and what the command tells of the limit.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actmem.h"
#include "tap.h"

#define ROOT	"/tmp/cgroup"
#define JOB	ROOT "/job"
#define STEP	JOB "/step"
#define POOL	"/sys/class/misc/actmem/node1/pool_bytes"
#define LENGTH	(48ull << 20)

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		tap_bail("%s: %m", path);
	close(fd);
}

static void make_cgroups(void)
{
	mkdir("/tmp", 0755);
	mkdir(ROOT, 0755);
	if (mount("cgroup", ROOT, "cgroup2", 0, NULL))
		tap_bail("%s: %m", ROOT);
	put(ROOT "/cgroup.subtree_control", "+dmem");
	mkdir(JOB, 0755);
	put(JOB "/cgroup.subtree_control", "+dmem");
	mkdir(STEP, 0755);
	put(STEP "/cgroup.procs", "0");
}

/* Of the limit that leaves least, which is all used. */
static void test_command(const char *actmem)
{
	char command[256], line[256];
	bool is_told = false;
	FILE *told;

	snprintf(command, sizeof(command), "%s limit", actmem);
	told = popen(command, "r");
	while (told && fgets(line, sizeof(line), told))
		is_told |= strstr(line, "this cgroup, node 1") && strstr(line, " 48M  48M ") &&
			   strstr(line, JOB "/dmem.max");
	ok(told && !pclose(told) && is_told, "the command tells the limit and its use");
}

static void test_refusals(struct actmem *am, const char *actmem)
{
	struct actmem_region_options options = { .size = sizeof(options), .length = LENGTH };
	struct actmem_region *region;

	options.nodes.word[0] = 2;
	put(JOB "/dmem.max", "actmem/node1 16M");
	returns(actmem_region_create(am, &options, &region), -EDQUOT);
	says("cgroup's limit on node 1 has 16.0 MiB left, but 48.0 MiB are needed");
	says("raise actmem/node1 in " JOB "/dmem.max");
	says("0 B of the limit of 16.0 MiB are in use");

	put(STEP "/dmem.max", "actmem/node1 8M");
	returns(actmem_region_create(am, &options, &region), -EDQUOT);
	says("has 8.0 MiB left, but 48.0 MiB are needed");
	says("raise actmem/node1 in " STEP "/dmem.max");

	put(STEP "/dmem.max", "actmem/node1 max");
	put(JOB "/dmem.max", "actmem/node1 48M");
	returns(actmem_region_create(am, &options, &region), 0);
	test_command(actmem);
	returns(actmem_region_close(region), 0);
}

int main(int argc, char **argv)
{
	struct actmem *am;

	if (argc != 2)
		tap_bail("usage: refusal ACTMEM");
	make_cgroups();
	put(POOL, "64M");
	if (actmem_open(&am, NULL))
		tap_bail("%s", actmem_error());
	test_refusals(am, argv[1]);
	returns(actmem_close(am), 0);
	put(POOL, "0");
	put(ROOT "/cgroup.procs", "0");
	ok(!rmdir(STEP) && !rmdir(JOB) && !umount(ROOT), "the cgroups can be removed");
	return tap_end();
}
