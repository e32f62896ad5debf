/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The whole contract between the actmem driver and user space.
 *
 * /dev/actmem answers ACTMEM_IOC_QUERY, _CREATE, _LIST and _INFO (by id); the
 * descriptor of a region answers ACTMEM_IOC_INFO. Everything else that can be
 * done with a region is done to its descriptor as to any file: mmap(MAP_SHARED),
 * SCM_RIGHTS, close, reopen through /proc/PID/fd.
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
#define ACTMEM_ABI_VERSION	1
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

/* No feature bit is defined yet: what version 1 offers, every driver offers. */

/*
 * Where the pages of a region come from. Every page is verified to be where
 * the policy put it before the region is handed out.
 *
 * BIND	only the nodes of the mask, nearest to the calling CPU first.
 *	The mask must not be empty.
 * PREFERRED	the one node of the mask (the calling CPU's if the mask is
 *	empty), then the other nodes the task may use, nearest first.
 * INTERLEAVE	page i on the (i modulo n)-th of the n nodes of the mask, all
 *	nodes the task may use if the mask is empty. A full node is an error.
 *
 * A node of the mask that has no memory is ENODEV, one that the task's cpuset
 * forbids is EPERM: a mask is never narrowed silently.
 */
#define ACTMEM_POLICY_BIND		0
#define ACTMEM_POLICY_PREFERRED		1
#define ACTMEM_POLICY_INTERLEAVE	2

/*
 * Mappings are inherited by a forked child. Without it the child has none
 * (as after madvise(MADV_DONTFORK)).
 */
#define ACTMEM_CREATE_INHERIT		(1U << 0)

/* Why ACTMEM_IOC_CREATE failed, in @why, where the errno alone does not tell. */
#define ACTMEM_WHY_NONE			0
#define ACTMEM_WHY_NODE_FULL		1	/* ENOMEM: @why_node lacks free huge pages */
#define ACTMEM_WHY_MEMLOCK		2	/* ENOMEM: RLIMIT_MEMLOCK */
#define ACTMEM_WHY_CPUSET		3	/* EPERM: cpuset forbids @why_node */
#define ACTMEM_WHY_NO_MEMORY_NODE	4	/* ENODEV: @why_node has no memory */
#define ACTMEM_WHY_MISPLACED		5	/* EIO: a page came from another node */
#define ACTMEM_WHY_MEMCG		6	/* ENOMEM: the memory cgroup's limit */

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
 * @why: out: ACTMEM_WHY_*, also when the call fails
 * @why_node: out: the node that @why speaks of, or -1
 * @why_wanted: out: bytes wanted from that node, of RLIMIT_MEMLOCK or of the
 *	memory cgroup
 * @why_available: out: bytes that this node had to give (in pages of this
 *	size, outside its movable zone), left of RLIMIT_MEMLOCK, or that the
 *	memory cgroup let the call have
 * @why_movable: out: bytes free on that node that cannot be pinned since they
 *	were onlined as movable
 * @name: in: a label for people, NUL-terminated, printable, without '/'
 *	(EINVAL otherwise); may be empty; need not be unique
 *
 * All pages are allocated, zeroed and placed when the call returns. EINTR if
 * the task was killed meanwhile; EMFILE, ENFILE as for open(2).
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
	__u32 why;
	__s32 why_node;
	__u64 why_wanted;
	__u64 why_available;
	__u64 why_movable;
	char name[ACTMEM_NAME_BYTES];
};

/* Every descriptor and mapping is gone; pages remain only for outside pins. */
#define ACTMEM_INFO_LINGERING		(1U << 0)
/* Mappings are inherited by a forked child. */
#define ACTMEM_INFO_INHERIT		(1U << 1)

/**
 * struct actmem_ioctl_info - ACTMEM_IOC_INFO: one region as it is now
 * @size: sizeof(struct actmem_ioctl_info)
 * @flags: in: 0
 * @id: in: on /dev/actmem the region asked for, on a region's descriptor 0;
 *	out: the region's id
 * @length: out: bytes, as created
 * @page_bytes: out: bytes of a page
 * @allocated_bytes: out: bytes of the pages it still holds: @length, less once
 *	it lingers
 * @mapped_bytes: out: bytes of the pages that some process has mapped
 * @pinned_bytes: out: bytes of the pages that somebody outside the driver
 *	holds a reference to (DMA registration, I/O in flight)
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

/*
 * A request encodes the size of the leading size field alone, so that its
 * number stays the same when its struct grows.
 */
#define ACTMEM_IOC_MAGIC	0xAC
#define ACTMEM_IOC_QUERY	_IOWR(ACTMEM_IOC_MAGIC, 0x01, __u32)
#define ACTMEM_IOC_CREATE	_IOWR(ACTMEM_IOC_MAGIC, 0x02, __u32)
#define ACTMEM_IOC_INFO		_IOWR(ACTMEM_IOC_MAGIC, 0x03, __u32)
#define ACTMEM_IOC_LIST		_IOWR(ACTMEM_IOC_MAGIC, 0x04, __u32)

#endif /* _UAPI_LINUX_ACTMEM_H */
