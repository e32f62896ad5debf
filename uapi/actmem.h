/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The whole contract between the actmem driver and user space.
 *
 * /dev/actmem answers ACTMEM_IOC_QUERY, _CREATE, _IMPORT, _LIST and _INFO (by id); the
 * descriptor of a region answers ACTMEM_IOC_INFO, _POPULATE, _DISCARD and
 * _COPY, and takes the last three through io_uring too (struct actmem_uring).
 * Everything else that can be done with a region is done to its descriptor as
 * to any file: mmap(MAP_SHARED), SCM_RIGHTS, close, reopen through /proc/PID/fd.
 *
 * Every struct begins with its own size as user space was compiled with it.
 * A driver that knows more fields takes the missing ones as 0 and returns no
 * more than @size bytes; a driver that knows fewer accepts the surplus only
 * if it is all 0 (E2BIG otherwise). Input flags and reserved fields that the
 * driver does not know must be 0 (EINVAL otherwise). An unknown request is
 * ENOTTY. A bad user pointer is EFAULT.
 */
#ifndef _UAPI_LINUX_ACTMEM_H
#define _UAPI_LINUX_ACTMEM_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * The version of this contract. It grows when a field, flag or request is
 * added; ACTMEM_ABI_OLDEST is the oldest peer that this side still accepts.
 */
#define ACTMEM_ABI_VERSION	3
#define ACTMEM_ABI_OLDEST	1

/* A region is made of pages of this size, in bytes. */
#define ACTMEM_PAGE_BYTES	(2ULL << 20)

/* Nodes are named by bit: node n is bit n % 64 of word n / 64. */
#define ACTMEM_NODE_WORDS	16
#define ACTMEM_NODE_MAX		(ACTMEM_NODE_WORDS * 64)

/* Bytes of a region's name, the terminating NUL included. */
#define ACTMEM_NAME_BYTES	64

/**
 * struct actmem_ioctl_query - ACTMEM_IOC_QUERY: who is there, what can it do
 * @size: sizeof(struct actmem_ioctl_query)
 * @flags: in: 0
 * @abi: in: the caller's ACTMEM_ABI_VERSION; out: the driver's
 * @abi_oldest: in: the oldest driver the caller accepts; out: the oldest
 *	caller the driver accepts
 * @features: out: ACTMEM_FEATURE_* bits
 * @page_bytes: out: bytes of a page, the unit of lengths and offsets
 * @max_region_bytes: out: the longest region that can be created, in bytes
 * @node_count: out: highest possible node number + 1
 * @reserved: in: 0
 *
 * Fails with EPROTONOSUPPORT if either side is too old for the other; the
 * struct is filled in all the same, so that both versions can be told.
 */
struct actmem_ioctl_query {
	__u32 size;
	__u32 flags;
	__u32 abi;
	__u32 abi_oldest;
	__u64 features;
	__u64 page_bytes;
	__u64 max_region_bytes;
	__u32 node_count;
	__u32 reserved;
};

/* The kernel hands io_uring's commands to drivers. */
#define ACTMEM_FEATURE_URING		(1ULL << 0)
/* Memory that others made can be a region. */
#define ACTMEM_FEATURE_IMPORT		(1ULL << 3)

/*
 * Where the pages of a region come from. Every page is verified to be where
 * the policy put it before the region is handed out.
 *
 * BIND	only the nodes of the mask, nearest to the calling CPU first.
 *	The mask must not be empty.
 * PREFERRED	the one node of the mask (the calling CPU's if the mask is
 *	empty), then the other nodes the task may use, nearest first.
 * INTERLEAVE	page i on the (i modulo n)-th of the n nodes of the mask; if it
 *	is empty, of all nodes that the task may use when it creates the region.
 *	A full node is an error.
 *
 * A node of the mask that has no memory is ENODEV, one that the task's cpuset
 * forbids is EPERM: a mask is never narrowed silently. Both hold for whoever
 * creates the region, and again for whoever has a page allocated later.
 */
#define ACTMEM_POLICY_BIND		0
#define ACTMEM_POLICY_PREFERRED		1
#define ACTMEM_POLICY_INTERLEAVE	2

