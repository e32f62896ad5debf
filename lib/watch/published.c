/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads the data that another process publishes about itself. The data can be invalid, and the
 * process can change it during the read.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "machine/machine.h"
#include "watch/published.h"

#define READ_TRIES	16
#define PATH_SIZE	64

static bool read_at(int fd, void *into, size_t size, uint64_t offset)
{
	return pread(fd, into, size, (off_t)offset) == (ssize_t)size;
}

/*
 * Opens a file of another process. Returns -EINVAL if it is no tmpfs file. The path can lead to any
 * file, and opening a device could do harm. So the function first checks the file with O_PATH,
 * which does not open it. If the owner has a lease on the file, opening the file would block for 45
 * seconds. In this case O_NONBLOCK makes the open fail, and the function also returns -EINVAL.
 */
static int open_memory_file(const char *path)
{
	char own_path[PATH_SIZE];
	struct stat stat;
	struct statfs files;
	int fd = -EINVAL;
	int place = open(path, O_PATH | O_CLOEXEC);

	if (place < 0)
		return -errno;
	if (!fstat(place, &stat) && S_ISREG(stat.st_mode) &&
	    !fstatfs(place, &files) && files.f_type == TMPFS_MAGIC) {
		snprintf(own_path, sizeof(own_path), "/proc/self/fd/%d", place);
		fd = open(own_path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0)
			fd = errno == EWOULDBLOCK ? -EINVAL : -errno;
	}
	close(place);
	return fd;
}

bool published_header(int fd, struct stats_header *header)
{
	return read_at(fd, header, sizeof(*header), 0);
}

static bool is_published(int fd, int pid, const struct published_kind *kind)
{
	struct published_start start;
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);

	return !fstat(fd, &stat) && stat.st_size == (off_t)kind->bytes &&
	       seals >= 0 && seals & F_SEAL_SHRINK &&
	       read_at(fd, &start, sizeof(start), 0) && start.magic == kind->magic &&
	       start.version == kind->version && start.pid == process_own_pid(pid);
}

int published_walk(int pid, const struct published_kind *kind, int (*take)(void *context, int fd),
		   void *context)
{
	struct process_links links;
	char link[PATH_SIZE];
	int error, fd;

	snprintf(link, sizeof(link), "/memfd:%s (deleted)", kind->label);
	error = process_links_open(&links, pid);
	while (!error && process_links_next(&links, link)) {
		fd = open_memory_file(links.path);
		if (fd >= 0 && is_published(fd, pid, kind))
			error = take(context, fd);
		else if (fd >= 0)
			close(fd);
		else if (is_own_error(fd))
			error = fd;
	}
	process_links_close(&links);
	return error;
}

struct new_limit {
	uint64_t bytes;
	int handles;
};

/* Opens the file at @path again, because its first descriptor is only for reading. */
static int write_bytes(const char *path, uint64_t bytes)
{
	struct rlimit most;
	ssize_t written;
	int error, fd;

	/* pwrite() beyond this limit would raise SIGXFSZ, or write only a part of the number. */
	if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur < PUBLISHED_LIMIT_END)
		return -EFBIG;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	written = pwrite(fd, &bytes, sizeof(bytes), PUBLISHED_LIMIT_END - sizeof(bytes));
	error = written < 0 ? -errno : written == sizeof(bytes) ? 0 : -EIO;
	close(fd);
	return error;
}

static int write_limit(void *context, int fd)
{
	struct new_limit *limit = context;
	char path[PATH_SIZE];
	int error;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	error = write_bytes(path, limit->bytes);
	close(fd);
	limit->handles++;
	return error;
}

int published_set_limit(int pid, uint64_t bytes)
{
	struct new_limit limit = { .bytes = bytes };
	char path[PATH_SIZE];
	int error;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	if (access(path, R_OK | X_OK))
		return errno == ENOENT ? -ESRCH : -errno;
	error = published_walk(pid, &published_stats, write_limit, &limit);
	return error ? error : limit.handles;
}

static unsigned int published_records(int fd)
{
	struct stats_header header;

	if (!published_header(fd, &header) || header.records > STATS_RECORDS)
		return 0;
	return header.records;
}

/*
 * Reads a record that begins with a sequence number. Returns false if a read fails, or if the
 * record is torn at each try.
 */
static bool read_whole(int fd, uint64_t offset, void *into, size_t size)
{
	uint64_t before, behind;
	unsigned int try;

	for (try = 0; try < READ_TRIES; try++) {
		if (!read_at(fd, &before, sizeof(before), offset))
			return false;
		atomic_thread_fence(memory_order_acquire);
		if (!read_at(fd, into, size, offset))
			return false;
		atomic_thread_fence(memory_order_acquire);
		if (!read_at(fd, &behind, sizeof(behind), offset))
			return false;
		if (before == behind && !(before & 1))
			return true;
	}
	return false;
}

static bool read_record(int fd, unsigned int index, struct stats_record *record)
{
	return read_whole(fd, STATS_HEADER_BYTES + (uint64_t)index * STATS_RECORD_BYTES, record,
			  sizeof(*record));
}

bool published_find(struct published *published, uint64_t device, uint64_t id,
		    struct stats_record *record)
{
	unsigned int records = published_records(published->fd);
	unsigned int i;

	for (i = 0; i < records; i++) {
		unsigned int index = (published->next + i) % records;
		uint64_t key[3];

		if (read_at(published->fd, key, sizeof(key),
			    STATS_HEADER_BYTES + (uint64_t)index * STATS_RECORD_BYTES) &&
		    key[1] == device && key[2] == id &&
		    read_record(published->fd, index, record) &&
		    record->device == device && record->id == id) {
			published->next = index + 1;
			return true;
		}
	}
	return false;
}

bool published_waits(int fd, struct published_waits *waits)
{
	const uint64_t at = offsetof(struct stats_header, waits);
	unsigned int i;

	if (!read_at(fd, waits, sizeof(*waits), at) || waits->places != WAITS_MAX)
		return false;
	for (i = 0; i < WAITS_MAX; i++) {
		struct published_wait *wait = &waits->waits[i];

		if (!read_whole(fd, at + offsetof(struct published_waits, waits) +
				i * sizeof(*wait), wait, sizeof(*wait)) ||
		    wait->kind >= WAIT_KINDS)
			wait->kind = WAIT_NONE;
		wait->words[WAIT_WORDS - 1] = '\0';
	}
	return true;
}
