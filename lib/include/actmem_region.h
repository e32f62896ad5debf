/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions of libactmem: lengths of pages, each with a descriptor; made, found by
 * name, or received; mapped, filled and emptied, passed on and listed.
 * actmem.h includes it, and so comes first, whichever of the two a program includes.
 */
#include "actmem.h"

#ifndef ACTMEM_REGION_H
#define ACTMEM_REGION_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct actmem_region;		/* a length of pages, with a descriptor */

/* Mappings stay in forked children. Without it they have none. */
#define ACTMEM_REGION_INHERIT	(1u << 0)
/*
 * No page is there yet. Each comes by the policy when it is first touched, or
 * by actmem_region_populate(). A page that is touched and cannot be had is
 * SIGBUS, and -EFAULT to system calls.
 *
 * memfd: RLIMIT_MEMLOCK is asked for the whole length at once. 2M pages are
 * reserved, though not taken, until they are discarded; not on a certain node.
 * Where 4K and thp pages run out, the kernel kills a process instead of raising
 * SIGBUS: populate them. Where a touched page came from is not verified, and
 * interleaving goes round the nodes, but need not begin with the first.
 */
#define ACTMEM_REGION_LAZY	(1u << 1)

struct actmem_region_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t length;		/* a multiple of the page size, not 0 */
	enum actmem_pages pages;
	enum actmem_policy policy;
	struct actmem_nodes nodes;
	uint32_t flags;			/* ACTMEM_REGION_* */
	uint32_t allow;			/* ACTMEM_ALLOW_*, besides those of actmem_open() */
	const char *name;		/* a label for people, may be NULL: printable, no '/' */
};

/* One region as it is at the moment of the call. */
struct actmem_region_info {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t id;			/* driver: machine-wide; memfd: inode number */
	uint64_t length;
	uint64_t page_bytes;		/* of the smallest page in it */
	enum actmem_backend backend;
	enum actmem_pages pages;	/* what it really got */
	uint64_t mapped_bytes;
	uint64_t pinned_bytes;		/* held by others (driver), or locked (memfd) */
	uint64_t allocated_bytes;	/* of the pages that are there */
	uint64_t demand_faults;		/* pages that came when touched (driver) */
	uint64_t poisoned_bytes;	/* of pages out of use by hardware errors (driver) */
	uint64_t exported_bytes;	/* of its dma-bufs, what is in two counts twice (driver) */
	uint64_t *node_bytes;		/* on node i in element i; see the calls */
	uint32_t node_count;
	uint32_t uid;
	/* Maker, or, if that cannot be seen, a holder; 0: none; -1: in another pid namespace. */
	int32_t pid;
	uint32_t lingering;		/* 1: closed and unmapped, kept by pins alone */
	uint32_t named;			/* 1: a file, which outlives its processes and names it */
	uint32_t reserved;
	/* By actmem_region_list(), of a named one: where a process has it open; else NULL. */
	const char *path;
	char name[ACTMEM_NAME_MAX];
	char command[16];		/* of that process, "": nobody */
};

/*
 * Makes a region: all its pages are allocated, zeroed, on their nodes
 * (verified page by page) and pinned when the call returns, unless it is
 * ACTMEM_REGION_LAZY. Of 64 MiB and more they are made by threads beside the caller's:
 * one for every second CPU that he may run on, 15 at most, with his cgroups, which end
 * before the call does (memfd: by none if they are interleaved).
 *
 * Pages of 1G are those that the administrator reserved, by
 * /sys/devices/system/node/nodeN/hugepages/hugepages-1048576kB/nr_hugepages or,
 * while memory is in one piece, by the kernel's hugepagesz=1G hugepages=N. The backend
 * memfd has them, and makes such a region whichever is in use, unless the driver was
 * asked for: that is -EOPNOTSUPP, or, with ACTMEM_ALLOW_2M, a region of 2M.
 *
 * -EINVAL  length, pages, policy, nodes, flags, name
 * -ENOMEM  too few pages of the wanted size on the wanted nodes, or
 *	RLIMIT_MEMLOCK, or memory cgroup: actmem_error() tells which
 * -EDQUOT  the administrator's limit of the user or of a wanted node (driver):
 *	actmem_error() tells which, and the file that it is in
 * -ENODEV  a node has no memory;  -EPERM  a node outside the task's cpuset
 * -EOPNOTSUPP  a page size this backend does not have, or not lazily;  -EIO  a page
 *	came from another node;  -EFBIG  RLIMIT_FSIZE (memfd);  -EMFILE  too many
 *	descriptors, or 4096 regions (memfd)
 *
 * If an allowed step down was taken, it returns 0 and counts it, and
 * actmem_error() tells which and why; it is "" if none was. Smaller pages on
 * the wanted nodes are tried before other nodes.
 */
int actmem_region_create(struct actmem *am,
			 const struct actmem_region_options *options,
			 struct actmem_region **region);

