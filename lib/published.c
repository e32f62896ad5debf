/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads what another process publishes of itself, which may be nonsense, and may
 * be written meanwhile.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "published.h"
#include "sysfile.h"

#define READ_TRIES	16

static bool read_at(int fd, void *into, size_t size, uint64_t offset)
{
	return pread(fd, into, size, (off_t)offset) == (ssize_t)size;
}

bool published_is(int fd, int pid)
{
	struct stats_header header;
	struct stat stat;
	int seals = fcntl(fd, F_GET_SEALS);

	return !fstat(fd, &stat) && stat.st_size == STATS_FILE_BYTES &&
	       seals >= 0 && seals & F_SEAL_SHRINK &&
	       read_at(fd, &header, sizeof(header), 0) && header.magic == STATS_MAGIC &&
	       header.version == STATS_VERSION && header.pid == process_own_pid(pid);
}

static unsigned int published_records(int fd)
{
	struct stats_header header;

	if (!read_at(fd, &header, sizeof(header), 0) || header.records > STATS_RECORDS)
		return 0;
	return header.records;
}

static bool read_record(int fd, unsigned int index, struct stats_record *record)
{
	uint64_t offset = STATS_HEADER_BYTES + (uint64_t)index * STATS_RECORD_BYTES;
	uint64_t before, behind;
	unsigned int try;

	for (try = 0; try < READ_TRIES; try++) {
		if (!read_at(fd, &before, sizeof(before), offset))
			return false;
		atomic_thread_fence(memory_order_acquire);
		if (!read_at(fd, record, sizeof(*record), offset))
			return false;
		atomic_thread_fence(memory_order_acquire);
		if (!read_at(fd, &behind, sizeof(behind), offset))
			return false;
		if (before == behind && !(before & 1))
			return true;
	}
	return false;
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
