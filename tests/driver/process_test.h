/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Children of the driver's tests, as users and with limits, and the modules that are loaded. */
#ifndef PROCESS_TEST_H
#define PROCESS_TEST_H

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define MODULE	"/vm/modules/actmem.ko"

/* For good, with no capability left; the device stays open. */
static inline int become(uid_t user)
{
	return setresgid(user, user, user) || setresuid(user, user, user) ? -errno : 0;
}

/* The exit status of a child, -1 if it ended otherwise. */
static inline int wait_for(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

/* A child that has what @make made until kill_child(); -1 if that did not return 0. */
static inline pid_t hold_in_child(int (*make)(void *context), void *context)
{
	int ready[2];
	pid_t child;
	char byte;

	if (pipe(ready))
		return -1;
	child = fork();
	if (!child) {
		if (!make(context) && write(ready[1], "", 1) == 1)
			pause();
		_exit(1);
	}
	close(ready[1]);
	if (child > 0 && read(ready[0], &byte, 1) != 1) {
		wait_for(child);
		child = -1;
	}
	close(ready[0]);
	return child;
}

/* 0: it had not ended before. */
static inline int kill_child(pid_t child)
{
	return kill(child, SIGKILL) || wait_for(child) != -1;
}

/* A child in which a function runs, as another user; it exits with 0 for good. */
static inline pid_t start_child(uid_t user, int (*function)(int), int argument)
{
	pid_t child = fork();
	int line;

	if (child)
		return child;
	line = become(user) ? __LINE__ : function(argument);
	if (line)
		fprintf(stderr, "# line %d fails in the child\n", line);
	_exit(line ? 1 : 0);
}

/*
 * Runs a function in a child as another user. Its result, 0 for good, is the
 * number of the line where it went wrong, see CHECK().
 */
static inline int as_user(uid_t user, int (*function)(int), int device)
{
	return wait_for(start_child(user, function, device));
}

#define CHECK(condition) do { if (!(condition)) return __LINE__; } while (0)

static inline int set_memlock(size_t bytes)
{
	struct rlimit limit = { bytes, bytes };

	return setrlimit(RLIMIT_MEMLOCK, &limit) ? -errno : 0;
}

static inline int load_module(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err = fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	return err;
}

/* Nobody has it in use. */
static inline int unload_module(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

#endif
