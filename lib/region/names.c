/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Resolves, opens, links and locks the files of named regions.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/names.h"

struct text {
	char *at;
	size_t size;
};

static bool see_any(void *context, const struct mount *mount)
{
	struct text *text = context;
	size_t used = strlen(text->at);
	char place[512];

	if (mount->read_only || !strncmp(mount->point, "/sys/", 5) ||
	    (strcmp(mount->type, "hugetlbfs") && strcmp(mount->type, "tmpfs")))
		return false;
	snprintf(place, sizeof(place), ", %s (%s)", mount->point, mount->type);
	/* Two file systems of one type may be mounted at the same point: list the point once. */
	if (!strstr(text->at, place))
		snprintf(text->at + used, text->size - used, "%s", place);
	return false;
}

static bool see_driver(void *context, const struct mount *mount)
{
	struct text *text = context;

	if (strcmp(mount->type, "actmem"))
		return false;
	snprintf(text->at, text->size, "%s", mount->point);
	return true;
}

static int bare_name(const char *name, char path[PATH_MAX])
{
	char point[PATH_MAX] = "", others[512] = "";
	struct text text = { point, sizeof(point) };

	if (mounts_find(see_driver, &text)) {
		if (snprintf(path, PATH_MAX, "%s/%s", point, name) >= PATH_MAX)
			return fail(ENAMETOOLONG, "%s/%s is too long a path", point, name);
		return 0;
	}
	text = (struct text){ others, sizeof(others) };
	mounts_find(see_any, &text);
	return fail(ENOENT, "no actmem file system is mounted for the name '%s'; as root " MOUNT_DRIVER ", or give a path on one of these: %s",
		    name, *others ? others + 2 : "(no hugetlbfs or tmpfs is mounted)");
}

int name_to_path(const char *name, char path[PATH_MAX])
{
	char folder[PATH_MAX];
	int length;

	if (!*name)
		return fail(EINVAL, "the name of a region is empty");
	if (!strchr(name, '/'))
		return bare_name(name, path);
	if (*name == '/') {
		length = snprintf(path, PATH_MAX, "%s", name);
	} else {
		if (!getcwd(folder, sizeof(folder)))
			return fail(errno, "%s: cannot get the current directory (%s)", name,
				    strerror(errno));
		length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
	}
	if (length >= PATH_MAX)
		return fail(ENAMETOOLONG, "the path of a region is too long (%d bytes)",
			    length);
	if (path[length - 1] == '/')
		return fail(EINVAL, "%s is not the name of a file", path);
	return 0;
}

void parent_of(char folder[PATH_MAX], const char *path)
{
	char *slash;

	strcpy(folder, path);
	slash = strrchr(folder, '/');
	slash[slash == folder] = '\0';
}

int name_open(const struct region_request *request, int flags, int *fd, struct stat *found)
{
	bool own = request->open & ACTMEM_OPEN_OWN;
	const char *path = request->path;
	int error;

	/* Check the type before opening the file: opening a device could do harm. */
	if (!stat(path, found) && !S_ISREG(found->st_mode))
		return fail(EINVAL, "%s is not a file, so not a region", path);
	flags |= request->open & ACTMEM_OPEN_READ ? O_RDONLY : O_RDWR;
	/* In a directory that all users can write to, the name can be another user's symlink. */
	flags |= own ? O_NOFOLLOW : 0;
	/* O_NONBLOCK: a FIFO may have replaced the file since the check. */
	*fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
	if (*fd < 0 && errno == ENOENT)
		return fail(ENOENT, "%s does not exist", path);
	if (*fd < 0 && errno == ELOOP && own)
		return fail(ELOOP, "%s is a symbolic link; remove it, or use another name", path);
	if (*fd < 0)
		return fail(errno, "cannot open %s (%s)", path, strerror(errno));
	request_tell_fd(request, *fd);
	if (fstat(*fd, found))
		error = fail(errno, "cannot check %s (%s)", path, strerror(errno));
	else if (!S_ISREG(found->st_mode))
		error = fail(EINVAL, "%s is not a file, so not a region", path);
	else if (own && found->st_uid != geteuid())
		error = fail(EACCES, "%s belongs to user %u, not to %u: use another name", path,
			     (unsigned int)found->st_uid, (unsigned int)geteuid());
	else
		return 0;
	request_close_fd(request, *fd);
	return error;
}

int name_link(int fd, const char *path)
{
	char own[64];

	snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
	if (!linkat(AT_FDCWD, own, AT_FDCWD, path, AT_SYMLINK_FOLLOW))
		return 0;
	/* If /proc is not mounted, try AT_EMPTY_PATH, which needs CAP_DAC_READ_SEARCH. */
	if (errno == ENOENT && !linkat(fd, "", AT_FDCWD, path, AT_EMPTY_PATH))
		return 0;
	return -errno;
}

/* Returns the pid of the process that holds the file's lock; 0 if /proc/locks lists none. */
static int lock_holder(const struct stat *stat)
{
	unsigned int major_number, minor_number;
	unsigned long long inode;
	FILE *file = fopen("/proc/locks", "re");
	int pid, found = 0;
	char line[256];

	if (!file)
		return 0;
	while (!found && fgets(line, sizeof(line), file))
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_number,
			   &minor_number, &inode) == 4 &&
		    makedev(major_number, minor_number) == stat->st_dev && inode == stat->st_ino)
			found = pid;
	fclose(file);
	return found;
}

int name_lock(int fd, const char *path)
{
	char command[16], holder[64] = "another process";
	struct stat stat;
	int pid;

	if (!flock(fd, LOCK_EX | LOCK_NB))
		return 0;
	if (errno != EWOULDBLOCK)
		return fail(errno, "cannot lock %s (flock: %s)", path, strerror(errno));
	pid = fstat(fd, &stat) ? 0 : lock_holder(&stat);
	if (pid > 0) {
		process_command(pid, command);
		snprintf(holder, sizeof(holder), "process %d%s%s%s", pid, *command ? " (" : "",
			 command, *command ? ")" : "");
	}
	return fail(EBUSY, "%s is in use by %s; end that process, or use another name", path, holder);
}

struct mount_place {
	uint64_t device;
	char *text;
};

static bool see_place(void *context, const struct mount *mount)
{
	struct mount_place *place = context;

	if (mount->device != place->device)
		return false;
	snprintf(place->text, PATH_TEXT_MAX, "%s", mount->point);
	return true;
}

const char *mount_text(char text[PATH_TEXT_MAX], uint64_t device)
{
	struct mount_place place = { device, text };

	text[0] = '\0';
	mounts_find(see_place, &place);
	return text;
}
