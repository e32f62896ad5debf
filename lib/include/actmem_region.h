/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Regions of libactmem: ranges of memory, each with a file descriptor. A region consists of huge or
 * small pages. A program creates a region, opens an existing region by name, or receives a region's
 * descriptor from another process. The program can map, populate, discard, export and list regions.
 *
 * A program may include this header or actmem.h: each includes the other.
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

struct actmem_region;		/* a range of memory with a file descriptor */

/* Forked children inherit mappings of the region. Without this flag, children inherit none. */
#define ACTMEM_REGION_INHERIT	(1u << 0)
/*
 * Allocate no page when the region is created: all pages are then missing. The kernel allocates
 * each missing page, according to the policy, when a thread first touches the page or calls
 * actmem_region_populate(). If the kernel cannot allocate the page, the thread gets SIGBUS; a
 * system call that touches the page fails with -EFAULT.
 *
 * memfd: The whole length of a region with 4K or thp pages counts against RLIMIT_MEMLOCK as soon as
 * the region is created. The kernel reserves all 2M pages of the region, but not on a particular
 * node. Discarded pages are no longer reserved. If 4K or thp pages run out, the kernel kills a
 * process instead of sending SIGBUS. To avoid that, populate the region before use. The library
 * does not verify the nodes of pages that a touch allocates. With interleaving, the first page can
 * be on any of the nodes.
 */
#define ACTMEM_REGION_LAZY	(1u << 1)
/*
 * Prefer the policy and the nodes, but do not demand them: permit fallbacks to other nodes as if
 * the options of the region set no policy and no nodes (see ACTMEM_ALLOW_*).
 */
#define ACTMEM_REGION_NEAR	(1u << 2)

struct actmem_region_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t length;		/* a multiple of the page size, not 0 */
	enum actmem_pages pages;
	enum actmem_policy policy;
	struct actmem_nodes nodes;
	uint32_t flags;			/* ACTMEM_REGION_* */
	uint32_t allow;			/* ACTMEM_ALLOW_*; see their comment in actmem.h */
	const char *name;		/* shown in lists; printable, without '/'; may be NULL */
};

/* The state of a region at the time of the call. */
struct actmem_region_info {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t id;			/* driver: unique on the machine; memfd: inode number */
	uint64_t length;
	uint64_t page_bytes;		/* length of the smallest page in the region */
	enum actmem_backend backend;
	enum actmem_pages pages;	/* kind of pages that the region got */
	uint64_t mapped_bytes;
	uint64_t pinned_bytes;		/* pinned for DMA or I/O (driver), or locked (memfd) */
	uint64_t allocated_bytes;	/* bytes of allocated pages */
	uint64_t demand_faults;		/* pages that page faults allocated (driver) */
	uint64_t poisoned_bytes;	/* bytes of pages that hardware errors destroyed (driver) */
	uint64_t exported_bytes;	/* length of all its dma-bufs, which can overlap (driver) */
	uint64_t surplus_bytes;		/* bytes to free because a limit is exceeded (driver) */
	uint64_t *node_bytes;		/* [i]: bytes on node i; see actmem_region_get_info() */
	uint32_t node_count;
	uint32_t uid;
	/*
	 * Process id of the creator. If the caller is not permitted to see the creator, this is the
	 * id of another process that has the region open or mapped. 0: no process; -1: a process in
	 * another pid namespace.
	 */
	int32_t pid;
	uint32_t lingering;		/* 1: closed and unmapped, but pages are still pinned */
	uint32_t named;			/* 1: the region is a file, and outlives its processes */
	uint32_t reserved;
	/*
	 * Set by actmem_region_list() to the path of a named region if a process has it open; else
	 * NULL.
	 */
	const char *path;
	char name[ACTMEM_NAME_MAX];
	char command[16];		/* command name of process @pid; "": no process */
};

