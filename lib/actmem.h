/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libactmem: pinned, NUMA-local, huge-page host memory for accelerators.
 *
 * Calls return 0 or a negative errno; actmem_error() then says in words what
 * was wanted, what was there and which knob helps. The library never prints,
 * never exits and never installs signal handlers. All sizes are bytes. Calls
 * are thread-safe unless their comment says otherwise. Structs that carry a
 * @size are set up with ACTMEM_INIT(), so that a program compiled today works
 * with a later library.
 *
 * After fork() a child must not use handles it inherited: every call on them
 * that can fail answers -EOWNERDEAD. It opens its own with actmem_open().
 */
#ifndef ACTMEM_H
#define ACTMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ACTMEM_VERSION_MAJOR	0
#define ACTMEM_VERSION_MINOR	1

#define ACTMEM_NODES_MAX	1024
#define ACTMEM_NAME_MAX		64	/* with the terminating NUL */
#define ACTMEM_PATH_MAX		1024	/* with the terminating NUL */

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct actmem;			/* an open backend */
struct actmem_region;		/* a length of pages, with a descriptor */
struct actmem_heap;		/* hands out blocks of regions */

/* A set of NUMA nodes: node n is bit n % 64 of word n / 64. Empty: default. */
struct actmem_nodes {
	uint64_t word[ACTMEM_NODES_MAX / 64];
};

enum actmem_backend {
	ACTMEM_BACKEND_AUTO,	/* driver where /dev/actmem can be used, else memfd */
	ACTMEM_BACKEND_DRIVER,	/* /dev/actmem or an error */
	ACTMEM_BACKEND_MEMFD,	/* memfd, no module and no root needed */
};

enum actmem_policy {
	ACTMEM_PLACE_DEFAULT,	/* what the options of actmem_open() say */
	ACTMEM_PLACE_BIND,	/* only the given nodes, or an error */
	ACTMEM_PLACE_PREFERRED,	/* the given node, or the caller's, first */
	ACTMEM_PLACE_INTERLEAVE,/* page i on the (i mod n)-th given node */
};

enum actmem_pages {
	ACTMEM_PAGES_DEFAULT,	/* what the options of actmem_open() say */
	ACTMEM_PAGES_2M,	/* 2 MiB: the driver's, or hugetlb's */
	ACTMEM_PAGES_THP,	/* 2 MiB transparent huge pages of shared memory */
	ACTMEM_PAGES_4K,	/* the base page */
	ACTMEM_PAGES_1G,	/* 1 GiB: hugetlb's, on either backend */
};

/*
 * What may be used instead of what was asked for. Nothing is, unless it is
 * allowed here; what was used is told by actmem_region_info() and counted.
 */
#define ACTMEM_ALLOW_THP	(1u << 0)	/* memfd: transparent huge pages for 1G or 2M */
#define ACTMEM_ALLOW_4K		(1u << 1)	/* memfd: base pages for larger ones */
#define ACTMEM_ALLOW_NODE	(1u << 2)	/* other nodes once bound ones are full */
#define ACTMEM_ALLOW_UNLOCKED	(1u << 3)	/* unpinned if RLIMIT_MEMLOCK refuses mlock */
#define ACTMEM_ALLOW_2M		(1u << 4)	/* 2M for 1G */

/*
 * How to open, and what regions get that do not say otherwise.
 */
