/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the memfd regions of every process that this process may inspect.
 *
 * The existence of a region, its name and its length come from the descriptors under /proc/PID/fd,
 * which no process can forge. Only placement, pinning and mapping come from the data that the
 * process publishes. The library reads this data without mapping it, and ignores invalid data.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/base.h"
#include "machine/machine.h"
#include "../uapi/actmem.h"
#include "watch/list.h"
#include "watch/processes.h"
#include "watch/published.h"
#include "watch/stats.h"

#define REGION_PREFIX	"/memfd:" REGION_LABEL
#define DELETED		" (deleted)"
/* A process publishes one file for each handle that it opened. */
#define PUBLISHED_MAX	64

/* Ranks the processes that have a region. The list shows the process with the highest rank. */
enum rank {
	RANK_HOLDER,		/* has a descriptor, but publishes nothing about the region */
	RANK_RECEIVER,		/* publishes that it received the region */
	RANK_MAKER,		/* publishes that it created the region */
};

struct found {
	uint64_t device, id;
	enum rank rank;
	size_t item;		/* the region's index in the list */
};

struct region_search {
	struct region_list *list;
	struct found *found;
	size_t count, room;
	struct published published[PUBLISHED_MAX];
	unsigned int published_count;
};

/*
 * Copies the placement of pages. If other processes have discarded pages since the process
 * published its numbers, these numbers can exceed the allocated bytes. Ignores or limits such
 * numbers.
 */
static void take_pages(struct actmem_region_info *info, const struct stats_record *record)
{
	uint64_t sum = 0;
	unsigned int node;

	for (node = 0; node < ACTMEM_NODES_MAX; node++)
		sum += record->node_bytes[node];
	if (sum <= info->allocated_bytes)
		memcpy(info->node_bytes, record->node_bytes, sizeof(record->node_bytes));
	info->pinned_bytes = record->pinned_bytes < info->allocated_bytes ?
			     record->pinned_bytes : info->allocated_bytes;
}

static bool makes_sense(const struct stats_record *record, uint64_t length)
{
	uint64_t sum = 0;
	unsigned int node;

	for (node = 0; node < ACTMEM_NODES_MAX; node++) {
		if (record->node_bytes[node] > length - sum)
			return false;
		sum += record->node_bytes[node];
	}
	return record->pages > ACTMEM_PAGES_DEFAULT && record->pages <= ACTMEM_PAGES_1G &&
	       record->page_bytes == pages_bytes(record->pages) &&
	       record->mapped_bytes <= length && record->pinned_bytes <= length;
}

/*
 * Fills in the data that the process itself publishes about the region. Returns the process's rank.
 */
static enum rank take_published(struct region_search *search, uint64_t device, uint64_t id,
				struct actmem_region_info *info)
{
	struct stats_record record;
	unsigned int i;

	for (i = 0; i < search->published_count; i++) {
		if (!published_find(&search->published[i], device, id, &record) ||
		    !makes_sense(&record, info->length))
			continue;
		info->page_bytes = record.page_bytes;
		info->pages = record.pages;
		info->mapped_bytes = record.mapped_bytes;
		take_pages(info, &record);
		return record.received ? RANK_RECEIVER : RANK_MAKER;
	}
	return RANK_HOLDER;
}

/* Returns the length of a link without DELETED, which the kernel appends for a removed file. */
static size_t length_of_path(const char *link)
{
	size_t length = strlen(link), more = strlen(DELETED);

	return length >= more && !strcmp(link + length - more, DELETED) ? length - more : length;
}

/* Copies the name after "actmem:". Returns false if it is no valid name of a region. */
static bool take_label(char name[ACTMEM_NAME_MAX], const char *link)
{
	const char *from = link + strlen(REGION_PREFIX);
	size_t length = length_of_path(from), i;

	if (!from[length] || length >= ACTMEM_NAME_MAX)
		return false;
	for (i = 0; i < length; i++)
		if (from[i] < ' ' || from[i] > '~' || from[i] == '/')
			return false;
	memcpy(name, from, length);
	return true;
}