/*
 * Creates a region. Without ACTMEM_REGION_LAZY, all pages are allocated, zeroed and pinned when the
 * call returns, and the library has verified the node of each page. For 64 MiB and more, the call
 * starts helper threads in the caller's cgroups: half as many as there are CPUs in the caller's
 * affinity mask, at most 15. The threads end before the call returns. With interleaving, memfd
 * starts no helper threads.
 *
 * The administrator must reserve 1G pages: at boot with the kernel parameters hugepagesz=1G
 * hugepages=N, or after boot with
 * /sys/devices/system/node/nodeN/hugepages/hugepages-1048576kB/nr_hugepages. After boot, memory can
 * be too fragmented for 1G pages. Regions of 1G pages always use the memfd backend. If the caller
 * asked for the driver and 1G pages, the call returns -EOPNOTSUPP or, with ACTMEM_ALLOW_2M, creates
 * a region of 2M pages.
 *
 * -EINVAL  wrong length, pages, policy, nodes, flags or name
 * -ENOMEM  RLIMIT_MEMLOCK or the limit of a memory cgroup is too low, or the wanted nodes have too
 *	few pages of the wanted size. actmem_error() says which
 * -EDQUOT  the region would exceed a limit that the administrator set for the user or for a wanted
 *	node (driver). actmem_error() names the limit and the file that sets it
 * -ENODEV  a node has no memory
 * -EPERM  a node is outside the task's cpuset
 * -EOPNOTSUPP  the backend lacks this page size, or supports it only without ACTMEM_REGION_LAZY
 * -EIO  a page is on a node that was not wanted
 * -EFBIG  the region would be longer than RLIMIT_FSIZE permits (memfd)
 * -EMFILE  too many descriptors are open, or 4096 memfd regions (the maximum) are open
 *
 * If the library used a fallback that the caller allowed, the call returns 0, and actmem_error()
 * says which fallback and why. The counter fallbacks_total of @am counts the fallback. If the
 * library used no fallback, actmem_error() is "". The library tries smaller pages on the wanted
 * nodes before it tries other nodes.
 */
int actmem_region_create(struct actmem *am,
			 const struct actmem_region_options *options,
			 struct actmem_region **region);

/*
 * Opens a region from its descriptor. @fd is a descriptor that another process sent (SCM_RIGHTS,
 * unix(7)), or that actmem_region_fd() returned. The call does not take over @fd: the caller must
 * close it. If another process sent @fd, the two processes share the memory. Each process must
 * close the struct actmem_region that it opened. This call allocates no missing pages; a later
 * touch allocates them, as in a lazy region. memfd: if the region has thp pages, a touch by the
 * receiver allocates 4K pages. If the call uses a fallback that the options of @am permit
 * (ACTMEM_ALLOW_*), actmem_error() says which, as after actmem_region_create().
 *
 * -EINVAL  @fd is not a region of the backend that the caller asked for, or @fd is not open for
 *	reading and writing. Exception: if @fd is a named memfd region that is open only for
 *	reading, the call succeeds, as with ACTMEM_OPEN_READ
 * -EBADF  @fd is not open
 * -ENOMEM  RLIMIT_MEMLOCK is too low: each process that maps a memfd region locks the region's 4K
 *	and thp pages, which count against the limit of this process
 */
int actmem_region_from_fd(struct actmem *am, int fd,
			  struct actmem_region **region);

/* Create the region if it does not exist. */
#define ACTMEM_OPEN_CREATE	(1u << 0)
/* With ACTMEM_OPEN_CREATE: return -EEXIST if the region exists. */
#define ACTMEM_OPEN_EXCLUSIVE	(1u << 1)
/*
 * Lock the region. If another process has the region open with this flag, return -EBUSY with an
 * error message that names the process. The lock is a flock(2): it ends when all descriptors from
 * this call and their duplicates are closed, and all mappings of these descriptors are unmapped. So
 * the lock also ends when the processes with these descriptors and mappings are killed. The lock
 * does not stop processes that open the region without this flag.
 */
#define ACTMEM_OPEN_LOCK	(1u << 2)
/*
 * Open and map the region only for reading, without write permission. Must not be combined with
 * ACTMEM_OPEN_CREATE.
 */
#define ACTMEM_OPEN_READ	(1u << 3)
/* Accept an existing region whose length differs from the length in the options. */
#define ACTMEM_OPEN_ANY_LENGTH	(1u << 4)
/*
 * Accept only a file that the calling user owns (else -EACCES) and that is not a symbolic link
 * (else -ELOOP). Use this flag in directories that other users may write to.
 */
#define ACTMEM_OPEN_OWN		(1u << 5)