struct actmem_options {
	size_t size;			/* set by ACTMEM_INIT */
	enum actmem_backend backend;
	enum actmem_pages pages;	/* DEFAULT: 2M */
	enum actmem_policy policy;	/* DEFAULT: PREFERRED if nodes is empty, else BIND */
	struct actmem_nodes nodes;
	uint32_t allow;			/* ACTMEM_ALLOW_* */
	uint32_t reserved;		/* 0 */
	const char *heap_name;		/* NULL: the regions of heaps have no names; see below */
};

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
	uint64_t node_bytes[ACTMEM_NODES_MAX];
	uint32_t uid;
	int32_t pid;			/* maker, or, if that has ended, a holder; 0: nobody */
	uint32_t lingering;		/* 1: closed and unmapped, kept by pins alone */
	uint32_t imported;		/* 1: see actmem_region_import(); driver: of 1G pages, too */
	char name[ACTMEM_NAME_MAX];
	char command[16];		/* of that process, "": nobody */
	uint64_t allocated_bytes;	/* of the pages that are there */
	uint64_t demand_faults;		/* pages that came when touched (driver) */
	uint64_t poisoned_bytes;	/* of pages out of use by hardware errors (driver) */
	uint64_t exported_bytes;	/* of its dma-bufs, what is in two counts twice (driver) */
	uint32_t named;			/* 1: a file, which outlives its processes; name is the file's */
	uint32_t sealed;		/* 1: nobody writes to it any more */
	char path[ACTMEM_PATH_MAX];	/* by actmem_list(), of a named one: where a process has it open */
};

/* Since actmem_open(); *_total only rise, the others return to 0. */
struct actmem_counters {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t regions;
	uint64_t region_bytes;
	uint64_t regions_mapped;
	uint64_t heaps;
	uint64_t blocks;
	uint64_t block_bytes;		/* as asked for */
	uint64_t block_bytes_peak;
	uint64_t region_bytes_peak;
	uint64_t regions_total;
	uint64_t blocks_total;
	uint64_t fallbacks_total;	/* allowed steps down: pages, node, unlocked */
	uint64_t stores;
	uint64_t spilled_bytes;		/* of their blocks that are in files alone */
};

/* struct actmem_options o; ACTMEM_INIT(&o); zeroes it and sets its size. */
#define ACTMEM_INIT(p)	actmem_init((p), sizeof(*(p)))

static inline void actmem_init(void *object, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		((unsigned char *)object)[i] = 0;
	*(size_t *)object = size;
}

/*
 * The last failure of this thread in words, "" before the first. Names the
 * thing, the number and the knob: "node 1 has 3.1 GiB free of 8.0 GiB wanted;
 * ...". Valid until this thread's next call.
 */
const char *actmem_error(void);

/* "0.1", of the library that runs. */
const char *actmem_version(void);

/*
 * Fills @options from the environment that `actmem run` sets up:
 *   ACTMEM_BACKEND=auto|driver|memfd  ACTMEM_PAGES=1G|2M|thp|4K
 *   ACTMEM_POLICY=bind|preferred|interleave  ACTMEM_NODES=0,2-3
 *   ACTMEM_ALLOW=2m,thp,4k,node,unlocked (or "any")  ACTMEM_NAME=/mnt/act1/job
 * Variables that are not set leave DEFAULT. -EINVAL for a value not listed.
 * heap_name then points into the environment.
 */
int actmem_options_from_environment(struct actmem_options *options);

/* The same from @variables, "NAME=value" up to a NULL, which heap_name then points into. */
int actmem_options_from_variables(const char *const *variables, struct actmem_options *options);

/*
 * Opens a backend. @options NULL: actmem_options_from_environment().
 *
 * -ENOENT, -ENXIO  driver asked for, no device or no module
 * -EACCES  driver asked for, /dev/actmem not permitted
 * -ENOENT, -EOPNOTSUPP, -EINVAL  heap_name: as for actmem_region_open()
 * -EPROTONOSUPPORT  library and driver too far apart in age
 * -EINVAL  unknown value, flag or node, reserved not 0
 */
int actmem_open(struct actmem **am, const struct actmem_options *options);

/*
 * -EBUSY while regions, heaps, queues or runtimes of it are open; nothing is closed
 * then. No other thread may be in a call on @am, or make one later: it is freed.
 */
int actmem_close(struct actmem *am);

enum actmem_backend actmem_backend(const struct actmem *am);

