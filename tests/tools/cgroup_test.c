// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* The memory cgroup as both versions show it, read from folders made here. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "machine/cgroup.h"
#include "tap.h"

static struct memory_cgroup cgroup;

static void put(const char *path, const char *format, ...)
{
	FILE *file = fopen(path, "w");
	va_list arguments;

	if (!file)
		tap_bail("%s: %m", path);
	va_start(arguments, format);
	vfprintf(file, format, arguments);
	va_end(arguments);
	fclose(file);
}

static bool reads(void)
{
	return !memory_cgroup_read(&cgroup, "cgroup", "mounts");
}

static void test_version_2(const char *here)
{
	mkdir("v2", 0755);
	mkdir("v2/job", 0755);
	mkdir("v2/job/step", 0755);
	put("v2/job/memory.max", "1000\n");
	put("v2/job/memory.current", "900\n");
	put("v2/job/step/memory.max", "max\n");
	put("v2/job/step/memory.current", "100\n");
	put("mounts", "cgroup2 %s/v2 cgroup2 rw 0 0\n", here);

	put("cgroup", "0::/job/step\n");
	ok(reads() && cgroup.version == 2 && !strcmp(cgroup.path, "/job/step") &&
	   cgroup.tightest.limit_bytes == 1000 && cgroup.tightest.used_bytes == 900,
	   "version 2: an ancestor's limit, and what is used of it");

	put("v2/job/step/memory.max", "150\n");
	ok(reads() && cgroup.tightest.limit_bytes == 150 && cgroup.tightest.used_bytes == 100,
	   "version 2: the limit with the least room left");

	put("v2/job/step/memory.max", "50\n");
	ok(reads() && cgroup.tightest.limit_bytes == 50 && cgroup.tightest.used_bytes == 100 &&
	   cgroup.tightest.available_bytes == 0,
	   "version 2: more used than allowed");

	put("v2/job/memory.stat", "anon 400\ninactive_file 100\nactive_file 350\n");
	put("v2/job/step/memory.max", "500\n");
	ok(reads() && cgroup.tightest.limit_bytes == 500 &&
	   cgroup.tightest.available_bytes == 400 &&
	   strstr(cgroup.tightest.file, "/v2/job/step/memory.max"),
	   "version 2: page cache can be given up, so the ancestor leaves more");

	put("v2/job/step/memory.max", "max\n");
	put("v2/job/memory.max", "max\n");
	ok(reads() && cgroup.tightest.limit_bytes == UINT64_MAX &&
	   cgroup.tightest.used_bytes == 100 &&
	   cgroup.tightest.available_bytes == UINT64_MAX && !*cgroup.tightest.file,
	   "version 2: no limit, and its own use");

	put("cgroup", "0::/\n");
	ok(reads() && cgroup.version == 2 && cgroup.tightest.limit_bytes == UINT64_MAX &&
	   cgroup.tightest.used_bytes == 0, "version 2: the root has no files");

	/* The mount is the container's own cgroup then. */
	put("v2/memory.max", "700\n");
	put("v2/memory.current", "7\n");
	put("cgroup", "0::/../elsewhere\n");
	ok(reads() && cgroup.tightest.limit_bytes == 700 && cgroup.tightest.used_bytes == 7,
	   "version 2: a path out of the namespace");

	put("cgroup", "0::/job/step\n");
	ok(reads() && cgroup.tightest.limit_bytes == 700 && cgroup.tightest.used_bytes == 7,
	   "version 2: the limit of the cgroup at the mount point");
}

static void test_version_1(const char *here)
{
	mkdir("v1 memory", 0755);
	mkdir("v1 memory/job", 0755);
	put("v1 memory/memory.limit_in_bytes", "9223372036854771712\n");
	put("v1 memory/memory.usage_in_bytes", "5000\n");
	put("v1 memory/job/memory.limit_in_bytes", "4096\n");
	put("v1 memory/job/memory.usage_in_bytes", "1024\n");
	put("mounts", "cgroup %s/cpu cgroup rw,cpu 0 0\n"
	    "cgroup2 %s/v2 cgroup2 rw 0 0\n"
	    "cgroup %s/v1\\040memory cgroup rw,memory 0 0\n", here, here, here);

	put("cgroup", "0::/job/step\n5:cpu,memory:/job\n1:name=systemd:/\n");
	ok(reads() && cgroup.version == 1 && !strcmp(cgroup.path, "/job") &&
	   cgroup.tightest.limit_bytes == 4096 && cgroup.tightest.used_bytes == 1024 &&
	   cgroup.tightest.available_bytes == 3072,
	   "version 1 beside version 2, and a blank in the mount point");

	put("cgroup", "5:memory:/\n");
	ok(reads() && cgroup.tightest.limit_bytes == UINT64_MAX &&
	   cgroup.tightest.used_bytes == 5000, "version 1: its largest number is no limit");

	put("cgroup", "5:memory:/docker/0123\n");
	ok(reads() && cgroup.tightest.used_bytes == 5000, "version 1: the host's path in a container");
}