/*
 * Opens a region that is a file, and therefore outlives the processes that use it. The next process
 * that opens the region finds the old contents; the kernel does not allocate or zero the pages
 * again. rm(1) or unlink(2) removes the file. After the file is removed, the memory is freed when
 * the last process closes the region. The file's permissions, initially 0600, say which users may
 * open it.
 *
 * @path: a path, or a name without '/'. A name denotes a file in the first mounted actmem file
 * system. The type of the file system determines the backend: a file on an actmem file system uses
 * the driver backend; a file on hugetlbfs or tmpfs uses the memfd backend. If the caller passed a
 * backend to actmem_open(), the file system must belong to that backend.
 * @options: as for actmem_region_create(). The name in @options must be NULL, because the file has
 * a name. Without ACTMEM_OPEN_CREATE, a length of 0 accepts any length. If @options is NULL, the
 * defaults apply.
 * @flags: ACTMEM_OPEN_*.
 *
 * If several processes create the region at once, one process creates it, and the others open the
 * region when it is complete. actmem_region_found() says whether the caller created the region. The
 * creator needs write permission for the directory. driver: if an empty file exists at @path, the
 * creator also needs write permission for that file, unless the region is lazy. The region keeps
 * the owner and the permissions of that file.
 *
 * An existing region must have the wanted length, unless ACTMEM_OPEN_ANY_LENGTH is set. memfd: the
 * region's pages must have the wanted size and be on the wanted nodes. driver: if the options set
 * nodes or a policy, the region must have the same nodes and policy. ACTMEM_ALLOW_* permits other
 * pages and nodes. The library does not move pages. Missing pages stay missing, as in a lazy
 * region.
 *
 * The backends differ:
 * Driver  The region counts against RLIMIT_MEMLOCK and the limits of its creator until the region
 *	is removed. The mount option size= limits the file system. The length of the region never
 *	changes. The region has 2M pages.
 * Memfd  While no process has the region open, the region counts against no user's limit. 4K and
 *	thp pages count against RLIMIT_MEMLOCK of each process that has the region open. The mount
 *	option size= limits the file system. hugetlbfs has 2M or 1G pages (pagesize=2M or 1G); tmpfs
 *	has 4K pages, and thp if it is mounted with huge=advise. If the file system lacks the
 *	requested page size, the call fails unless ACTMEM_ALLOW_* permits the pages that the file
 *	system has. A process with write permission can shorten the file. A thread that then touches
 *	memory beyond the file's end gets SIGBUS. If a region on hugetlbfs has missing pages, the
 *	library does not check the nodes of its pages.
 *
 * -ENOENT  no such file or directory; or @path has no '/', and no actmem file system is mounted:
 *	actmem_error() then lists the mounted hugetlbfs and tmpfs file systems
 * -EEXIST  the region exists (ACTMEM_OPEN_EXCLUSIVE), or differs from the options
 * -EOPNOTSUPP  the file system lacks this page size, or cannot have regions: the message of
 *	actmem_error() contains a command that mounts a suitable file system
 * -ENOSPC  the region would exceed the limit that the mount option size= sets
 * -EINVAL  the file system belongs to the other backend, the file is not a region, or the flags are
 *	wrong
 * -ENAMETOOLONG  the path is too long
 * -EACCES  the file's permissions do not allow the access, or (ACTMEM_OPEN_OWN) another user owns
 *	the file
 * -ELOOP  the file is a symbolic link (ACTMEM_OPEN_OWN)
 * -EBUSY  another process has opened the region with ACTMEM_OPEN_LOCK
 * others  the errors of actmem_region_create() and open(2)
 */
int actmem_region_open(struct actmem *am, const char *path,
		       const struct actmem_region_options *options, uint32_t flags,
		       struct actmem_region **region);

/*
 * Returns whether a region existed before actmem_region_open().
 *
 * 1  the region existed
 * 0  the call created the region
 */
int actmem_region_found(const struct actmem_region *region);

/*
 * Returns the descriptor of a region. The descriptor is close-on-exec, and is closed with the
 * region; dup(2) makes a copy that stays open. A process can send a descriptor to another process
 * over a socket (SCM_RIGHTS). The receiver opens the region with actmem_region_from_fd().
 *
 * >= 0  the descriptor
 */
int actmem_region_fd(const struct actmem_region *region);

/* Returns the length of a region, and 0 for NULL. The call also works in a forked child. */
uint64_t actmem_region_length(const struct actmem_region *region);

/*
 * Maps or unmaps a region. actmem_region_map() maps the whole region at an address that is a
 * multiple of 2 MiB. The mapping is shared, readable and, unless the region was opened with
 * ACTMEM_OPEN_READ, writable. If the region is already mapped, the call returns the same address.
 * Each call of actmem_region_map() needs one call of actmem_region_unmap(). The last of these calls
 * unmaps the memory. actmem_region_close() unmaps a region that is still mapped.
 *
 * -EINVAL  there were more calls of actmem_region_unmap() than of actmem_region_map()
 * -ENOMEM and others  errors of mmap(2)
 *
 * If the hardware reports an uncorrected memory error, the 2 MiB page around the error is lost, but
 * not the rest of the region. A thread that touches the page gets SIGBUS with si_code BUS_MCEERR_AR
 * and the address in si_addr; a system call returns -EFAULT. The whole page is lost, even if
 * si_addr_lsb denotes a smaller range. (With the driver, si_addr_lsb denotes 4 KiB.) Discard the
 * page. The next touch, or the next call of actmem_region_populate(), then allocates a zeroed page.
 * driver: if the region is registered with a device, the device still uses the lost page.
 * Unregister the region first: otherwise, actmem_region_discard() returns -EBUSY.
 */
int actmem_region_map(struct actmem_region *region, void **address);
int actmem_region_unmap(struct actmem_region *region);