/*
 * Which backend is in use and why, in words: "memfd: /dev/actmem does not
 * exist (module not loaded)". Valid until actmem_close().
 */
const char *actmem_describe(const struct actmem *am);

int actmem_counters(struct actmem *am, struct actmem_counters *counters);

/*
 * Makes a region: all its pages are allocated, zeroed, on their nodes
 * (verified page by page) and pinned when the call returns, unless it is
 * ACTMEM_REGION_LAZY.
 *
 * Pages of 1G are those that the administrator reserved, by
 * /sys/devices/system/node/nodeN/hugepages/hugepages-1048576kB/nr_hugepages or,
 * while memory is in one piece, by the kernel's hugepagesz=1G hugepages=N. On the
 * driver such a region is one of memory that is imported: it is never lazy, its
 * pages are not discarded, and its memory counts for hugetlb's cgroup.
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
 * of this backend, or not open for reading and writing (for reading will do for
 * a memfd region with a name, which is then as by ACTMEM_OPEN_READ); -EBADF: not open;
 * -ENOMEM: RLIMIT_MEMLOCK, since a memfd's lock is each process's own (a step
 * down that actmem_open() allowed is told as by actmem_region_create()). Pages
 * that are missing stay so, as in a lazy region; memfd: if they were to be thp,
 * they come as 4K for who received the region.
 */
int actmem_region_from_fd(struct actmem *am, int fd,
			  struct actmem_region **region);

/*
 * A region of memory that is there: of @length bytes at @offset of a memfd, or of a
 * file of hugetlbfs or tmpfs, of pages of whatever size. What others see in the
 * file, one sees in the region. @fd stays the caller's, and can be closed. Pages
 * that are missing are allocated as by touching them, by the file's own policy;
 * all are pinned. @name: a label as of actmem_region_create(), or NULL.
 *
 * The file must not become shorter: a memfd that can be sealed needs
 * F_SEAL_SHRINK (fcntl(2)), and must not be sealed against writing. Pages are not
 * discarded (-EOPNOTSUPP): giving memory back is for its owner, who punches a
 * hole in the file or removes it, when no region has it.
 *
 * What differs:
 * driver  @offset and @length: multiples of 2 MiB, and of the pages of hugetlb.
 *	Memory is in one region at most, which any process can have by its
 *	descriptor. It counts against RLIMIT_MEMLOCK or the administrator's limits.
 *	If the owner punches a hole all the same, mappings show what the file has
 *	then, devices have the old pages, and actmem_region_copy() is -ESTALE there.
 * memfd  the whole file: @offset 0, @length the file's. RLIMIT_MEMLOCK counts for
 *	each process that imports it (4K, thp), as for actmem_region_from_fd(),
 *	which does not take such a descriptor: another process imports it, too.
 *
 * -EINVAL  no such file, or it ends before the range does; offset, length, name
 * -EBADF  @fd is not open for reading and writing
 * -EPERM  the seals;  -EBUSY  a region has a part of it already (driver)
 * -ENOMEM  missing pages cannot be had, or pages not be pinned; RLIMIT_MEMLOCK
 * -EIO  a page that the hardware has reported;  -ESTALE  truncated meanwhile
 * -EOPNOTSUPP  a driver that is too old;  -EDQUOT, -EMFILE  as by actmem_region_create()
 */
int actmem_region_import(struct actmem *am, int fd, uint64_t offset, uint64_t length,
			 const char *name, struct actmem_region **region);

