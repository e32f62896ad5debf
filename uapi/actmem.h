/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The whole contract between the actmem driver and user space.
 *
 * /dev/actmem answers ACTMEM_IOC_QUERY, _CREATE, _LIST and _INFO (by id); the
 * descriptor of a region answers ACTMEM_IOC_INFO, _POPULATE, _DISCARD and _EXPORT,
 * and takes POPULATE and DISCARD through io_uring too (struct actmem_uring).
 * Everything else that can be done with a region is done to its descriptor as to any
 * file: mmap(MAP_SHARED), SCM_RIGHTS, close, reopen through /proc/PID/fd, and what the
 * file system below says.
 *
 * Every struct begins with its own size as user space was compiled with it.
 * A driver that knows more fields takes the missing ones as 0 and returns no
 * more than @size bytes; a driver that knows fewer accepts the surplus only
 * if it is all 0 (E2BIG otherwise). Input flags and reserved fields that the
 * driver does not know must be 0 (EINVAL otherwise). An unknown request is
 * ENOTTY. A bad user pointer is EFAULT.
 *
 * Names are files. The file system "actmem" is mounted as
 * often as there is use for it, each time with files and a limit of its own:
 *
 *	mount -t actmem -o size=64G,mode=0770,gid=NUMBER,node=1 none /mnt/act1
 *
 * size=	bytes (suffix K, M, G, T or P) that the regions of the mount may have,
 *	a multiple of ACTMEM_PAGE_BYTES, or a share of the machine's memory, as
 *	50%, rounded down to one; not 0. Without it only the limits of users and
 *	nodes hold.
 * nr_inodes=	files and directories (suffix K, M or G) that there may be, the root
 *	included; 64K by default, 0 for no limit.
 * mode=, uid=, gid=	of the root directory; 0755 and who mounts by default.
 * node=	nodes for regions that are made without a policy of their own, as
 *	0-1:3, with a colon where other lists have a comma.
 * policy=	bind, preferred or interleave, for the same regions; bind by default
 *	if there are nodes, otherwise preferred.
 *
 * A remount changes size= and nr_inodes=, not to less than there is (EBUSY), and
 * nothing else (EINVAL).
 *
 * A file is a region with a name, made in two steps. open(O_CREAT) makes an
 * empty file, without a region: it cannot be mapped and answers no request but
 * ACTMEM_IOC_CREATE (ENODATA). It is given a region, once, with a length for good:
 * by ftruncate(2), by the mount's policy; or by ACTMEM_IOC_CREATE on its
 * descriptor. The region belongs to and counts for the user who does that, whoever owns the file. A
 * length that is there cannot be changed (EPERM), not by O_TRUNC either:
 * programs that have it mapped count on it. Remove the file and make another.
 *
 * The region is there until the file has been removed and the last descriptor,
 * mapping and command of it has gone, whatever becomes of the process that made
 * it. A name is up to ACTMEM_NAME_BYTES - 1 printable ASCII characters
 * (ENAMETOOLONG, EINVAL), and a file has one at most (EPERM). There are
 * directories and O_TMPFILE; nothing can be executed. Permission is checked by
 * open(2) alone.
 *
 * On the descriptor of any region, named or not:
 *
 * read(2)	as of any file of this length. Missing pages are read as zeros and
 *	stay missing. EIO if the hardware has reported an error in a page.
 * write(2)	EINVAL, as on hugetlbfs: a region is written by its mappings.
 * fallocate(2)	EOPNOTSUPP, as is MADV_REMOVE: pages come by POPULATE or when they
 *	are touched, and are given back by DISCARD.
 * ftruncate(2)	EPERM for an unnamed region, and for any other length than it has.
 */
#ifndef _UAPI_LINUX_ACTMEM_H
#define _UAPI_LINUX_ACTMEM_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * The version of this contract. It grows when a field, flag or request is
 * added or removed; ACTMEM_ABI_OLDEST is the oldest peer that this side still
 * accepts.
 */
#define ACTMEM_ABI_VERSION	4
#define ACTMEM_ABI_OLDEST	4

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
/*
 * Pages are charged to the dmem cgroup of the task that has them made, a pool's too, by
 * node: as "actmem/nodeN" in dmem.max and dmem.current.
 */
#define ACTMEM_FEATURE_DMEM		(1ULL << 1)

/* f_type of that file system, as statfs(2) tells. */
#define ACTMEM_SUPER_MAGIC		0x6163746d