/*
 * Mappings are inherited by a forked child. Without it the child has none
 * (as after madvise(MADV_DONTFORK)).
 */
#define ACTMEM_CREATE_INHERIT		(1U << 0)
/*
 * No page is allocated yet. Each is when it is first touched, or by
 * ACTMEM_IOC_POPULATE.
 */
#define ACTMEM_CREATE_LAZY		(1U << 1)

/* Why pages could not be had, where the errno alone does not tell. */
#define ACTMEM_WHY_NONE			0
#define ACTMEM_WHY_NODE_FULL		1	/* ENOMEM: @node lacks free huge pages */
#define ACTMEM_WHY_MEMLOCK		2	/* ENOMEM: RLIMIT_MEMLOCK */
#define ACTMEM_WHY_CPUSET		3	/* EPERM: cpuset forbids @node */
#define ACTMEM_WHY_NO_MEMORY_NODE	4	/* ENODEV: @node has no memory */
#define ACTMEM_WHY_MISPLACED		5	/* EIO: a page came from another node */
#define ACTMEM_WHY_MEMCG		6	/* ENOMEM: the memory cgroup's limit */
#define ACTMEM_WHY_USER_LIMIT		7	/* EDQUOT: the administrator's, of the user */
#define ACTMEM_WHY_NODE_LIMIT		8	/* EDQUOT: the administrator's, of @node */
#define ACTMEM_WHY_IMPORT		12	/* of the memory itself, see ACTMEM_IOC_IMPORT */

/**
 * struct actmem_why - why pages could not be had
 * @reason: ACTMEM_WHY_*
 * @node: the node that @reason speaks of, or -1
 * @wanted: bytes wanted from that node, or under that limit
 * @available: bytes that this node had to give (in pages of this size, outside
 *	its movable zone), that were left under the limit, or that the memory
 *	cgroup let the call have
 * @movable: bytes free on that node that cannot be pinned since they were
 *	onlined as movable
 */
struct actmem_why {
	__u32 reason;
	__s32 node;
	__u64 wanted;
	__u64 available;
	__u64 movable;
};

/**
 * struct actmem_ioctl_create - ACTMEM_IOC_CREATE: a new region
 * @size: sizeof(struct actmem_ioctl_create)
 * @flags: in: ACTMEM_CREATE_* bits
 * @length: in: bytes; a multiple of @page_bytes, not 0, at most
 *	max_region_bytes of the query (EINVAL otherwise)
 * @page_bytes: in: ACTMEM_PAGE_BYTES (EINVAL otherwise)
 * @policy: in: ACTMEM_POLICY_* (EINVAL if unknown, or if the mask does not fit)
 * @fd: out: descriptor of the region, O_RDWR and O_CLOEXEC
 * @nodes: in: node mask of the policy
 * @id: out: identifies the region on this machine until the module is
 *	unloaded; never reused
 * @why: out: also when the call fails
 * @name: in: a label for people, NUL-terminated, printable, without '/'
 *	(EINVAL otherwise); may be empty; need not be unique
 *
 * Unless ACTMEM_CREATE_LAZY is given, all pages are allocated, zeroed and placed
 * when the call returns. EINTR if the task was killed meanwhile; EMFILE, ENFILE
 * as for open(2).
 */
struct actmem_ioctl_create {
	__u32 size;
	__u32 flags;
	__u64 length;
	__u64 page_bytes;
	__u32 policy;
	__s32 fd;
	__u64 nodes[ACTMEM_NODE_WORDS];
	__u64 id;
	struct actmem_why why;
	char name[ACTMEM_NAME_BYTES];
};