/* It is made if it is not there. */
#define ACTMEM_OPEN_CREATE	(1u << 0)
/* With CREATE: -EEXIST if it is there. */
#define ACTMEM_OPEN_EXCLUSIVE	(1u << 1)
/*
 * For one user at a time: -EBUSY, naming the process, while somebody else has
 * opened it so. Ends with the last descriptor and mapping that came of this
 * call, also by kill -9 (flock(2)). Who does not ask for it is not kept out.
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
 * Who may open it is told by its permissions, 0600 to begin with.
 *
 * @path: a path; without a '/', a name in the actmem file system that is mounted
 * first. The file system says which backend it is: actmem the driver, hugetlbfs
 * and tmpfs memfd. If actmem_open() was told a backend, it must be that one.
 * @options: as for actmem_region_create(), but for the name, which is the
 * file's. Length 0: whatever it has (without CREATE). NULL: all defaults.
 *
 * Many may try to make it at once: one does, and the others find it, complete.
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
 *	with huge=advise. Who may write to it may also shorten it, and what is touched
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
 * -EINVAL  the other backend's file system, or no region; flags
 * -EACCES  its permissions;  -EBUSY  see ACTMEM_OPEN_LOCK
 * else as actmem_region_create()
 */
int actmem_region_open(struct actmem *am, const char *path,
		       const struct actmem_region_options *options, uint32_t flags,
		       struct actmem_region **region);

/* 1 if actmem_region_open() found it, 0 if this process made it. */
int actmem_region_found(const struct actmem_region *region);

/*
 * Nobody writes to the region from now on, in whatever process; it can still be
 * read, mapped (read-only) and removed.
 *
 * -EBUSY  somebody could still write: it is mapped, and not by ACTMEM_OPEN_READ, by
 *	this process or another one, or a device or I/O in flight holds pages
 * -EPERM  neither made nor owned by this user
 * -EOPNOTSUPP  memfd: the kernel seals no files of tmpfs and hugetlbfs, and the
 *	mapping that pins a region's pages is a writable one. Take permission to
 *	write from the file (chmod a-w) and open it with ACTMEM_OPEN_READ; or a
 *	driver that is too old
 */
int actmem_region_seal(struct actmem_region *region);

/* Its descriptor, close-on-exec. Owned by the region: dup() it to keep it. */
int actmem_region_fd(const struct actmem_region *region);

uint64_t actmem_region_length(const struct actmem_region *region);

/*
 * Maps the whole region shared, readable and, unless it is sealed or was opened
 * with ACTMEM_OPEN_READ, writable, at a 2 MiB-aligned address. Later calls return
 * the same address; each needs its unmap.
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

int actmem_region_info(struct actmem_region *region,
		       struct actmem_region_info *info);

/*
 * Allocates the pages that are missing in a range, zeroed, placed, verified and
 * pinned as by actmem_region_create(), and with its errors; those that are there
 * stay as they are. @offset and @length: multiples of the region's page size (of
 * 2 MiB on the driver, whatever was imported), @length not 0 (-EINVAL). What could
 * be had before an error is kept. Several threads may populate at once, and it is
 * best done before the pages are wanted.
 *
 * -EOPNOTSUPP: a driver that is too old.  -EIO  a page from another node, or one
 * in the range is lost to a hardware error: discard it.  -EPERM, here and below:
 * the region was opened with ACTMEM_OPEN_READ, or, below, is sealed.
 */
int actmem_region_populate(struct actmem_region *region, uint64_t offset, uint64_t length);

/*
 * Gives the pages of a range back, of every process that has the region: what
 * is touched next is zeros. @offset and @length as above. -EOPNOTSUPP: the memory
 * was imported, as that of 1G pages is on the driver.
 *
 * -EBUSY  the region is registered with a runtime (actmem_runtime.h). driver: a page that a device or I/O in flight holds stays, contents
 *	and all; the others have gone. Transient: it may take a moment for a
 *	holder that has ended to be gone, too.
 *
 * A memfd cannot tell who holds a page: one that a device still holds leaves
 * the region all the same, and what the device does to it is lost. Unregister
 * it, and wait for I/O to end, before.
 */
int actmem_region_discard(struct actmem_region *region, uint64_t offset, uint64_t length);