/*
 * Returns the state of a region. Before each call, the caller sets node_bytes to an array, and
 * node_count to the array's number of elements. The call sets node_count to 1 plus the highest
 * number of a node that has pages of the region. The new node_count can exceed the array's number
 * of elements. The call sets unused elements of the array to 0. If node_bytes is NULL, the call is
 * faster because it does not count pages by node.
 *
 * -EIO  the kernel does not report the nodes of the pages
 * -EINVAL  node_count is not 0, but node_bytes is NULL
 */
int actmem_region_get_info(struct actmem_region *region,
			   struct actmem_region_info *info);

/*
 * Allocates the missing pages of a range. The call starts the same helper threads and returns the
 * same errors as actmem_region_create(). Existing pages stay as they are. A touch also allocates a
 * missing page. If the allocation fails, a touch causes SIGBUS, but this call returns an error.
 * Several threads may populate a region at once. After an error, the pages that the call has
 * allocated so far stay.
 *
 * -EINVAL  @offset or @length is not a multiple of the region's page size, or @length is 0
 * -EIO  a page is on another node than requested, or a hardware error destroyed a page: in both
 *	cases, discard the page
 * -EPERM  the region was opened with ACTMEM_OPEN_READ
 */
int actmem_region_populate(struct actmem_region *region, uint64_t offset, uint64_t length);

/*
 * Frees the pages of a range. The pages disappear for all processes that use the region. The next
 * touch allocates a zeroed page.
 *
 * -EINVAL, -EPERM  as for actmem_region_populate()
 * -EBUSY  the region is registered with a runtime (actmem_runtime.h), or a queue registered it with
 *	io_uring (see ACTMEM_ATTACH_PLAIN). With the driver, the call also fails if a device or I/O
 *	in flight pins a page. The pinned page keeps its contents; the other pages are freed. The
 *	error can be transient: the kernel sometimes releases a pin shortly after the process that
 *	pinned the page has ended
 *
 * memfd: the kernel does not report pins of a page. If a device still pins a discarded page, data
 * that the device writes to the page is lost. Before this call, unregister the region and wait for
 * I/O.
 */
int actmem_region_discard(struct actmem_region *region, uint64_t offset, uint64_t length);

/*
 * Exports a range of a region as a dma-buf. Device drivers share memory as dma-bufs. Importers are
 * drivers of GPUs and other accelerators (DRM's PRIME), RDMA adapters (ibv_reg_dmabuf_mr) and video
 * devices. The call stores a close-on-exec descriptor in *@fd, and the caller must close it.
 * @offset and @length must be multiples of 2 MiB, and @length must not be 0.
 *
 * The call first allocates missing pages, and can return the errors of actmem_region_populate().
 * The pages stay as long as the dma-buf or an import of it exists, even if the region is closed.
 * actmem_region_discard() of these pages returns -EBUSY. mmap(2) of the dma-buf's descriptor fails:
 * the CPU accesses the memory through the region's mapping.
 *
 * When an importer maps the dma-buf for a device, the actmem driver refuses a device whose DMA
 * would need bounce buffers. A device needs bounce buffers if its DMA mask is too small, or if
 * swiotlb=force is set. The importer gets -EOPNOTSUPP, but can return a different error to its
 * caller. With an IOMMU, no device needs bounce buffers.
 *
 * -EINVAL  the range does not consist of whole pages of the region
 * -EOPNOTSUPP  the backend is memfd (actmem_error() says what to use instead), or the kernel lacks
 *	dma-buf
 * -EPERM  the region was opened with ACTMEM_OPEN_READ
 * -ENODATA  another thread discarded a page meanwhile
 * -EMFILE  too many descriptors are open
 */
int actmem_region_export(struct actmem_region *region, uint64_t offset, uint64_t length, int *fd);

/*
 * Unmaps and closes a region, and frees the struct @region. Unless the region is a file, its memory
 * is freed when no process has the region open or mapped any more. No other thread may use @region
 * during the call or later.
 *
 * -EBUSY  the region is attached to a queue (actmem_queue_detach()), or registered with a runtime
 *	(actmem_region_unregister()); nothing is closed
 */
int actmem_region_close(struct actmem_region *region);

/*
 * Lists the regions on this machine. The call stores an allocated array in *@regions, and its
 * number of elements in *@count. The array has the regions of both backends, except those that the
 * caller is not permitted to see. free(3) of the array also frees path and node_bytes (node_count
 * elements) of each region. The call works without actmem_open(). A region that several processes
 * have open or mapped is listed once. The entry of a region shows the creator if the creator still
 * runs. After a success, actmem_error() is "" or says why the driver did not answer. @size: the
 * caller's sizeof(struct actmem_region_info). actmem_region_list() passes this size.
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