/*
 * Where the pages of a region come from. No page comes from a node that the policy
 * does not allow.
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

/* Why pages could not be had, where the errno alone does not tell. */
#define ACTMEM_WHY_NONE			0
#define ACTMEM_WHY_NODE_FULL		1	/* ENOMEM: @node lacks free huge pages */
#define ACTMEM_WHY_MEMLOCK		2	/* ENOMEM: RLIMIT_MEMLOCK */
#define ACTMEM_WHY_CPUSET		3	/* EPERM: cpuset forbids @node */
#define ACTMEM_WHY_NO_MEMORY_NODE	4	/* ENODEV: @node has no memory */
#define ACTMEM_WHY_MEMCG		5	/* ENOMEM: the memory cgroup's limit */
#define ACTMEM_WHY_USER_LIMIT		6	/* EDQUOT: the administrator's, of the user */
#define ACTMEM_WHY_NODE_LIMIT		7	/* EDQUOT: the administrator's, of @node */
#define ACTMEM_WHY_MOUNT_LIMIT		8	/* ENOSPC: the mount's size= */
#define ACTMEM_WHY_POISON		9	/* EIO: hardware error in a page of @node */
#define ACTMEM_WHY_DMEM			10	/* EDQUOT: dmem.max of the cgroup, of @node */

/**
 * struct actmem_why - why pages could not be had
 * @reason: ACTMEM_WHY_*
 * @node: the node that @reason speaks of, or -1
 * @wanted: bytes wanted from that node, or under that limit; of POISON, where the
 *	page is: its offset in the region it belongs to
 * @available: bytes that this node had to give (in pages of this size, without
 *	those for pages that can move), that were left under the limit, or that the memory
 *	or dmem cgroup let the call have
 * @movable: bytes free on that node that cannot be pinned, as they are for
 *	pages that can move: in its movable zone, or for CMA
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
 * The region has no page yet. Each is allocated, zeroed and placed by
 * ACTMEM_IOC_POPULATE, of which several threads can each do a part, or when it is
 * first touched. EMFILE, ENFILE as for open(2).
 *
 * It counts for the caller's effective user, or, in a user namespace, for the owner of
 * the outermost one below the initial. RLIMIT_MEMLOCK is the caller's of now, unless it
 * has CAP_IPC_LOCK; all regions of the user count against it.
 *
 * On the descriptor of an empty file of a mount, which must be open for writing
 * (EBADF otherwise), the region is the file's, and @fd is -1. @name must be empty,
 * as the name is the file's. ACTMEM_POLICY_PREFERRED and no node is the mount's
 * policy. When the call fails, the file is as empty as it was. EEXIST if it has a
 * region already; of several that try, exactly one gives it its region. ENOTTY on
 * the descriptor of an unnamed region.
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

/* Every descriptor and mapping is gone; pages remain only for outside pins. */
#define ACTMEM_INFO_LINGERING		(1U << 0)
/* Mappings are inherited by a forked child. */
#define ACTMEM_INFO_INHERIT		(1U << 1)
/* It was made as a file of a mount; @name is the file's. */
#define ACTMEM_INFO_NAMED		(1U << 2)
/* The hardware has erred in pages of it, see @poisoned_bytes. */
#define ACTMEM_INFO_POISONED		(1U << 5)

/* A process of another pid namespace. */
#define ACTMEM_PID_ELSEWHERE		(-1)