/*
 * A region from a descriptor received from another process (SCM_RIGHTS) or
 * made by actmem_region_fd(). @fd stays the caller's. -EINVAL: not a region
 * of the backend asked for, or not open for reading and writing (for reading will do for
 * a memfd region with a name, which is then as by ACTMEM_OPEN_READ); -EBADF: not open;
 * -ENOMEM: RLIMIT_MEMLOCK, since a memfd's lock is each process's own (a step
 * down that actmem_open() allowed is told as by actmem_region_create()). Pages
 * that are missing stay so, as in a lazy region; memfd: if they were to be thp,
 * they come as 4K for who received the region.
 */
int actmem_region_from_fd(struct actmem *am, int fd,
			  struct actmem_region **region);

/* It is made if it is not there. */
#define ACTMEM_OPEN_CREATE	(1u << 0)
/* With CREATE: -EEXIST if it is there. */
#define ACTMEM_OPEN_EXCLUSIVE	(1u << 1)
/*
 * For one user at a time: -EBUSY, naming the process, while somebody else has
 * opened it so. Ends with the last descriptor and mapping that came of this
 * call, also by kill -9 (flock(2)). A process that does not ask for it is not kept out.
 */
#define ACTMEM_OPEN_LOCK	(1u << 2)
/* Only to read: mapped so, and permission to read will do. Not with CREATE. */
#define ACTMEM_OPEN_READ	(1u << 3)
/* One that is there may have another length than that of the options. */
#define ACTMEM_OPEN_ANY_LENGTH	(1u << 4)
/*
 * The user's own, and no symbolic link: -EACCES, -ELOOP. For names in folders where
 * others may write, too.
 */
#define ACTMEM_OPEN_OWN		(1u << 5)

/*
 * Opens a region that is a file, and so outlives its processes: who opens it
 * next finds its contents, and nothing is zeroed or allocated anew. rm or
 * unlink(2) removes it; its memory goes back when its last user has closed it.
 * File permissions decide who may open it, 0600 to begin with.
 *
 * @path: a path; without a '/', a name in the actmem file system that is mounted
 * first. The file system says which backend it is: actmem the driver, hugetlbfs
 * and tmpfs memfd. If actmem_open() was told a backend, it must be that one.
 * @options: as for actmem_region_create(), but for the name (NULL), which is the
 * file's. Length 0: whatever it has (without CREATE). NULL: all defaults.
 *
 * Many may try to make it at once: one does, and the others find it, complete. The
 * maker needs permission to write to the directory; driver: for the pages, too, of what
 * was an empty file there, whose owner and permissions the region has then, unless it is
 * lazy.
 * actmem_region_found() tells which. One that was found must have the wanted
 * length; its pages must be of the wanted kind and on the wanted nodes (memfd),
 * or its policy the wanted one if nodes or a policy were named (driver), unless
 * ACTMEM_ALLOW_* permits otherwise. They are not moved. Pages that are missing
 * in it stay so, as in a lazy region.
 *
 * What differs:
 * driver  RLIMIT_MEMLOCK and the limits of who made it are charged until it is
 *	removed. size= of the mount limits it. Its length never changes. It has 2M
 *	pages.
 * memfd  nobody is charged while nobody has it open; then mlock counts for each
 *	process that has (4K, thp). size= of the mount limits it. hugetlbfs has 2M
 *	or 1G pages, mounted with pagesize=2M or 1G; tmpfs has 4K, and thp if mounted
 *	with huge=advise. A process that may write to it may also shorten it, and a touch
 *	behind its end is SIGBUS. Other kinds of pages than the file system has
 *	count as steps down. Pages of a region on hugetlbfs of which some are
 *	missing are not looked at.
 *
 * -ENOENT  not there, or no directory of that name, or no actmem file system for
 *	a name without '/'; actmem_error() lists what is mounted
 * -EEXIST  there already (EXCLUSIVE), or not as wanted
 * -EOPNOTSUPP  a file system that cannot have regions: actmem_error() has the
 *	command that mounts one; or pages that this one does not have
 * -ENOSPC  size= of the mount
 * -EINVAL  the other backend's file system, or no region; flags;  -ENAMETOOLONG
 * -EACCES  its permissions;  -EBUSY  see ACTMEM_OPEN_LOCK
 * else as actmem_region_create()
 */
int actmem_region_open(struct actmem *am, const char *path,
		       const struct actmem_region_options *options, uint32_t flags,
		       struct actmem_region **region);

/* 1 if actmem_region_open() found it, 0 if this process made it. */
int actmem_region_found(const struct actmem_region *region);

/*
 * Its descriptor, close-on-exec, or a negative errno. Owned by the region: dup() it to
 * keep it.
 */
int actmem_region_fd(const struct actmem_region *region);

/* 0 for NULL, and as it was for a region that fork() brought along. */
uint64_t actmem_region_length(const struct actmem_region *region);