/**
 * struct actmem_ioctl_import - ACTMEM_IOC_IMPORT: a region of memory that exists
 * @size: sizeof(struct actmem_ioctl_import)
 * @flags: in: ACTMEM_CREATE_INHERIT or 0
 * @memory_fd: in: a memfd, or a file of hugetlbfs or tmpfs; open for reading and
 *	writing (EBADF otherwise)
 * @fd: out: descriptor of the region, O_RDWR and O_CLOEXEC
 * @offset: in: bytes from the start of that file
 * @length: in: bytes, not 0, at most max_region_bytes of the query. Both are
 *	multiples of ACTMEM_PAGE_BYTES, and of the file's pages if it is hugetlb's
 *	(EINVAL otherwise)
 * @page_bytes: out: bytes of the smallest page in it
 * @id: out: as of a region that was created
 * @why: out: also when the call fails
 * @name: in: as of a region that is created
 *
 * The pages of the file are those of the region: what one maps, the other sees.
 * Those that are missing are allocated, zeroed and placed as by touching them:
 * by the file's policy, charged to the caller's memory cgroup or hugetlb's. All
 * are pinned until the region ends, and those of a zone that must stay movable
 * are moved before. To do so the call maps the file in the caller's address space
 * for an instant.
 *
 * The region is as any: mapped (by pages of the file's size: whole ones, where
 * they are hugetlb's), listed, copied, registered. Its bytes count against
 * RLIMIT_MEMLOCK or the limits of its user, and against those of the nodes that
 * they are on; its policy is BIND to these nodes. POPULATE finds all pages there,
 * and DISCARD fails with EOPNOTSUPP: to give memory back is its owner's. A page
 * that is pinned through the region when that has gone lingers.
 *
 * The file must not become shorter: a memfd that can be sealed needs F_SEAL_SHRINK.
 * If its owner truncates another, or punches a hole, the region keeps the pages
 * that it has, while mappings show what the file has instead; ACTMEM_IOC_COPY
 * fails with ESTALE there. Memory is a region once: EBUSY if one has a part of the
 * range, be it that it lingers; pass that one's descriptor instead.
 *
 * Fails with ACTMEM_WHY_IMPORT: EINVAL if the file is none of those, or, if @wanted
 * is not 0, as it ends at @available bytes, before the range does; EPERM if it is
 * sealed against writing, or not against shrinking; ENOMEM if pages could be had
 * and pinned only up to @available of @wanted bytes: none are left of their size,
 * or in the file system or memory cgroup, or they cannot be moved; EIO if the
 * hardware reported an error in a page; EBUSY as above; ESTALE if the file was
 * truncated, or the address space changed, meanwhile. What had been allocated by
 * then stays in the file. EINTR if the task was killed meanwhile. Otherwise as
 * ACTMEM_IOC_CREATE. Since version 3.
 */
struct actmem_ioctl_import {
	__u32 size;
	__u32 flags;
	__s32 memory_fd;
	__s32 fd;
	__u64 offset;
	__u64 length;
	__u64 page_bytes;
	__u64 id;
	struct actmem_why why;
	char name[ACTMEM_NAME_BYTES];
};

/* Every descriptor and mapping is gone; pages remain only for outside pins. */
#define ACTMEM_INFO_LINGERING		(1U << 0)
/* Mappings are inherited by a forked child. */
#define ACTMEM_INFO_INHERIT		(1U << 1)
/* Its memory was made by others. */
#define ACTMEM_INFO_IMPORTED		(1U << 4)

/**
 * struct actmem_ioctl_info - ACTMEM_IOC_INFO: one region as it is now
 * @size: sizeof(struct actmem_ioctl_info)
 * @flags: in: 0
 * @id: in: on /dev/actmem the region asked for, on a region's descriptor 0;
 *	out: the region's id
 * @length: out: bytes, as created
 * @page_bytes: out: bytes of a page, the unit of ranges
 * @allocated_bytes: out: bytes of the pages it holds
 * @mapped_bytes: out: bytes of the pages that some process has mapped, of an
 *	imported region also through the file that it was made of
 * @pinned_bytes: out: bytes of the pages that somebody outside the driver
 *	holds a reference to (DMA registration, I/O in flight); of an imported
 *	region, of those that are pinned for DMA
 * @policy: out: ACTMEM_POLICY_*
 * @state: out: ACTMEM_INFO_* bits
 * @nodes: out: node mask of the policy
 * @uid: out: user who created it, in the caller's user namespace
 * @pid: out: process that created it, in the caller's pid namespace; 0 if it
 *	has ended or cannot be seen from there
 * @node_bytes: in: pointer to an array of __u64, or 0; out: bytes on node i in
 *	element i
 * @node_count: in: elements of that array; out: highest possible node + 1.
 *	Elements beyond the caller's count are not written.
 * @reserved: in: 0
 * @name: out: its label
 * @demand_faults: out: pages that were allocated one at a time, when they were
 *	first touched or copied into. Since version 2.
 * @imported_page_bytes: out: bytes of the smallest page of an imported region,
 *	0 of others. Since version 3.
 *
 * On /dev/actmem: ENOENT if there is no such region, EPERM if it is another
 * user's and the caller lacks CAP_SYS_ADMIN. On a region's descriptor EINVAL
 * if @id is not 0.
 */