static struct found *find(const struct region_search *search, uint64_t device, uint64_t id)
{
	size_t i;

	for (i = 0; i < search->count; i++)
		if (search->found[i].device == device && search->found[i].id == id)
			return &search->found[i];
	return NULL;
}

static struct found *add_found(struct region_search *search)
{
	struct found *larger;
	size_t room;

	if (search->count == search->room) {
		room = search->room ? search->room * 2 : 64;
		larger = realloc(search->found, room * sizeof(*larger));
		if (!larger) {
			fail(ENOMEM, "no memory for a list of %zu regions", room);
			return NULL;
		}
		search->found = larger;
		search->room = room;
	}
	return &search->found[search->count++];
}

/*
 * Reads the kernel's data about a file that may be a region. Returns false if the file cannot be a
 * region. Does not query a file server (AT_STATX_DONT_SYNC), because the server might not answer.
 */
static bool take_file(struct actmem_region_info *info, int pid, const char *path,
		      uint64_t *device)
{
	struct statx file;
	uid_t owner;

	if (statx(AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &file) ||
	    !S_ISREG(file.stx_mode) || !file.stx_size || file.stx_size > INT64_MAX ||
	    !process_owner(pid, &owner))
		return false;
	*device = makedev(file.stx_dev_major, file.stx_dev_minor);
	info->id = file.stx_ino;
	info->length = file.stx_size;
	info->allocated_bytes = file.stx_blocks * 512;
	info->backend = ACTMEM_BACKEND_MEMFD;
	info->pid = pid;
	info->uid = owner;
	return true;
}

/* Returns true if the file system can contain regions. Sets the page size, unless published. */
static bool take_file_system(struct actmem_region_info *info, const char *path)
{
	struct statfs files;

	if (statfs(path, &files) ||
	    (files.f_type != TMPFS_MAGIC && files.f_type != HUGETLBFS_MAGIC))
		return false;
	if (info->pages)
		return true;
	info->pages = files.f_type == HUGETLBFS_MAGIC ? pages_of_bytes((uint64_t)files.f_bsize) :
		      ACTMEM_PAGES_4K;
	info->page_bytes = pages_bytes(info->pages);
	return true;
}

static int add_region(struct region_search *search, uint64_t device,
		      const struct region_item *item, enum rank rank)
{
	struct found *found = find(search, device, item->info.id);

	if (found && found->rank >= rank)
		return 0;
	if (!found) {
		found = add_found(search);
		if (!found || !list_add(search->list))
			return -ENOMEM;
		found->device = device;
		found->id = item->info.id;
		found->item = search->list->count - 1;
	}
	found->rank = rank;
	item_copy(&search->list->items[found->item], item);
	return 0;
}

static int take_region(struct region_search *search, int pid, const char *path, const char *link)
{
	struct region_item item;
	uint64_t device;
	enum rank rank;

	item_init(&item);
	if (!take_label(item.info.name, link) || !take_file(&item.info, pid, path, &device))
		return 0;
	rank = take_published(search, device, item.info.id, &item.info);
	return take_file_system(&item.info, path) ? add_region(search, device, &item, rank) : 0;
}

/*
 * Copies the name of a file. Cuts off DELETED only if the file was removed: the name of an existing
 * file can itself end in DELETED.
 */
static void take_file_name(char name[ACTMEM_NAME_MAX], const char *link, bool is_removed)
{
	size_t length = is_removed ? length_of_path(link) : strlen(link);
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%.*s", (int)length, link);
	name_label(name, path);
}

/*
 * Adds a file as a named region, if it is on tmpfs or hugetlbfs and the process publishes it as a
 * region.
 */
static int take_named(struct region_search *search, int pid, const char *path, const char *link)
{
	struct region_item item;
	struct stat file;
	uint64_t device;
	enum rank rank;

	item_init(&item);
	if (!strncmp(link, "/memfd:", 7) || !take_file(&item.info, pid, path, &device))
		return 0;
	rank = take_published(search, device, item.info.id, &item.info);
	if (rank == RANK_HOLDER || !take_file_system(&item.info, path) || stat(path, &file))
		return 0;
	item.info.named = 1;
	item.info.uid = file.st_uid;
	take_file_name(item.info.name, link, !file.st_nlink);
	snprintf(item.path, sizeof(item.path), "%s", link);
	return add_region(search, device, &item, rank);
}

