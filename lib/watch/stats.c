/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Publishes this process's counters and regions.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/base.h"
#include "watch/sequence.h"
#include "watch/stats.h"

/* Allocates pages. Returns an error if memory is short. A page fault would raise SIGBUS instead. */
static int populate(void *address, uint64_t length)
{
	while (madvise(address, length, MADV_POPULATE_WRITE)) {
		if (errno != EINTR && errno != EAGAIN)
			return fail(errno == EFAULT ? ENOMEM : errno,
				    "no memory to publish counters (madvise: %s)", strerror(errno));
	}
	return 0;
}

void stats_close(struct stats *stats)
{
	munmap(stats->header, STATS_FILE_BYTES);
	close(stats->fd);
}

int stats_open(struct stats *stats, enum actmem_backend backend)
{
	struct stats_header *header;
	struct rlimit limit;
	const char *call;
	int error;

	header = publish_file(&published_stats, &stats->fd, &call);
	if (!header && errno == EFBIG && !getrlimit(RLIMIT_FSIZE, &limit))
		return fail(EFBIG, "cannot publish counters: their file needs %s, but RLIMIT_FSIZE is %s; raise it with `ulimit -f`",
			    BYTES_TEXT(STATS_FILE_BYTES), BYTES_TEXT(limit.rlim_cur));
	if (!header)
		return fail_more_address_space(fail(errno, "cannot publish counters (%s: %s)", call,
						    strerror(errno)));
	/* A forked child must not write to the file that its parent publishes. */
	if (madvise(header, STATS_FILE_BYTES, MADV_DONTFORK) ||
	    madvise(header, STATS_FILE_BYTES, MADV_DONTDUMP))
		error = fail(errno, "cannot publish counters (madvise: %s)", strerror(errno));
	else
		error = populate(header, STATS_HEADER_BYTES);
	stats->header = header;
	if (error) {
		stats_close(stats);
		return error;
	}
	header->backend = backend;
	header->waits.places = WAITS_MAX;
	header->traffic.count = TRAFFIC_TOTALS;
	publish_start(&published_stats, &header->start);
	memset(stats->taken, 0, sizeof(stats->taken));
	return 0;
}

static struct stats_record *record_at(const struct stats *stats, unsigned int index)
{
	return (struct stats_record *)((char *)stats->header + STATS_HEADER_BYTES +
				       (uint64_t)index * STATS_RECORD_BYTES);
}

int stats_add(struct stats *stats, uint64_t device, bool received,
	      const struct actmem_region_info *info, struct stats_record **result)
{
	struct stats_record *record;
	unsigned int word = 0, index;
	int error;

	while (word < STATS_RECORDS / 64 && stats->taken[word] == UINT64_MAX)
		word++;
	if (word == STATS_RECORDS / 64)
		return fail(EMFILE, "%d regions are open; use longer regions", STATS_RECORDS);
	index = word * 64 + (unsigned int)__builtin_ctzll(~stats->taken[word]);
	record = record_at(stats, index);
	error = populate(record, STATS_RECORD_BYTES);
	if (error)
		return error;
	stats->taken[word] |= 1ULL << (index % 64);

	sequence_begin(&record->sequence);
	record->device = device;
	record->id = info->id;
	record->page_bytes = info->page_bytes;
	record->mapped_bytes = 0;
	record->pinned_bytes = info->pinned_bytes;
	record->pages = info->pages;
	record->received = received;
	memcpy(record->node_bytes, info->node_bytes, sizeof(record->node_bytes));
	sequence_end(&record->sequence);
	if (index >= stats->header->records)
		atomic_store_explicit(&stats->header->records, index + 1, memory_order_release);
	*result = record;
	return 0;
}

void stats_remove(struct stats *stats, struct stats_record *record)
{
	uint64_t index = (uint64_t)((char *)record - (char *)record_at(stats, 0)) /
			 STATS_RECORD_BYTES;

	sequence_begin(&record->sequence);
	record->device = 0;
	sequence_end(&record->sequence);
	stats->taken[index / 64] &= ~(1ULL << (index % 64));
}

void stats_set_pages(struct stats_record *record, uint64_t pinned_bytes,
		     const uint64_t node_bytes[ACTMEM_NODES_MAX])
{
	sequence_begin(&record->sequence);
	record->pinned_bytes = pinned_bytes;
	memcpy(record->node_bytes, node_bytes, sizeof(record->node_bytes));
	sequence_end(&record->sequence);
}

void stats_set_mapped(struct stats_record *record, uint64_t mapped_bytes)
{
	sequence_begin(&record->sequence);
	record->mapped_bytes = mapped_bytes;
	sequence_end(&record->sequence);
}