/*
 * Copies @length bytes, not 0, at any offsets, also within a region if the
 * ranges do not overlap. Pages that are missing in @from are read as zeros and
 * stay missing; those missing in @to are allocated, as by
 * actmem_region_populate() and with its errors. Neither need be mapped. Who
 * writes to either range meanwhile may find old and new bytes in any order.
 *
 * driver: CPUs of the node that is written to share a long copy, past their
 * caches. memfd: this thread copies.
 *
 * -EINVAL  ranges that overlap or end outside their regions, or regions of
 *	different backends
 * -EIO  the hardware reported an error in a page, which is out of use from then
 *	on; where it is and what was copied before it is told by actmem_error()
 * -EOPNOTSUPP  a driver that is too old
 */
int actmem_region_copy(struct actmem_region *to, uint64_t offset,
		       struct actmem_region *from, uint64_t from_offset, uint64_t length);

/* Nobody can write through the dma-buf: no process, no device, not the kernel. */
#define ACTMEM_DMABUF_READ_ONLY	(1u << 0)

/*
 * A range of the region as a dma-buf, which is how drivers of devices share
 * memory: importers are those of GPUs and other accelerators (DRM's PRIME), RDMA
 * (ibv_reg_dmabuf_mr) and video. *@fd is its descriptor, close-on-exec and the
 * caller's to close. @offset and @length: multiples of 2 MiB, @length not 0;
 * @flags: ACTMEM_DMABUF_*.
 *
 * Pages that are missing are allocated first, as by actmem_region_populate() and
 * with its errors. The pages stay, and actmem_region_discard() of them is
 * -EBUSY, as long as the dma-buf or what has been imported of it is there; so
 * does the region, also when it is closed. Map the dma-buf (mmap(2), MAP_SHARED)
 * at a 2 MiB-aligned address, or small pages will be mapped. Around accesses of
 * the CPU to what a device reads or writes belongs DMA_BUF_IOCTL_SYNC.
 *
 * A device that cannot reach the pages without copies (its DMA mask, or
 * swiotlb=force) is refused by the driver when the importer maps the dma-buf:
 * -EOPNOTSUPP, or what the importer makes of it; the kernel's log says why.
 *
 * -EINVAL  not a range of whole pages of the region; flags
 * -EOPNOTSUPP  memfd: actmem_error() says what to use; a driver that is too old,
 *	or a kernel without dma-buf
 * -EMFILE  too many descriptors
 */
int actmem_region_export(struct actmem_region *region, uint64_t offset, uint64_t length,
			 uint32_t flags, int *fd);

/*
 * Closes the descriptor, frees @region, and unmaps what is still mapped. The
 * memory goes back when no other process has the region either. No other thread
 * may be in a call on @region, or make one later. -EBUSY, and nothing is closed,
 * while the region is attached to a queue (actmem_queue_detach()) or registered with
 * a runtime (actmem_runtime.h).
 */
int actmem_region_close(struct actmem_region *region);

/*
 * Every region on this machine that the caller may see, of both backends, in
 * an array to be released with free(). Works without actmem_open(). A region
 * that several processes hold is listed once, with its maker if that lives.
 * After a success actmem_error() is "", or says why the driver did not answer.
 * @size: bytes of an item as the caller was compiled.
 */
int actmem_list_sized(struct actmem_region_info **regions, size_t *count,
		      size_t size);

static inline int actmem_list(struct actmem_region_info **regions, size_t *count)
{
	return actmem_list_sized(regions, count, sizeof(**regions));
}

struct actmem_heap_options {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t grow_bytes;		/* length of the regions it makes; 0: 64 MiB; of 1G pages rounded up */
	uint64_t limit_bytes;		/* of all its regions; 0: none */
	struct actmem_region_options region;	/* how to make them; its size and length are ignored */
};

