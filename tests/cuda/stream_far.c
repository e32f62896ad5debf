/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The GPU's node has no memory left: blocks are on another node, and a line on stderr says so.
 * The node is one that this machine does not have. What sysfs and the kernel say of it is what
 * they say of a full one.
 */
#include <dlfcn.h>
#include <linux/mempolicy.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "xla_play.h"

#define NODE	1000U
#define WORD	(NODE / 64)
#define BIT	(1UL << NODE % 64)
#define BLOCK	(256 * 1024UL)
#define VALUES	20		/* 5 MiB, in regions of 2 MiB */
#define LINE	" MiB for GPU 0 are on another socket than the GPU, because the socket of node 1000 has too little memory;"


/* In the place of the C library's: with its sixth argument, no call has more. */
long syscall(long number, ...)
{
	static long (*real)(long number, ...);
	long a[6], result;
	va_list arguments;
	unsigned int i;

	va_start(arguments, number);
	for (i = 0; i < 6; i++)
		a[i] = va_arg(arguments, long);
	va_end(arguments);
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	/* A node that is only preferred, and is full, makes no difference. */
	if (number == SYS_mbind && a[2] == MPOL_PREFERRED && ((unsigned long *)a[3])[WORD] & BIT)
		return 0;
	result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	if (number == SYS_get_mempolicy && !result && a[4] == MPOL_F_MEMS_ALLOWED)
		((unsigned long *)a[1])[WORD] |= BIT;
	return result;
}

static void make_machine(void)
{
	device_is_at("0000:17:00.0", "1000");
	sysfs_has("mkdir -p sys/devices/system/node/node1000 && cd sys/devices/system/node && "
		  "echo `cat /sys/devices/system/node/has_memory || echo 0`,1000 >has_memory && "
		  "echo 'MemFree: 0 kB' >node1000/meminfo");
}

static unsigned int lines;

/* Puts all values and takes them back; how many lines stderr had. */
static void test_step(void)
{
	stderr_keep();
	ok(xla_put_step(&its, "far", VALUES, BLOCK, 1), "values are put: %s", its.xla.words);
	lines = stderr_lines(LINE);
	ok(xla_take_step(&its, NULL, VALUES, BLOCK) && xla_good(&its, VALUES, BLOCK, 1) == VALUES,
	   "and come back");
}

static void test_strict(void)
{
	stderr_keep();
	ok(!xla_put(&its.xla, "far", its.work, BLOCK, its.tokens),
	   "no value is put if other nodes are not allowed");
	ok(!stderr_lines(LINE), "nothing is on another node");
	ok(strstr(its.xla.words, "node 1000 has 0 B free, but 2.0 MiB are needed"), "the error says why: %s",
	   its.xla.words);
}

int main(void)
{
	const struct memory memory = { .ring_bytes = MIB, .grow_bytes = 2 * MIB };

	unsetenv("STANDIN_CUDA_BUS_IDS");
	unsetenv("ACTMEM_QUIET");
	xla_start(VALUES, BLOCK);
	xla_standin_or_skip();
	make_machine();
	setenv("ACTMEM_STRICT", "1", 1);
	xla_run(test_strict, memory);
	setenv("ACTMEM_ALLOW", "node", 1);
	xla_run(test_step, memory);
	ok(lines == 1, "one line says that memory is on another node");
	unsetenv("ACTMEM_ALLOW");
	unsetenv("ACTMEM_STRICT");
	xla_run(test_step, memory);
	ok(lines == 1, "a new store says so again");
	setenv("ACTMEM_QUIET", "1", 1);
	xla_run(test_step, memory);
	ok(!lines, "ACTMEM_QUIET=1 omits the line");
	sysfs_is_true();
	return xla_stop();
}
