// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Process 1 of the machine that tests/vm/run boots.
 *
 * Reads /vm/config, loads modules, runs programs one after the other, unloads
 * actmem and powers off. ttyS0 is the kernel's console, the programs write to
 * ttyS1, and on ttyS2 this process says what happened, a line each:
 *
 *	booted
 *	begin N
 *	end N exit|signal|timeout|stuck|error VALUE
 *	counter N VALUE PATH		a counter that was not 0 after program N
 *	unload ERRNO			0: the module went away
 *	lost KIB			memory that was free or known of before and is not now
 *	tainted BITS
 *	leaks COUNT			objects that kmemleak found
 *	pages COUNT			pages that modules have not given back
 *	lockdep 0|1			0: lockdep found something and turned off
 *	done TOKEN			nothing of the above is missing
 *
 * The three before the last one are missing where the kernel cannot tell.
 * Nothing but the last line says that all went well, and only the host, who
 * chose the token, can know it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "init.h"

#define ARGS_MAX	64
#define SETTLE_SECONDS	10
#define LOST_KIB_SETTLED	1792	/* below LOST_KIB of verdict.py */
#define DEVICE_FOLDER	"/sys/class/misc/actmem"
#define NODES_MAX	64

#define SYSLOG_ACTION_READ_ALL		3
#define SYSLOG_ACTION_CONSOLE_LEVEL	8

static int report_fd = -1;
static int output_fd = -1;
static int kmsg_fd = -1;
static int timeout_seconds = 60;
static int announce;
/* Working folder of programs that run among the host's files, else NULL. */
static char *host_folder;

void report(const char *format, ...)
{
	char line[512];
	va_list args;
	int length;

	va_start(args, format);
	length = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (length >= (int)sizeof(line) - 1)
		length = sizeof(line) - 2;
	line[length++] = '\n';
	if (write(report_fd, line, length) == length)
		tcdrain(report_fd);
}

/* Not by dprintf(), which seeks first, which /dev/kmsg refuses. */
void log_kernel(const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	if (write(kmsg_fd, text, strlen(text)) < 0)
		report("error cannot write to /dev/kmsg: %s", strerror(errno));
}

static void nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
}

static time_t seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

static int open_serial(const char *path)
{
	struct termios mode;
	int fd = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 || tcgetattr(fd, &mode) < 0)
		return -1;
	cfmakeraw(&mode);
	mode.c_cflag |= CLOCAL;
	cfsetspeed(&mode, B115200);
	tcsetattr(fd, TCSANOW, &mode);
	return fd;
}

/* Reads what there is of a small file; "" where there is none. */
static char *slurp(const char *path)
{
	static char text[1 << 18];
	ssize_t length = 0, got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	while (fd >= 0 && length < (ssize_t)sizeof(text) - 1) {
		got = read(fd, text + length, sizeof(text) - 1 - length);
		if (got <= 0)
			break;
		length += got;
	}
	if (fd >= 0)
		close(fd);
	text[length] = '\0';
	return text;
}

void spill(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		log_kernel("actmem-vm: %s: %s\n", path, strerror(errno));
	close(fd);
}

/* The boot was quiet, to be quick; from here on all messages are wanted. */
static void show_kernel_log(void)
{
	static char text[1 << 20];
	int length = klogctl(SYSLOG_ACTION_READ_ALL, text, sizeof(text));
	int fd = open("/dev/console", O_WRONLY | O_NOCTTY | O_CLOEXEC);
	int done = 0, got;

	while (fd >= 0 && done < length) {
		got = write(fd, text + done, length - done);
		if (got <= 0)
			break;
		done += got;
	}
	if (fd >= 0) {
		tcdrain(fd);
		close(fd);
	}
	klogctl(SYSLOG_ACTION_CONSOLE_LEVEL, NULL, 8);
}

static void mount_all(void)
{
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mkdir("/tmp", 01777);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	/* Its default is taken, for good, once anybody traces, be it elsewhere. */
	spill("/sys/kernel/tracing/buffer_size_kb", "4");
	mkdir("/dev/shm", 01777);
	mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777");
	mkdir("/dev/pts", 0755);
	mount("devpts", "/dev/pts", "devpts", 0, NULL);
	if (symlink("/proc/self/fd", "/dev/fd"))
		report("error cannot make /dev/fd: %s", strerror(errno));
}

/* The host's files below /host, with this machine's devices and processes. */
static void mount_host(void)
{
	static const char *const own[] = { "/proc", "/sys", "/dev" };
	char target[16];
	size_t i;

	mkdir("/host", 0755);
	if (mount("host", "/host", "9p", MS_RDONLY,
		  "trans=virtio,version=9p2000.L,msize=512000,cache=loose"))
		report("error cannot mount the host's files: %s", strerror(errno));
	for (i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
		snprintf(target, sizeof(target), "/host%s", own[i]);
		if (mount(own[i], target, NULL, MS_BIND | MS_REC, NULL))
			report("error cannot mount %s: %s", target, strerror(errno));
	}
}

