/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions that are files of the driver's file system.
 *
 * A file becomes a region by one ioctl, which only one process can succeed with;
 * before, it is empty. Whoever makes one, or cleans up after a failure, has the
 * empty file locked (flock(2)) meanwhile, so that others wait for the outcome;
 * what a process leaves empty that was killed is completed by the next one.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "error.h"
#include "names.h"
#include "node.h"
#include "why.h"

/* What a look at the file led to, besides 0 and errors with words. */
#define TRY_AGAIN	1

/* Nanoseconds between looks at a file that another process completes. */
#define PAUSE_MIN	1000000
#define PAUSE_MAX	64000000

/* Waits until the file is a region or this process's to complete. */
static int wait_for_turn(const struct region_request *request, int fd, struct stat *stat)
{
	struct timespec pause = { .tv_nsec = PAUSE_MIN };

	for (;;) {
		bool locked = !flock(fd, LOCK_EX | LOCK_NB);

		if (!locked && errno != EWOULDBLOCK && errno != EINTR)
			return fail(errno, "cannot lock %s (flock: %s)", request->path,
				    strerror(errno));
		if (fstat(fd, stat))
			return fail(errno, "cannot look at %s (%s)", request->path,
				    strerror(errno));
		/* Who has locked it thus may have removed it after a failure. */
		if (!stat->st_nlink)
			return TRY_AGAIN;
		if (stat->st_size && locked)
			flock(fd, LOCK_UN);
		if (stat->st_size || locked)
			return 0;
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < PAUSE_MAX)
			pause.tv_nsec *= 2;
	}
}

/* Under the lock: removes what this opening made and its failure would leave. */
static void remove_empty(const char *path, int fd)
{
	struct stat own, there;

	if (!fstat(fd, &own) && !own.st_size && !lstat(path, &there) &&
	    own.st_dev == there.st_dev && own.st_ino == there.st_ino)
		unlink(path);
}

static int complete(const struct region_request *request, int fd, bool created,
		    struct backing *backing)
{
	int error = driver_make(fd, request, backing);

	/* By a program that does not wait, such as truncate(1). */
	if (error == -EEXIST)
		return TRY_AGAIN;
	if (error == -ENOTTY)
		fail(EOPNOTSUPP, "this driver has no regions with names; upgrade the module");
	if (error == -ENOSPC)
		why_tell_mount(fd);
	if (error) {
		if (created)
			remove_empty(request->path, fd);
		return error == -ENOTTY ? -EOPNOTSUPP : error;
	}
	if (!(request->open & ACTMEM_OPEN_LOCK))
		flock(fd, LOCK_UN);
	backing->fd = fd;
	backing->named = true;
	return 0;
}

static int check_policy(const struct region_request *request, struct actmem_ioctl_info *info,
			unsigned int *fallbacks)
{
	static const char *const policies[] = { "bind", "preferred", "interleave" };
	struct actmem_nodes nodes;

	if (request->any_place)
		return 0;
	memcpy(nodes.word, info->nodes, sizeof(nodes.word));
	if (info->policy == request->policy - 1U &&
	    !memcmp(&nodes, &request->nodes, sizeof(nodes)))
		return 0;
	fail(EEXIST, "%s is there with the policy %s on %s, not %s on %s as asked", request->path,
	     info->policy < 3 ? policies[info->policy] : "?", NODES_TEXT(&nodes),
	     policies[request->policy - 1], NODES_TEXT(&request->nodes));
	if (!(request->allow & ACTMEM_ALLOW_NODE)) {
		fail_more("; remove it to have it made anew, or allow other nodes with ACTMEM_ALLOW=node (actmem run --allow)");
		return -EEXIST;
	}
	fail_more("; took it as it is");
	*fallbacks = 1;
	return 0;
}

static int take_found(const struct region_request *request, int fd, struct backing *backing)
{
	struct actmem_ioctl_info info = { .size = sizeof(info) };
	unsigned int fallbacks = 0;
	int error;

	if (request->open & ACTMEM_OPEN_EXCLUSIVE)
		return fail(EEXIST, "%s is there already", request->path);
	error = driver_check_pages(request);
	if (!error && request->open & ACTMEM_OPEN_LOCK)
		error = name_lock(fd, request->path);
	if (error)
		return error;
	error = driver_ask(fd, ACTMEM_IOC_INFO, &info);
	if (error)
		return fail(-error, "the driver does not tell of %s (%s)", request->path,
			    strerror(-error));
	if (request->length && info.length != request->length &&
	    !(request->open & ACTMEM_OPEN_ANY_LENGTH))
		return fail(EEXIST, "%s is there with %s, not with %s as asked; remove it, or ask for length 0 to have it as it is",
			    request->path, BYTES_TEXT(info.length), BYTES_TEXT(request->length));
	error = check_policy(request, &info, &fallbacks);
	if (error)
		return error;
	*backing = (struct backing){
		.fd = fd,
		.length = info.length,
		.page_bytes = info.page_bytes,
		.id = info.id,
		.pages = ACTMEM_PAGES_2M,
		.fallbacks = fallbacks,
		.inherit = info.state & ACTMEM_INFO_INHERIT,
		.received = true,
		.named = true,
		.read_only = request->open & ACTMEM_OPEN_READ,
		.sealed = info.state & ACTMEM_INFO_SEALED,
	};
	return 0;
}

static int take_file(const struct region_request *request, int fd, bool created,
		     struct stat *stat, struct backing *backing)
{
	struct statfs files;
	int error;

	if (fstatfs(fd, &files) || files.f_type != ACTMEM_SUPER_MAGIC)
		return fail(EINVAL, "%s is not on the driver's file system any more",
			    request->path);
	if (!stat->st_size) {
		error = wait_for_turn(request, fd, stat);
		if (error)
			return error;
	}
	if (stat->st_size)
		return take_found(request, fd, backing);
	if (!(request->open & ACTMEM_OPEN_CREATE))
		return fail(ENOENT, "%s is an empty file, no region yet", request->path);
	return complete(request, fd, created, backing);
}

/* An empty file that is there may be meant to be: only one made here is @created. */
static int open_or_create(const struct region_request *request, int *fd, bool *created,
			  struct stat *found)
{
	int error = -EEXIST;

	if (request->open & ACTMEM_OPEN_CREATE)
		error = name_open(request, O_CREAT | O_EXCL, fd, found);
	*created = !error;
	if (error != -EEXIST)
		return error;
	error = name_open(request, 0, fd, found);
	if (error != -ENOENT || !(request->open & ACTMEM_OPEN_CREATE))
		return error;
	if (!lstat(request->path, found) && S_ISLNK(found->st_mode))
		return fail(EEXIST, "%s is a link to a file that is not there", request->path);
	return TRY_AGAIN;
}

int driver_open_name(const struct region_request *request, struct backing *backing)
{
	bool created;
	struct stat stat;
	int fd, error;

	do {
		error = open_or_create(request, &fd, &created, &stat);
		if (error == TRY_AGAIN)
			continue;
		if (error)
			return error;
		error = take_file(request, fd, created, &stat, backing);
		if (error)
			close(fd);
	} while (error == TRY_AGAIN);
	if (!error)
		name_label(backing->name, request->path);
	return error;
}
