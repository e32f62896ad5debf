/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Reads /proc/self/maps and /proc/self/pagemap. If the preload cannot read them, memory counts as
 * touched. That is no error even in strict mode, because most programs register memory that they
 * have touched.
 *
 * mincore(2) is not enough: it reports pages in swap as absent, like untouched pages, but pages in
 * swap hold data.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "machine/machine.h"
#include "preload/say.h"
#include "preload/cuda/untouched.h"

#define ENTRIES		2048U
/* The page is present, in swap, or part of a file: see pagemap in the kernel's documentation. */
#define ENTRY_TOUCHED	(7ULL << 61)

void cuda_policy_of(struct cuda_policy *policy, const void *address)
{
	*policy = (struct cuda_policy){ .mode = MPOL_DEFAULT };
	if (syscall(SYS_get_mempolicy, &policy->mode, policy->nodes.word,
		    (unsigned long)ACTMEM_NODES_MAX + 1, address, (unsigned long)MPOL_F_ADDR))
		*policy = (struct cuda_policy){ .mode = MPOL_DEFAULT };
}

struct mapping {
	uintptr_t first, end;
	bool is_plain;			/* private, anonymous, readable and writable */
	bool is_shm;			/* a file in /dev/shm */
};

/*
 * Parses a line of /proc/self/maps. Returns false if the line does not begin with a range of
 * addresses, because it is the rest of a line that was longer than the buffer.
 */
static bool parse_mapping(const char *line, struct mapping *mapping)
{
	unsigned long first, end, offset, inode;
	unsigned int major_number, minor_number;
	char access[5], name[16] = "";

	if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %15s", &first, &end, access, &offset,
		   &major_number, &minor_number, &inode, name) < 7)
		return false;
	mapping->first = first;
	mapping->end = end;
	mapping->is_plain = !strcmp(access, "rw-p") && !inode && !major_number &&
			    !minor_number && (!*name || !strncmp(name, "[anon:", 6));
	mapping->is_shm = !strncmp(name, "/dev/shm/", 9);
	return true;
}

/*
 * Returns true if plain mappings (see is_plain) cover the range. Sets *@is_whole to true if these
 * mappings contain nothing except the range.
 */
static bool has_plain_only(uintptr_t first, uintptr_t end, bool is_verbose, bool *is_whole)
{
	FILE *file = fopen("/proc/self/maps", "re");
	uintptr_t reached = first, begin = 0;
	struct mapping mapping;
	char line[512];

	while (file && reached < end && fgets(line, sizeof(line), file)) {
		if (!parse_mapping(line, &mapping) || mapping.end <= first)
			continue;
		if (is_verbose && mapping.first <= reached && mapping.is_shm)
			say_once(TALE_SHARED, "cuMemHostRegister of %s at %p uses the program's own pages instead of a region: the range is shared memory in /dev/shm",
				 SAY_BYTES(end - first), (void *)first);
		if (mapping.first > reached || !mapping.is_plain)
			break;
		if (reached == first)
			begin = mapping.first;
		reached = mapping.end;
	}
	if (file)
		fclose(file);
	*is_whole = begin == first && reached == end;
	return reached >= end;
}

/* Returns true if none of @count pages from page number @entry on was touched. */
static bool are_empty(int fd, uint64_t entry, uint64_t count)
{
	uint64_t entries[ENTRIES];

	while (count) {
		size_t some = count < ENTRIES ? count : ENTRIES, i;
		ssize_t got = pread(fd, entries, some * sizeof(entries[0]),
				    (off_t)(entry * sizeof(entries[0])));

		if (got < 0 && errno == EINTR)
			continue;
		if (got != (ssize_t)(some * sizeof(entries[0])))
			return false;
		for (i = 0; i < some; i++)
			if (entries[i] & ENTRY_TOUCHED)
				return false;
		entry += some;
		count -= some;
	}
	return true;
}

bool cuda_is_untouched(const void *address, size_t bytes, const struct cuda_policy *policy,
		       bool is_verbose)
{
	uintptr_t first = (uintptr_t)address;
	bool is_whole, is_untouched;
	int fd;

	if (!has_plain_only(first, first + bytes, is_verbose, &is_whole) ||
	    (!is_whole && policy->mode == MPOL_DEFAULT))
		return false;
	fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		say_once(TALE_UNSEEN, "registered memory gets no pages of regions, because it may contain data: cannot read /proc/self/pagemap to check (%s)",
			 strerror(errno));
		return false;
	}
	is_untouched = are_empty(fd, first / BASE_PAGE_BYTES, bytes / BASE_PAGE_BYTES);
	close(fd);
	return is_untouched;
}
