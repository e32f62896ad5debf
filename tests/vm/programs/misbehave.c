// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Does one thing wrong, for tests/vm/selftest to see that it is noticed.
 *
 *	misbehave WAY [VALUE]
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNTERS "/sys/class/misc/actmem/node0"

static int fail(const char *what)
{
	perror(what);
	return 99;
}

static int write_to(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return fail(path);
	close(fd);
	return 0;
}

static void __attribute__((noreturn)) hang(void)
{
	for (;;)
		pause();
}

/* A counter of the driver that does not return to 0. */
static int leave_counter(void)
{
	if (mount("tmpfs", COUNTERS, "tmpfs", 0, NULL) < 0)
		return fail(COUNTERS);
	return write_to(COUNTERS "/region_bytes", "2097152\n");
}

/* The counters as they were: the mount that hid them is taken away. */
static int restore_counters(void)
{
	return umount(COUNTERS) < 0 ? fail(COUNTERS) : 0;
}

static int lose_memory(void)
{
	int fd = open("/tmp/lost", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	return posix_fallocate(fd, 0, 64 << 20) ? fail("/tmp/lost") : 0;
}

/* A process that would go on after the program that began it. */
static int leave_child(void)
{
	if (fork() == 0) {
		setsid();
		hang();
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "";
	const char *value = argc > 2 ? argv[2] : "";

	printf("misbehaving: %s %s\n", way, value);
	fflush(stdout);
	if (!strcmp(way, "exit"))
		return atoi(value);
	if (!strcmp(way, "log"))
		return write_to("/dev/kmsg", value);
	if (!strcmp(way, "sysrq"))
		return write_to("/proc/sysrq-trigger", value);
	if (!strcmp(way, "hang"))
		hang();
	if (!strcmp(way, "abort"))
		abort();
	if (!strcmp(way, "counter"))
		return leave_counter();
	if (!strcmp(way, "no-counter"))
		return restore_counters();
	if (!strcmp(way, "lose"))
		return lose_memory();
	if (!strcmp(way, "child"))
		return leave_child();
	if (!strcmp(way, "unload"))
		return syscall(SYS_delete_module, "actmem", O_NONBLOCK) ? fail(way) : 0;
	if (!strcmp(way, "poweroff"))
		return reboot(RB_POWER_OFF);
	if (!strcmp(way, "halt"))
		return reboot(RB_HALT_SYSTEM);
	fprintf(stderr, "misbehave: no way '%s'\n", way);
	return 2;
}