/**
 * struct actmem_ioctl_info - ACTMEM_IOC_INFO: one region as it is now
 * @size: sizeof(struct actmem_ioctl_info)
 * @flags: in: 0
 * @id: in: on /dev/actmem the region asked for, on a region's descriptor 0;
 *	out: the region's id
 * @length: out: bytes, as created
 * @page_bytes: out: bytes of a page, the unit of ranges
 * @allocated_bytes: out: bytes of the pages it holds
 * @mapped_bytes: out: bytes of the pages that some process has mapped
 * @pinned_bytes: out: bytes of the pages that somebody outside the driver
 *	holds a reference to (DMA registration, I/O in flight)
 * @policy: out: ACTMEM_POLICY_*
 * @state: out: ACTMEM_INFO_* bits
 * @nodes: out: node mask of the policy
 * @uid: out: user who created it, in the caller's user namespace
 * @pid: out: process that created it, in the caller's pid namespace; 0 if it
 *	has ended, ACTMEM_PID_ELSEWHERE if it cannot be seen from there
 * @node_bytes: in: pointer to an array of __u64, or 0; out: bytes on node i in
 *	element i
 * @node_count: in: elements of that array; out: highest possible node + 1.
 *	Elements beyond the caller's count are not written.
 * @reserved: in: 0
 * @name: out: its label; of a named region the name that its file was given last,
 *	by creating, linking or renaming it, without the path
 * @demand_faults: out: pages that were allocated one at a time, when they were
 *	first touched or written to
 * @poisoned_bytes: out: bytes of the pages it holds in which the hardware has
 *	erred
 * @exported_bytes: out: bytes of the dma-bufs that there are of it; what is in
 *	two of them counts twice.
 *
 * On /dev/actmem: ENOENT if there is no such region, EPERM if it is another
 * user's, or was made outside the caller's pid namespace, and the caller lacks
 * CAP_SYS_ADMIN. On a region's descriptor EINVAL
 * if @id is not 0, ENODATA if it is that of an empty file.
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
	__u64 poisoned_bytes;
	__u64 exported_bytes;
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
 * The caller's own regions, as far as they were made in its pid namespace; with
 * CAP_SYS_ADMIN everybody's. Lingering regions are looked at once a second, and told
 * of as they were then.
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
 * range, by the region's policy, one after the other in the calling thread;
 * those that are there stay as they are. If one cannot be had, @done bytes from
 * @offset are there. A limit that has no room for @length, less the pages that the
 * region has or is about to get, fails the call before any is allocated (a node's, of
 * an interleaved region, only if that is all of it and has no page); any other fails it
 * at the first page that it does not let be. It is EIO for a page that is there but in
 * which the hardware has erred.
 *
 * DISCARD gives the pages of the range back and unmaps them from every process.
 * The next touch finds a fresh page of zeros. A page that somebody else
 * holds (registered with a device, I/O in flight) is left in place, contents
 * and all, and the call fails with EBUSY when it has tried the others; @done
 * counts the bytes of the range that hold no page now. EBUSY is transient: even
 * without such a holder the kernel may hold on to a page for an instant.
 *
 * A page that is touched while it cannot be had is SIGBUS, as with hugetlb, and
 * EFAULT to system calls.
 *
 * A page in which the hardware has reported an uncorrected error, anywhere in its
 * @page_bytes, by a machine check or by the firmware, is lost, and the rest of the
 * region is not. It is unmapped from every process. A process that touches any byte
 * of it gets SIGBUS with si_code BUS_MCEERR_AR (of si_addr_lsb 12, the smallest page
 * that the kernel can name), a system call EFAULT; POPULATE and read(2) are EIO. It
 * belongs to the region, and counts against its limits, until it is discarded or the
 * region ends; then it is kept out of use for good, and a fresh page can take its
 * place. A holder of a reference to it (registered with a device) has it still, and
 * keeps it from being discarded.
 *
 * A page that the kernel has marked as failed without a machine check (MADV_HWPOISON,
 * hard_offline_page) stays in use until then, and is kept out of use as well.
 *
 * Both need a descriptor open for writing (EBADF otherwise). EINTR if the task
 * was killed meanwhile, and as for struct actmem_uring.
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
 * struct actmem_ioctl_export - ACTMEM_IOC_EXPORT: a range of a region as a dma-buf
 * @size: sizeof(struct actmem_ioctl_export)
 * @flags: in: 0
 * @offset: in: bytes from the start of the region, a multiple of @page_bytes
 * @length: in: bytes, not 0, a multiple of @page_bytes; the range ends within
 *	the region (EINVAL otherwise)
 * @fd: out: descriptor of the dma-buf, O_RDWR and O_CLOEXEC
 * @reserved: in: 0
 *
 * The pages of the range must be there, as none is allocated: ENODATA if one is
 * missing, EIO if the hardware has erred in one; POPULATE first. As long as the
 * dma-buf lives, so does the region, its pages in the range stay where they are,
 * count as pinned, and are EBUSY to DISCARD. It lives as long as a descriptor or an
 * importer holds it.
 *
 * It is for devices. It has no mmap and no vmap: a process maps the region itself.
 *
 * A device whose DMA may go by way of bounce buffers (swiotlb) cannot map it, as those
 * are copies: EOPNOTSUPP to the importer.
 *
 * This descriptor must be open for reading and writing (EBADF otherwise). EOPNOTSUPP
 * on a kernel without dma-bufs. EMFILE and ENFILE as for open(2).
 */
struct actmem_ioctl_export {
	__u32 size;
	__u32 flags;
	__u64 offset;
	__u64 length;
	__s32 fd;
	__u32 reserved;
};

/**
 * struct actmem_uring - what IORING_OP_URING_CMD carries in sqe->cmd
 * @argument: pointer to the struct of the request
 * @reserved: 0
 *
 * sqe->fd is the region's descriptor and sqe->cmd_op ACTMEM_IOC_POPULATE or
 * _DISCARD (EOPNOTSUPP otherwise, and in a ring with IORING_SETUP_IOPOLL where the
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
 * task that issued it ends: it stops at the next page with EINTR, and the struct
 * says how far it came; ECANCELED if it had not begun. EINTR may come of other
 * things, too, such as live patching or the freezer: issue the rest again.
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
 * number stays the same when its struct grows. 0x07 and 0x0A were requests until
 * version 3, and are not used again.
 */
#define ACTMEM_IOC_MAGIC	0xAC
#define ACTMEM_IOC_QUERY	_IOWR(ACTMEM_IOC_MAGIC, 0x01, __u32)
#define ACTMEM_IOC_CREATE	_IOWR(ACTMEM_IOC_MAGIC, 0x02, __u32)
#define ACTMEM_IOC_INFO		_IOWR(ACTMEM_IOC_MAGIC, 0x03, __u32)
#define ACTMEM_IOC_LIST		_IOWR(ACTMEM_IOC_MAGIC, 0x04, __u32)
#define ACTMEM_IOC_POPULATE	_IOWR(ACTMEM_IOC_MAGIC, 0x05, __u32)
#define ACTMEM_IOC_DISCARD	_IOWR(ACTMEM_IOC_MAGIC, 0x06, __u32)
#define ACTMEM_IOC_EXPORT	_IOWR(ACTMEM_IOC_MAGIC, 0x08, __u32)

#endif /* _UAPI_LINUX_ACTMEM_H */