/* For each descriptor of a process, calls @take if the descriptor's link begins with @prefix. */
static int walk_links(struct region_search *search, int pid, const char *prefix,
		      int (*take)(struct region_search *search, int pid, const char *path,
				  const char *link))
{
	struct process_links links;
	int error = process_links_open(&links, pid);

	if (error)
		return fail(-error, "cannot read the descriptors of process %d (%s)", pid, strerror(-error));
	while (!error && process_links_next(&links, prefix))
		error = take(search, pid, links.path, links.link);
	process_links_close(&links);
	return error;
}

static int keep_stats(void *context, int fd)
{
	struct region_search *search = context;

	if (search->published_count < PUBLISHED_MAX)
		search->published[search->published_count++] = (struct published){ .fd = fd };
	else
		close(fd);
	return 0;
}

static int search_process(struct region_search *search, int pid)
{
	int error;

	search->published_count = 0;
	error = published_walk(pid, &published_stats, keep_stats, search);
	if (error)
		fail(-error, "cannot read what process %d publishes (%s)", pid, strerror(-error));
	else
		error = walk_links(search, pid, REGION_PREFIX, take_region);
	if (!error && search->published_count)
		error = walk_links(search, pid, "/", take_named);
	while (search->published_count)
		close(search->published[--search->published_count].fd);
	return error;
}

/* If the descriptor is a named region of the driver, records the region's path. */
static int take_path(struct region_search *search, int pid, const char *path, const char *link)
{
	char file[DESCRIPTOR_PATH_MAX], text[1024];
	struct statfs files;
	uint64_t id;
	size_t i;

	/*
	 * Only regions have an actmem-id. Do not query other files: an NFS server might not answer.
	 */
	snprintf(file, sizeof(file), "/proc/%d/fdinfo/%s", pid, strrchr(path, '/') + 1);
	if (sysfile_read(file, text, sizeof(text)))
		return 0;
	id = sysfile_number(text, "\nactmem-id:");
	if (!id || statfs(path, &files) || files.f_type != ACTMEM_SUPER_MAGIC)
		return 0;
	for (i = 0; i < search->list->count; i++) {
		struct region_item *item = &search->list->items[i];
		struct actmem_region_info *info = &item->info;

		if (info->backend != ACTMEM_BACKEND_DRIVER || info->id != id || !info->named ||
		    *item->path)
			continue;
		snprintf(item->path, sizeof(item->path), "%s", link);
		/*
		 * If the creator has ended or is not visible, show the process that has the region
		 * open.
		 */
		if (info->pid <= 0)
			info->pid = pid;
	}
	return 0;
}

static int search_paths(struct region_search *search, int pid)
{
	return walk_links(search, pid, "/", take_path);
}

static int search_all(struct region_search *search,
		      int (*look)(struct region_search *search, int pid))
{
	DIR *directory = opendir("/proc");
	int error = 0, pid;

	if (!directory)
		return fail(errno, "cannot look for processes (/proc: %s)", strerror(errno));
	if (access("/proc/self", F_OK)) {
		closedir(directory);
		return fail(ENOENT, "cannot look for processes: /proc is not mounted");
	}
	while (!error && (pid = process_next(directory)))
		error = look(search, pid);
	closedir(directory);
	return error;
}

int processes_list(struct region_list *list)
{
	struct region_search search = { .list = list };
	int error = search_all(&search, search_process);

	free(search.found);
	return error;
}

int processes_paths(struct region_list *list)
{
	struct region_search search = { .list = list };
	size_t i;

	for (i = 0; i < list->count; i++)
		if (list->items[i].info.named &&
		    list->items[i].info.backend == ACTMEM_BACKEND_DRIVER)
			return search_all(&search, search_paths);
	return 0;
}