struct actmem_ioctl_info {
	__u32 size;
	__u32 flags;
	__u64 id;
	__u64 length;
	__u64 page_bytes;
	__u64 allocated_bytes;
	__u64 mapped_bytes;
	__u64 pinned_bytes;
	__u32 policy;
	__u32 state;
	__u64 nodes[ACTMEM_NODE_WORDS];
	__u32 uid;
	__s32 pid;
	__u64 node_bytes;
	__u32 node_count;
	__u32 reserved;
	char name[ACTMEM_NAME_BYTES];
	__u64 demand_faults;
	__u64 imported_page_bytes;
};

/**
 * struct actmem_ioctl_list - ACTMEM_IOC_LIST: the ids of regions
 * @size: sizeof(struct actmem_ioctl_list)
 * @flags: in: 0
 * @after: in: ids greater than this one are returned, in rising order; 0 to
 *	begin with
 * @ids: in: pointer to an array of __u64
 * @count: in: elements of that array (EINVAL if 0); out: elements written,
 *	fewer than asked for only at the end
 * @reserved: in: 0
 *
 * The caller's own regions, and with CAP_SYS_ADMIN everybody's.
 */
struct actmem_ioctl_list {
	__u32 size;
	__u32 flags;
	__u64 after;
	__u64 ids;
	__u32 count;
	__u32 reserved;
};

/**
 * struct actmem_ioctl_range - ACTMEM_IOC_POPULATE, _DISCARD: pages of a region
 * @size: sizeof(struct actmem_ioctl_range)
 * @flags: in: 0
 * @offset: in: bytes from the start of the region, a multiple of @page_bytes
 * @length: in: bytes, not 0, a multiple of @page_bytes; the range ends within
 *	the region (EINVAL otherwise)
 * @done: out: of POPULATE, bytes from @offset that are there, at least; of
 *	DISCARD, bytes of the range that hold no page. Also when the call fails
 * @why: out: why a page could not be had
 *
 * POPULATE allocates, zeroes and places the pages that are missing in the
 * range, by the region's policy, as ACTMEM_IOC_CREATE does and with its errors;
 * those that are there stay as they are. If one cannot be had, @done bytes from
 * @offset are there. So may others be behind them, which stay: several CPUs are
 * at it, and none of them waits for a page that is hard to get. A limit of the
 * user that has no room for all the missing pages, but for those that others are
 * about to make, fails the call before any is allocated.
 *
 * DISCARD gives the pages of the range back and unmaps them from every process.
 * What is touched next is a fresh page of zeros. A page that somebody else
 * holds (registered with a device, I/O in flight) is left in place, contents
 * and all, and the call fails with EBUSY when it has tried the others; @done
 * counts the bytes of the range that hold no page now. EBUSY is transient: even
 * without such a holder the kernel may hold on to a page for an instant.
 *
 * A page that is touched while it cannot be had is SIGBUS, as with hugetlb, and
 * EFAULT to system calls.
 *
 * Both need a descriptor open for writing (EBADF otherwise). EINTR if the task
 * was killed meanwhile; ECANCELED as for struct actmem_uring.
 */
struct actmem_ioctl_range {
	__u32 size;
	__u32 flags;
	__u64 offset;
	__u64 length;
	__u64 done;
	struct actmem_why why;
};