/*
 * Maps the whole region shared, readable and, unless it was opened with
 * ACTMEM_OPEN_READ, writable, at a 2 MiB-aligned address. Later calls return the
 * same address; each needs its unmap, which is -EINVAL if there is none left.
 * -ENOMEM and others: as mmap(2).
 *
 * If the hardware reports an uncorrected error in the memory, it is the page of
 * 2 MiB around it that is lost, not the region: whoever touches it gets SIGBUS
 * with si_code BUS_MCEERR_AR and the address in si_addr, a system call -EFAULT.
 * All of the page is gone, though si_addr_lsb tells of less (driver: 4 KiB).
 * Discard it, and what is touched or populated next in its place is a fresh page
 * of zeros. driver: a device that had it registered has it still; unregister it
 * before, or the discard is -EBUSY.
 */
int actmem_region_map(struct actmem_region *region, void **address);
int actmem_region_unmap(struct actmem_region *region);

/*
 * The state of one region. @node_bytes is an array of the caller's, and @node_count how
 * many elements it has; both are set before each call. Then @node_count says how many
 * nodes, from 0, have figures, which may be more than the array has room for; its other
 * elements are 0. NULL: the pages of no node are counted, which is quicker.
 *
 * -EIO  the kernel does not tell where its pages are;  -EINVAL  no @node_bytes of that
 *	count
 */
int actmem_region_get_info(struct actmem_region *region,
			   struct actmem_region_info *info);

/*
 * Allocates the pages that are missing in a range, zeroed, placed, verified and
 * pinned as by actmem_region_create(), and with its errors; those that are there
 * stay as they are. A long range is made by several threads, too. @offset and @length:
 * multiples of the region's page size, @length not 0 (-EINVAL). Pages made before an
 * error are kept. Several threads may populate at once, and it is best done before the
 * pages are wanted.
 *
 * -EIO  a page from another node, or one in the range is lost to a hardware error:
 * discard it.  -EPERM, here and below: the region was opened with ACTMEM_OPEN_READ.
 */
int actmem_region_populate(struct actmem_region *region, uint64_t offset, uint64_t length);

/*
 * Gives the pages of a range back, of every process that has the region: what
 * is touched next is zeros. @offset and @length as above.
 *
 * -EBUSY  the region is registered with a runtime (actmem_runtime.h), or with io_uring
 *	by a queue that it is attached to (unless ACTMEM_ATTACH_PLAIN). driver: a page
 *	that a device or I/O in flight holds stays, contents and all; the others have
 *	gone. Transient: it may take a moment for a holder that has ended to be gone, too.
 *
 * A memfd cannot tell who holds a page: one that a device still holds leaves
 * the region all the same, and what the device does to it is lost. Unregister
 * it, and wait for I/O to end, before.
 */
int actmem_region_discard(struct actmem_region *region, uint64_t offset, uint64_t length);

/*
 * A range of the region as a dma-buf, which is how drivers of devices share
 * memory: importers are those of GPUs and other accelerators (DRM's PRIME), RDMA
 * (ibv_reg_dmabuf_mr) and video. *@fd is its descriptor, close-on-exec and the
 * caller's to close. @offset and @length: multiples of 2 MiB, @length not 0.
 *
 * Pages that are missing are allocated first, as by actmem_region_populate() and
 * with its errors. The pages stay, and actmem_region_discard() of them is -EBUSY, as
 * long as the dma-buf or what has been imported of it is there; so does the region,
 * also when it is closed. The dma-buf cannot be mapped: the CPU reaches the memory by
 * the region's own mapping.
 *
 * A device whose DMA may be copied (its DMA mask is short of memory, or swiotlb=force)
 * is refused by the driver when the importer maps the dma-buf: -EOPNOTSUPP, or what the
 * importer makes of it. An IOMMU helps.
 *
 * -EINVAL  not a range of whole pages of the region
 * -EOPNOTSUPP  memfd: actmem_error() says what to use; or a kernel without dma-buf
 * -EPERM  the region was opened with ACTMEM_OPEN_READ
 * -ENODATA  a page is missing, as it was discarded meanwhile
 * -EMFILE  too many descriptors
 */
int actmem_region_export(struct actmem_region *region, uint64_t offset, uint64_t length, int *fd);

/*
 * Closes the descriptor, frees @region, and unmaps what is still mapped. The
 * memory goes back when no other process has the region either. No other thread
 * may be in a call on @region, or make one later. -EBUSY, and nothing is closed,
 * while the region is attached to a queue (actmem_queue_detach()), a queue's command
 * works on it, or it is registered with a runtime (actmem_runtime.h).
 */
int actmem_region_close(struct actmem_region *region);

/*
 * Every region on this machine that the caller may see, of both backends, in
 * an array of *@count to be released with free(), in which node_bytes (of node_count
 * elements) and path lie, too. Works without actmem_open(). A region that several
 * processes hold is listed once, with its maker if that lives.
 * After a success actmem_error() is "", or says why the driver did not answer.
 * @size: bytes of an item as the caller was compiled; actmem_region_list() sets it.
 */
int actmem_region_list_sized(struct actmem_region_info **regions, size_t *count,
			     size_t size);

static inline int actmem_region_list(struct actmem_region_info **regions, size_t *count)
{
	return actmem_region_list_sized(regions, count, sizeof(**regions));
}

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* ACTMEM_REGION_H */