/* @line: path of the module, then its parameters. */
static void load_module(char *line)
{
	char *parameters = strchr(line, ' ');
	int fd;

	if (parameters)
		*parameters++ = '\0';
	fd = open(line, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || syscall(SYS_finit_module, fd, parameters ? parameters : "", 0) < 0)
		report("error cannot load %s: %s", line, strerror(errno));
	if (fd >= 0)
		close(fd);
}

/* A line of /proc/meminfo, 0 if there is none. */
static long meminfo_kib(const char *meminfo, const char *name)
{
	const char *line = strstr(meminfo, name);

	return line ? atol(line + strlen(name)) : 0;
}

/*
 * The percpu allocator keeps a chunk at hand, with a table of 4 MiB of who pays for it,
 * from vmalloc. "Percpu:" counts the pages of chunks alone.
 */
static long percpu_tables_kib(void)
{
	long pages = 0, here;
	char *line, *count;

	for (line = strtok(slurp("/proc/vmallocinfo"), "\n"); line; line = strtok(NULL, "\n")) {
		count = strstr(line, " pages=");
		if (strstr(line, " pcpu_") && count && sscanf(count, " pages=%ld", &here) == 1)
			pages += here;
	}
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What the kernel has taken for itself and knows what for. */
static long kernel_kib(void)
{
	long tables = percpu_tables_kib();
	const char *meminfo = slurp("/proc/meminfo");

	return tables + meminfo_kib(meminfo, "\nSlab:") +
	       meminfo_kib(meminfo, "\nKernelStack:") + meminfo_kib(meminfo, "\nPageTables:") +
	       meminfo_kib(meminfo, "\nPercpu:");
}

/*
 * Free memory, the pages that each processor keeps at hand included, which may
 * be huge ones; and what the kernel knows that it has.
 */
static long known_kib(void)
{
	long pages = 0, here = 0;
	char *line;

	spill("/proc/sys/vm/drop_caches", "3\n");
	for (line = strtok(slurp("/proc/zoneinfo"), "\n"); line; line = strtok(NULL, "\n"))
		if (sscanf(line, " nr_free_pages %ld", &here) == 1 ||
		    sscanf(line, " count: %ld", &here) == 1)
			pages += here;
	return pages * (sysconf(_SC_PAGESIZE) / 1024) + kernel_kib();
}

/*
 * What tests have had reported as broken is not to be used any more: bytes of huge
 * pages. A module that has been loaded anew begins from 0; so this is to be called
 * after each program.
 */
static long poisoned_bytes(void)
{
	static long before, latest;
	char path[512];
	long sum = 0;
	int node;

	for (node = 0; node < NODES_MAX; node++) {
		snprintf(path, sizeof(path), DEVICE_FOLDER "/node%d/poisoned_bytes", node);
		if (!access(path, R_OK))
			sum += atol(slurp(path));
	}
	if (sum < latest)
		before += latest;
	latest = sum;
	return before + sum;
}

/*
 * Reports the files below the device's @path that hold a number other than 0,
 * as program @number's; only counts them if @number is negative.
 */
static int check_counters(const char *path, int number)
{
	struct dirent *entry;
	struct stat status;
	char child[512];
	int wrong = 0;
	DIR *directory = opendir(path);

	if (!directory)
		return 0;
	while ((entry = readdir(directory))) {
		/* Those of DMA and of broken memory only ever rise. */
		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, "dev") ||
		    !strncmp(entry->d_name, "dma_", 4) ||
		    !strcmp(entry->d_name, "poisoned_bytes") ||
		    !strcmp(entry->d_name, "uevent") || !strcmp(entry->d_name, "power"))
			continue;
		snprintf(child, sizeof(child), "%.240s/%.240s", path, entry->d_name);
		if (lstat(child, &status) < 0)
			continue;
		if (S_ISDIR(status.st_mode)) {
			wrong += check_counters(child, number);
		} else if (S_ISREG(status.st_mode) && strtoull(slurp(child), NULL, 0)) {
			wrong++;
			if (number >= 0)
				report("counter %d %llu %s", number,
				       strtoull(slurp(child), NULL, 0), child);
		}
	}
	closedir(directory);
	return wrong;
}

/* Pins and unmappings in flight may take a moment to be let go of. */
static void settle_counters(int number)
{
	time_t end = seconds() + SETTLE_SECONDS;

	while (check_counters(DEVICE_FOLDER, -1) && seconds() < end)
		nap();
	check_counters(DEVICE_FOLDER, number);
}

/* Waits until @pid or, if it is -1, every process has ended. */
static int reap(pid_t pid, int *status, int limit)
{
	time_t end = seconds() + limit;
	int one;
	pid_t got;

	while (seconds() < end) {
		got = waitpid(-1, &one, WNOHANG);
		if (got == pid && pid > 0) {
			*status = one;
			return 0;
		}
		if (got < 0 && errno == ECHILD)
			return pid > 0 ? -1 : 0;
		if (got <= 0)
			nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
	}
	return -1;
}