struct actmem_heap_stats {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t regions;
	uint64_t region_bytes;
	uint64_t blocks;
	uint64_t block_bytes;		/* as asked for */
	uint64_t used_bytes;		/* what these blocks take of the regions */
	uint64_t used_bytes_peak;	/* of used_bytes and cached_bytes together */
	uint64_t largest_free;		/* longest block that fits without growing or recalling */
	uint64_t cached_bytes;		/* freed, and kept at hand by threads */
	uint64_t region_bytes_peak;
	uint64_t free_pieces;		/* that the rest of the regions is in */
	uint64_t blocks_total;		/* handed out since it was made */
	uint64_t cache_misses;		/* of these, that their thread did not have at hand */
	uint64_t recalls;		/* times that the heap needed what threads kept */
};

/*
 * A heap makes regions as it needs them and hands out blocks of them. Its
 * bookkeeping lies outside the regions. @options NULL: defaults.
 *
 * A region is as long as grow_bytes, or shorter where blocks of the length that
 * is wanted then fill it better, or longer where a block or 1/128 of the heap is.
 * A block lies within one region.
 *
 * Blocks that a thread frees, and whose length it also takes, it keeps at hand,
 * so that threads seldom wait for each other. What they keep is recalled before
 * the heap grows, and given back when a thread ends.
 *
 * If actmem_open() was given a heap_name, a path or a bare name as for
 * actmem_region_open(), the regions are files: heap_name.0, heap_name.1 and so
 * on, whatever length those have that are there already. They are opened with
 * ACTMEM_OPEN_LOCK, so that of two processes with one name the second fails
 * (-EBUSY from actmem_alloc()); several processes of one job need a name each.
 * They stay when heaps are trimmed or destroyed and when the process ends, and
 * the next one with that name takes them as they are: what it finds in its
 * blocks is what the last one left. They must be its user's own, and no symbolic
 * links. rm removes them.
 */
int actmem_heap_create(struct actmem *am,
		       const struct actmem_heap_options *options,
		       struct actmem_heap **heap);

struct actmem_heap_tuning {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t chunk_bytes;		/* in which regions are registered; 0: 64 GiB */
	uint64_t cache_bytes;		/* that each thread may keep at hand; 0: all there are */
};

/*
 * No block lies across a multiple of chunk_bytes of its region, which is a
 * multiple of 2 MiB and holds for regions made from now on. cache_bytes less
 * than a block is long: threads keep none. -EINVAL: chunk_bytes.
 */
int actmem_heap_tune(struct actmem_heap *heap, const struct actmem_heap_tuning *tuning);

/*
 * -EBUSY while blocks are live, or regions of it attached to a queue; nothing is
 * freed then.
 */
int actmem_heap_destroy(struct actmem_heap *heap);

/*
 * @bytes of pinned memory at *@block, aligned to @align (a power of two up to
 * 2 MiB; 0: 256). The contents are unspecified. Freed by actmem_free(), by
 * any thread. Never ordinary memory:
 *
 * -EINVAL  bytes is 0, absurd or more than chunk_bytes, align no power of two
 * -ENOMEM  the heap's limit, or what actmem_region_create() says
 */
int actmem_alloc(struct actmem_heap *heap, uint64_t bytes, uint64_t align,
		 void **block);

/* -EINVAL: not the start of a live block of this heap; nothing changes. */
int actmem_free(struct actmem_heap *heap, void *block);

/*
 * Gives what threads keep at hand back, and regions without live blocks, but for
 * named ones and those attached to a queue: these stay open.
 */
int actmem_heap_trim(struct actmem_heap *heap);

/*
 * The same, but no more regions than it takes for the heap to have @keep_bytes or less
 * free: the shortest that is enough, or else the longest first.
 */
int actmem_heap_trim_to(struct actmem_heap *heap, uint64_t keep_bytes);

int actmem_heap_stats(struct actmem_heap *heap, struct actmem_heap_stats *stats);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#endif /* ACTMEM_H */