static void test_none(void)
{
	put("cgroup", "1:name=systemd:/\n2:memory_pressure:/\n");
	ok(reads() && cgroup.version == 0, "no memory controller");
	put("cgroup", "0::/\n");
	put("mounts", "proc /proc proc rw 0 0\n");
	ok(reads() && cgroup.version == 0, "not mounted");
	put("cgroup", "garbage\n0:\n::\n\n");
	ok(reads() && cgroup.version == 0, "lines that are none");
	ok(memory_cgroup_read(&cgroup, "absent", "mounts") == -ENOENT, "no such file");
}

static void test_high(const char *here)
{
	struct memory_folder folder;
	struct cgroup_limit high;

	mkdir("high", 0755);
	mkdir("high/pod", 0755);
	mkdir("high/pod/job", 0755);
	put("mounts", "cgroup2 %s/high cgroup2 rw 0 0\n", here);
	put("cgroup", "0::/pod/job\n");
	put("high/pod/memory.high", "max\n");
	put("high/pod/memory.current", "1500\n");
	put("high/pod/memory.stat", "anon 1300\ninactive_file 200\nactive_file 0\n");
	put("high/pod/job/memory.high", "max\n");
	put("high/pod/job/memory.current", "1500\n");
	memory_folder_find(&folder, "cgroup", "mounts");
	ok(!memory_high_read(&high, &folder), "memory.high: none");
	put("high/pod/memory.high", "1000\n");
	put("cgroup", "0::/\n");
	ok(memory_high_read(&high, &folder) && high.limit_bytes == 1000 &&
	   high.used_bytes == 1300 && !high.available_bytes &&
	   strstr(high.file, "/high/pod/memory.high"),
	   "memory.high: an ancestor's, set later; the folder is the one that was found");
	memory_folder_find(&folder, "cgroup", "mounts");
	ok(!memory_high_read(&high, &folder), "memory.high: none after a move");
	put("cgroup", "5:memory:/pod/job\n0::/pod/job\n");
	put("mounts", "cgroup %s/high cgroup rw,memory 0 0\n", here);
	memory_folder_find(&folder, "cgroup", "mounts");
	ok(!memory_high_read(&high, &folder), "memory.high: version 1 has none");
}

static bool reads_hugetlb(struct cgroup_limit *limit)
{
	return hugetlb_limit_read(limit, 2 << 20, "cgroup", "mounts");
}

static void test_hugetlb(const char *here)
{
	struct cgroup_limit limit;

	mkdir("huge", 0755);
	mkdir("huge/pod", 0755);
	mkdir("huge/pod/job", 0755);
	put("cgroup", "0::/pod/job\n");
	put("mounts", "cgroup2 %s/huge cgroup2 rw 0 0\n", here);
	ok(!reads_hugetlb(&limit), "hugetlb: no files");
	put("huge/pod/job/hugetlb.2MB.max", "max\n");
	put("huge/pod/job/hugetlb.2MB.current", "0\n");
	put("huge/pod/hugetlb.1GB.max", "0\n");
	put("huge/pod/hugetlb.1GB.current", "0\n");
	ok(!reads_hugetlb(&limit), "hugetlb: no limit, and a limit on other pages");
	put("huge/pod/hugetlb.2MB.max", "6291456\n");
	put("huge/pod/hugetlb.2MB.current", "2097152\n");
	ok(reads_hugetlb(&limit) && limit.available_bytes == 4 << 20 &&
	   strstr(limit.file, "/huge/pod/hugetlb.2MB.max"), "hugetlb: an ancestor's limit");
	put("huge/pod/job/hugetlb.2MB.rsvd.max", "0\n");
	put("huge/pod/job/hugetlb.2MB.rsvd.current", "0\n");
	ok(reads_hugetlb(&limit) && !limit.available_bytes &&
	   strstr(limit.file, "/huge/pod/job/hugetlb.2MB.rsvd.max"), "hugetlb: reserved pages");

	put("cgroup", "7:hugetlb:/pod\n0::/pod/job\n");
	put("mounts", "cgroup2 %s/none cgroup2 rw 0 0\ncgroup %s/huge cgroup rw,hugetlb 0 0\n",
	    here, here);
	put("huge/pod/hugetlb.2MB.usage_in_bytes", "0\n");
	put("huge/pod/hugetlb.2MB.limit_in_bytes", "9223372036852678656\n");
	ok(!reads_hugetlb(&limit), "hugetlb, version 1: no limit");
	put("huge/pod/hugetlb.2MB.limit_in_bytes", "0\n");
	ok(reads_hugetlb(&limit) && !limit.limit_bytes &&
	   strstr(limit.file, "/huge/pod/hugetlb.2MB.limit_in_bytes"), "hugetlb, version 1: 0");
}

/* cgroup_test FOLDER: an empty one, to make the files in. */
int main(int argc, char **argv)
{
	if (argc != 2 || chdir(argv[1])) {
		fprintf(stderr, "usage: cgroup_test FOLDER\n");
		return 2;
	}
	test_version_2(argv[1]);
	test_version_1(argv[1]);
	test_none();
	test_high(argv[1]);
	test_hugetlb(argv[1]);
	return tap_end();
}