static void run_program(int number, char **argv)
{
	int status, stuck;
	char *name = strrchr(argv[0], '/');
	pid_t pid;

	name = name ? name + 1 : argv[0];
	log_kernel("actmem-vm: begin %d %s\n", number, name);
	if (announce)
		dprintf(output_fd, "# %s\n", name);
	report("begin %d", number);
	pid = fork();
	if (pid == 0) {
		int null_fd = open("/dev/null", O_RDONLY);

		setsid();
		dup2(null_fd, STDIN_FILENO);
		dup2(output_fd, STDOUT_FILENO);
		dup2(output_fd, STDERR_FILENO);
		if (null_fd > STDERR_FILENO)
			close(null_fd);
		if (!host_folder || (!chroot("/host") && !chdir(host_folder)))
			execv(argv[0], argv);
		dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (pid < 0) {
		report("end %d error %d", number, errno);
		return;
	}
	stuck = reap(pid, &status, timeout_seconds);
	if (stuck)
		spill("/proc/sysrq-trigger", "w");
	kill(-1, SIGKILL);
	if (reap(-1, NULL, SETTLE_SECONDS) < 0) {
		tcdrain(output_fd);
		report("end %d stuck 0", number);
		return;
	}
	tcdrain(output_fd);
	settle_counters(number);
	poisoned_bytes();
	log_kernel("actmem-vm: end %d %s\n", number, name);
	if (stuck)
		report("end %d timeout %d", number, timeout_seconds);
	else if (WIFSIGNALED(status))
		report("end %d signal %d", number, WTERMSIG(status));
	else
		report("end %d exit %d", number, WEXITSTATUS(status));
}

/*
 * Memory that was known before and is not now. The kernel may free some a moment later, so this
 * waits for it if nearly a huge page is missing.
 */
static long lost_kib(long known_before)
{
	time_t end = seconds() + SETTLE_SECONDS;
	long lost = known_before - known_kib();

	while (lost > LOST_KIB_SETTLED && seconds() < end) {
		nap();
		lost = known_before - known_kib();
	}
	return lost;
}

static int unload_actmem(void)
{
	time_t end = seconds() + SETTLE_SECONDS;

	while (syscall(SYS_delete_module, "actmem", O_NONBLOCK) < 0) {
		if ((errno != EAGAIN && errno != EBUSY) || seconds() >= end)
			return errno;
		nap();
	}
	return 0;
}

static void finish(const char *token, long known_before)
{
	const char *lockdep;
	long broken;
	int error;

	log_kernel("actmem-vm: begin -1 unload\n");
	broken = poisoned_bytes();
	report_module_pages(broken / sysconf(_SC_PAGESIZE));
	error = unload_actmem();
	report("unload %d", error);
	report_leaks();
	report("lost %ld", lost_kib(known_before - broken / 1024));
	report("tainted %ld", atol(slurp("/proc/sys/kernel/tainted")));
	lockdep = strstr(slurp("/proc/lockdep_stats"), "debug_locks:");
	if (lockdep)
		report("lockdep %d", atoi(lockdep + strlen("debug_locks:")));
	report("done %s", token);
}

int main(void)
{
	char *argv[ARGS_MAX + 1] = { NULL };
	char token[64] = "none", *line = NULL;
	size_t line_size = 0;
	int argc = 0, number = 0;
	long known_before = 0;
	FILE *config;

	mount_all();
	kmsg_fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	output_fd = open_serial("/dev/ttyS1");
	report_fd = open_serial("/dev/ttyS2");
	show_kernel_log();
	report("booted");
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/tmp", 1);

	config = fopen("/vm/config", "re");
	while (config && getline(&line, &line_size, config) > 0) {
		char *value = strchr(line, ' ');

		line[strcspn(line, "\n")] = '\0';
		value = value ? value + 1 : line + strlen(line);
		if (!strncmp(line, "token ", 6))
			snprintf(token, sizeof(token), "%s", value);
		else if (!strncmp(line, "timeout ", 8))
			timeout_seconds = atoi(value);
		else if (!strcmp(line, "announce"))
			announce = 1;
		else if (!strncmp(line, "environment ", 12))
			putenv(strdup(value));
		else if (!strncmp(line, "host ", 5))
			host_folder = strdup(value), mount_host();
		else if (!strncmp(line, "module ", 7))
			load_module(value);
		else if (!strncmp(line, "program ", 8))
			argv[0] = strdup(value), argc = 1;
		else if (!strncmp(line, "argument ", 9) && argc == ARGS_MAX)
			report("error more than %d words for %s", ARGS_MAX, argv[0]);
		else if (!strncmp(line, "argument ", 9))
			argv[argc++] = strdup(value);
		else if (!strcmp(line, "measure"))
			forget_leaks(), known_before = known_kib();
		else if (!strcmp(line, "run")) {
			argv[argc] = NULL;
			run_program(number++, argv);
		}
	}
	finish(token, known_before);
	sync();
	reboot(RB_POWER_OFF);
	return 0;
}