/**
 * struct actmem_ioctl_copy - ACTMEM_IOC_COPY: into a region, from another
 * @size: sizeof(struct actmem_ioctl_copy)
 * @flags: in: 0
 * @offset: in: where to, bytes from the start of this region; any number
 * @source_offset: in: where from, bytes from the start of the source; any number
 * @length: in: bytes, not 0; both ranges end within their regions (EINVAL
 *	otherwise)
 * @source_fd: in: descriptor of the source, another region or this one; EBADF
 *	if it is not open for reading, EINVAL if it is no region, or if it is
 *	the same and the ranges overlap
 * @reserved: in: 0
 * @done: out: bytes copied, from the start, also when the call fails
 * @why: out: why a page of this region could not be had
 *
 * Pages missing in the source are read as zeros and stay missing; those missing
 * in this region are allocated, as by POPULATE and with its errors. EIO if the
 * hardware reported an error in a page. Who reads or writes either range
 * meanwhile sees some of the bytes copied and others not.
 *
 * This descriptor must be open for writing (EBADF otherwise). EINTR and
 * ECANCELED as for POPULATE.
 */
struct actmem_ioctl_copy {
	__u32 size;
	__u32 flags;
	__u64 offset;
	__u64 source_offset;
	__u64 length;
	__s32 source_fd;
	__u32 reserved;
	__u64 done;
	struct actmem_why why;
};

/**
 * struct actmem_uring - what IORING_OP_URING_CMD carries in sqe->cmd
 * @argument: pointer to the struct of the request
 * @reserved: 0
 *
 * sqe->fd is the region's descriptor and sqe->cmd_op ACTMEM_IOC_POPULATE, _DISCARD
 * or _COPY (EOPNOTSUPP otherwise, and in a ring with IORING_SETUP_IOPOLL where the
 * kernel has no such commands in it). sqe->uring_cmd_flags must be 0 (EINVAL
 * otherwise). The result of the completion is what the ioctl would have returned,
 * 0 or a negative errno. The struct must stay valid until then: it is read when
 * the command is issued and again when it is carried out, and what it says of the
 * outcome is written before the completion is posted.
 *
 * A worker of io_uring carries it out, on behalf of the task that issued it;
 * where a policy speaks of the calling CPU, that is the worker's. There are as
 * many workers as IORING_REGISTER_IOWQ_MAX_WORKERS says (bounded ones; by default
 * no more than the task's first ring has entries, nor than four per CPU); further
 * commands wait.
 *
 * It is cancelled by IORING_OP_ASYNC_CANCEL, and when its ring is closed or the
 * task that issued it ends: it stops at the next page with ECANCELED, and the
 * struct says how far it came, unless it had not begun.
 *
 * Linux 6.12 reads a command that is linked behind another request only when its
 * turn has come, maybe after its place in the submission queue was used again:
 * give it IOSQE_ASYNC, with which it is copied when it is submitted.
 */
struct actmem_uring {
	__u64 argument;
	__u64 reserved;
};

/*
 * A request encodes the size of the leading size field alone, so that its
 * number stays the same when its struct grows.
 */
#define ACTMEM_IOC_MAGIC	0xAC
#define ACTMEM_IOC_QUERY	_IOWR(ACTMEM_IOC_MAGIC, 0x01, __u32)
#define ACTMEM_IOC_CREATE	_IOWR(ACTMEM_IOC_MAGIC, 0x02, __u32)
#define ACTMEM_IOC_INFO		_IOWR(ACTMEM_IOC_MAGIC, 0x03, __u32)
#define ACTMEM_IOC_LIST		_IOWR(ACTMEM_IOC_MAGIC, 0x04, __u32)
#define ACTMEM_IOC_POPULATE	_IOWR(ACTMEM_IOC_MAGIC, 0x05, __u32)
#define ACTMEM_IOC_DISCARD	_IOWR(ACTMEM_IOC_MAGIC, 0x06, __u32)
#define ACTMEM_IOC_COPY		_IOWR(ACTMEM_IOC_MAGIC, 0x07, __u32)
#define ACTMEM_IOC_IMPORT	_IOWR(ACTMEM_IOC_MAGIC, 0x09, __u32)

#endif /* _UAPI_LINUX_ACTMEM_H */
