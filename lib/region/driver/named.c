/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions that are files of the driver's file system.
 *
 * While a process creates such a region, it locks (flock(2)) an empty file with the region's name,
 * so that other processes wait for the result. If the process is killed, the next process that
 * opens the name turns the empty file into the region.
 *
 * One ioctl turns an empty file into a region without pages, and no call can undo this step. A lazy
 * region is then complete. For any other region, the process populates a second file, which has no
 * name, and replaces the empty file by that file. Therefore, each region that other processes find
 * is complete. If the call fails, an empty file that existed before the call is unchanged.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "config/config.h"
#include "machine/machine.h"
#include "region/driver/driver.h"
#include "region/driver/why.h"
#include "region/names.h"
#include "watch/watch.h"

/*
 * A result besides 0 and errors: another process changed the file, so the caller must open the name
 * again.
 */
#define TRY_AGAIN	1

/* Nanoseconds between checks of a file that another process completes. */
#define PAUSE_MIN	1000000
#define PAUSE_MAX	64000000

/*
 * Waits until the file is a region, or until this process holds the file's lock and must complete
 * the file.
 */
static int wait_for_turn(const struct region_request *request, int fd, struct stat *stat)
{
	struct timespec pause = { .tv_nsec = PAUSE_MIN };

	for (;;) {
		bool locked = !flock(fd, LOCK_EX | LOCK_NB);

		if (!locked && errno != EWOULDBLOCK && errno != EINTR)
			return fail(errno, "cannot lock %s (flock: %s)", request->path,
				    strerror(errno));
		if (fstat(fd, stat))
			return fail(errno, "cannot check %s (%s)", request->path,
				    strerror(errno));
		/* The process that had locked the file may have removed it after a failure. */
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

static bool is_empty(int fd)
{
	struct stat stat;

	return !fstat(fd, &stat) && !stat.st_size;
}

static bool is_same(const struct stat *one, const struct stat *other)
{
	return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

/* Returns true if @path is still the name of the file @fd. */
static bool is_named(const char *path, int fd)
{
	struct stat own, there;

	return !fstat(fd, &own) && !lstat(path, &there) && is_same(&own, &there);
}

/* Removes the empty file that a failed call created. Caller holds the file's lock. */
static void remove_empty(const char *path, int fd)
{
	if (is_empty(fd) && is_named(path, fd))
		unlink(path);
}

/*
 * Copies owner and permissions from the empty file to the region's file. A user may have created
 * the empty file only to set the region's owner and permissions.
 */
static int copy_permissions(int from, int to, const char *path)
{
	struct stat old, new;

	if (fstat(from, &old) || fstat(to, &new) ||
	    ((old.st_uid != new.st_uid || old.st_gid != new.st_gid) &&
	     fchown(to, old.st_uid, old.st_gid)) ||
	    (old.st_mode != new.st_mode && fchmod(to, old.st_mode & 07777)))
		return fail(errno, "cannot create a region with the owner and the permissions of %s (%s); remove the file, or create a lazy region",
			    path, strerror(errno));
	return 0;
}

/* Creates a new empty file in place of the removed one, which existed before the call. */
static void put_back(const char *path, int empty)
{
	int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		return;
	copy_permissions(empty, fd, path);
	close(fd);
}

/*
 * Replaces the empty file by the region's file, @made. Caller holds the lock of the empty file. If
 * another process has removed or renamed the empty file, the region gets no name, as if the region
 * itself had been removed.
 */
static int replace_empty(const struct region_request *request, int empty, bool created, int made)
{
	int error = copy_permissions(empty, made, request->path);

	if (!error && request->open & ACTMEM_OPEN_LOCK)
		error = name_lock(made, request->path);
	if (error)
		return error;
	/* A program that ignores the lock, such as truncate(1), has made the file a region. */
	if (!is_empty(empty))
		return TRY_AGAIN;
	if (!is_named(request->path, empty))
		return 0;
	if (unlink(request->path))
		return fail(errno, "cannot replace %s by a region (unlink: %s)",
			    request->path, strerror(errno));
	/* EEXIST: another process has just created the name, so start again. */
	error = name_link(made, request->path);
	if (!error || error == -EEXIST)
		return error ? TRY_AGAIN : 0;
	if (!created)
		put_back(request->path, empty);
	return fail(-error, "cannot name a file %s (linkat: %s)%s", request->path,
		    strerror(-error), error == -ENOENT ? " (is /proc mounted?)" : "");
}

/*
 * Replaces the descriptor *@made by one that is opened by name, so that /proc shows the name. For a
 * descriptor of a file that had no name when it was opened, /proc never shows a name. Keeps the old
 * descriptor if the name belongs to another file by now.
 */
static int open_by_name(const struct region_request *request, int *made)
{
	int fd = open(request->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
	struct stat own, there;
	int error = 0;

	if (fd < 0)
		return 0;
	if (fstat(*made, &own) || fstat(fd, &there) || !is_same(&own, &there)) {
		close(fd);
		return 0;
	}
	if (request->open & ACTMEM_OPEN_LOCK) {
		flock(*made, LOCK_UN);
		error = name_lock(fd, request->path);
	}
	/*
	 * Another process locked the region meanwhile. Try *@made, because that process may have
	 * ended.
	 */
	if (error) {
		close(fd);
		return name_lock(*made, request->path);
	}
	request_tell_fd(request, fd);
	close(*made);
	*made = fd;
	return 0;
}

/* Replaces the empty file by a populated region. */
static int complete_whole(const struct region_request *request, int fd, bool created,
			  struct backing *backing)
{
	struct region_request whole = *request;
	char path[PATH_MAX];
	int error;

	/* If the path is a symbolic link, replace its target, not the link. */
	if (!realpath(request->path, path))
		return errno == ENOENT ? TRY_AGAIN :
		       fail(errno, "cannot check %s (%s)", request->path, strerror(errno));
	whole.path = path;
	request_tell_lock(request, fd);
	error = driver_make(-1, &whole, backing);
	if (!error) {
		error = replace_empty(&whole, fd, created, backing->fd);
		if (!error)
			error = open_by_name(&whole, &backing->fd);
		if (error)
			request_close_fd(request, backing->fd);
	}
	request_tell_lock(request, -1);
	if (error) {
		request_tell_fd(request, fd);
		return error;
	}
	/* A child that was forked before may have the descriptor: do not leave the lock to it. */
	flock(fd, LOCK_UN);
	close(fd);
	return 0;
}

/* Turns an empty file into a region. On success, closes @fd unless @backing uses it. */
static int complete_file(const struct region_request *request, int fd, bool created,
			 struct backing *backing)
{
	int error = request->lazy ? driver_make(fd, request, backing) :
				    complete_whole(request, fd, created, backing);

	/* As in replace_empty(): another program has made the file a region. */
	if (error == -EEXIST)
		return TRY_AGAIN;
	if (error == -ENOSPC)
		why_tell_mount(fd);
	if (error) {
		if (created)
			remove_empty(request->path, fd);
		return error;
	}
	if (request->lazy) {
		if (!(request->open & ACTMEM_OPEN_LOCK))
			flock(fd, LOCK_UN);
		backing->fd = fd;
	}
	backing->named = true;
	return 0;
}

/*
 * Returns true if @all includes @nodes. A region that was created near a device may be bound to
 * fewer nodes than the request has.
 */
static bool nodes_are_in(const struct actmem_nodes *nodes, const struct actmem_nodes *all)
{
	unsigned int i;

	for (i = 0; i < ACTMEM_NODES_MAX / 64; i++)
		if (nodes->word[i] & ~all->word[i])
			return false;
	return true;
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
	    (!memcmp(&nodes, &request->nodes, sizeof(nodes)) ||
	     (request->has_home && nodes_are_in(&nodes, &request->nodes))))
		return 0;
	fail(EEXIST, "%s exists with the policy %s on %s, but %s on %s was requested", request->path,
	     info->policy < 3 ? policies[info->policy] : "?", NODES_TEXT(&nodes),
	     policies[request->policy - 1], NODES_TEXT(&request->nodes));
	if (!(request->allow & ACTMEM_ALLOW_NODE)) {
		fail_more("; remove it, or allow other nodes with %s",
			  KNOB(ALLOW_NODE));
		return -EEXIST;
	}
	fail_more("; used it as it is");
	*fallbacks = 1;
	return 0;
}

static int open_found(const struct region_request *request, int fd, struct backing *backing)
{
	struct actmem_ioctl_info info = { .size = sizeof(info) };
	unsigned int fallbacks = 0;
	int error;

	if (request->open & ACTMEM_OPEN_EXCLUSIVE)
		return fail(EEXIST, "%s exists already", request->path);
	error = driver_check_pages(request);
	if (!error && request->open & ACTMEM_OPEN_LOCK)
		error = name_lock(fd, request->path);
	if (error)
		return error;
	error = driver_ask(fd, ACTMEM_IOC_INFO, &info);
	if (error)
		return fail(-error, "the driver cannot report on %s (%s)", request->path,
			    strerror(-error));
	if (request->length && info.length != request->length &&
	    !(request->open & ACTMEM_OPEN_ANY_LENGTH))
		return fail(EEXIST, "%s exists with %s, but %s were requested; remove it, or request length 0 to accept any",
			    request->path, BYTES_TEXT(info.length), BYTES_TEXT(request->length));
	error = check_policy(request, &info, &fallbacks);
	if (error)
		return error;
	driver_tell_pages(request, &fallbacks);
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
	};
	return 0;
}

static int open_file(const struct region_request *request, int fd, bool created,
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
		return open_found(request, fd, backing);
	if (!(request->open & ACTMEM_OPEN_CREATE))
		return fail(ENOENT, "%s is an empty file, not a region yet", request->path);
	return complete_file(request, fd, created, backing);
}

/*
 * Opens the file, or creates an empty one and sets *@created. A call that fails must not remove an
 * empty file that existed before, because a user may have created it on purpose.
 */
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
		return fail(EEXIST, "%s is a link to a file that does not exist", request->path);
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
		error = open_file(request, fd, created, &stat, backing);
		/*
		 * Unlock the file: a child that was forked meanwhile can have the descriptor, and
		 * would keep the lock after close().
		 */
		if (error) {
			flock(fd, LOCK_UN);
			request_close_fd(request, fd);
		}
	} while (error == TRY_AGAIN);
	if (!error)
		name_label(backing->name, request->path);
	return error;
}
