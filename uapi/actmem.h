/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The complete interface between the actmem driver and user space. This file names
 * errors without the minus sign.
 *
 * /dev/actmem accepts ACTMEM_IOC_QUERY, _CREATE, _LIST and _INFO (by id). The descriptor
 * of a region accepts ACTMEM_IOC_INFO, _POPULATE, _DISCARD and _EXPORT. System calls work
 * as on the descriptor of any file: mmap(MAP_SHARED), SCM_RIGHTS, close(2) and reopening
 * through /proc/PID/fd. The exceptions are listed at the end of this comment.
 *
 * The first field of every struct is @size. User space sets @size to sizeof() of the
 * struct in the version of this file that it was compiled with. If the driver's struct
 * has more fields, the driver treats the missing fields as 0 and writes at most @size
 * bytes. If the driver's struct has fewer fields, the extra bytes must be 0 (E2BIG
 * otherwise).
 *
 * Reserved fields, and flags that the driver does not know, must be 0 on input (EINVAL
 * otherwise). An unknown request returns ENOTTY. A bad user pointer returns EFAULT.
 *
 * A region with a name is a file in the file system "actmem". The file system can be
 * mounted several times. Each mount has its own files and its own limit:
 *
 *	mount -t actmem -o size=64G,mode=0770,gid=NUMBER,node=1 none /mnt/act1
 *
 * size=	limits the bytes (suffix K, M, G, T or P) of the mount's regions. The
 *	value must be a multiple of ACTMEM_PAGE_BYTES, or a percentage of the machine's
 *	memory, such as 50%. The driver rounds a percentage down to such a multiple. 0 is
 *	not allowed. Without size=, only the limits of users and nodes apply.
 * nr_inodes=	limits the number of files and directories (suffix K, M or G), including
 *	the root directory. The default is 64K; 0 means no limit.
 * mode=, uid=, gid=	set the permissions and the owner of the root directory. The
 *	default is 0755 and the user and group of the mounting process.
 * node=	sets a list of nodes, such as 0-1:3, for regions that are created
 *	without their own policy. The separator is a colon, not a comma.
 * policy=	sets the policy of regions that are created without their own policy:
 *	bind, preferred or interleave. The default is bind if node= is given, and
 *	preferred otherwise.
 *
 * A remount can change only size= and nr_inodes= (EINVAL otherwise). The new limit may be
 * below the current usage. The mount then gets no more pages or files until its usage is
 * below the new limit. If size= is below the usage, the mount's regions have a surplus
 * (see poll(2) below).
 *
 * A program creates a region with a name in two steps. First, open(O_CREAT) creates an
 * empty file, which has no region. The file cannot be mapped, and ACTMEM_IOC_CREATE is
 * the only request that it accepts (ENODATA otherwise). Second, ftruncate(2) or
 * ACTMEM_IOC_CREATE on the file's descriptor creates the region and sets its length;
 * ftruncate(2) uses the mount's policy. The region belongs to the user that makes this
 * second call, and counts against that user's limits, even if another user owns the file.
 * The length of a region never changes, because programs that map the region rely on its
 * length. An attempt to change the length, even with O_TRUNC, fails with EPERM. To get
 * another length, remove the file and create a new one.
 *
 * The region exists until the file is removed and the region's last descriptor and
 * mapping are gone. The region can outlive the process that created it. A name has at
 * most ACTMEM_NAME_BYTES - 1 characters (ENAMETOOLONG), which must be printable ASCII
 * (EINVAL). A file has at most one name (EPERM). The file system supports directories and
 * O_TMPFILE. Its files cannot be executed. Only open(2) checks permissions.
 *
 * On the descriptor of any region, with or without a name:
 *
 * read(2)	works as for any file of this length. A missing page reads as zeros and
 *	stays missing. EIO if the hardware has reported an error in a page.
 * write(2)	returns EINVAL, as on hugetlbfs. Programs write to a region through its
 *	mappings.
 * fallocate(2)	and MADV_REMOVE return EOPNOTSUPP. ACTMEM_IOC_POPULATE or the first touch
 *	allocates pages, and ACTMEM_IOC_DISCARD frees them.
 * ftruncate(2)	returns EPERM for an unnamed region. For a named region, it returns EPERM
 *	unless the length is that of the region.
 * poll(2)	reports POLLPRI while the region has a surplus. A region has a surplus if the
 *	administrator has lowered a limit of the user, a node, the mount or (since Linux
 *	7.3) a dmem cgroup below the usage. The driver never takes pages away, so the
 *	program should give pages back with ACTMEM_IOC_DISCARD, or by closing regions.
 *	ACTMEM_IOC_INFO returns how many bytes to give back (@surplus_bytes). Reads and
 *	writes never block, so POLLIN and POLLOUT are always set.
 */
#ifndef _UAPI_LINUX_ACTMEM_H
#define _UAPI_LINUX_ACTMEM_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * The version of this interface. It increases when a field, flag or request is added or
 * removed. The driver and user space work together if the driver's version is at least
 * ACTMEM_ABI_OLDEST of user space, and vice versa.
 */
#define ACTMEM_ABI_VERSION	6
#define ACTMEM_ABI_OLDEST	4

/* The size of each page of a region, in bytes. */
#define ACTMEM_PAGE_BYTES	(2ULL << 20)

/* A node mask has one bit for each node: node n is bit n % 64 of word n / 64. */
#define ACTMEM_NODE_WORDS	16
#define ACTMEM_NODE_MAX		(ACTMEM_NODE_WORDS * 64)

/* The size of a region's name in bytes, including the terminating NUL. */
#define ACTMEM_NAME_BYTES	64

/**
 * struct actmem_ioctl_query - ACTMEM_IOC_QUERY: versions and features
 * @size: sizeof(struct actmem_ioctl_query)
 * @flags: in: 0
 * @abi: in: the caller's ACTMEM_ABI_VERSION; out: the driver's
 * @abi_oldest: in: the oldest driver version that the caller accepts; out: the oldest
 *	caller version that the driver accepts
 * @features: out: ACTMEM_FEATURE_* bits
 * @page_bytes: out: bytes of a page, the unit of lengths and offsets
 * @max_region_bytes: out: the greatest length of a region, in bytes
 * @node_count: out: the highest possible node number + 1
 * @reserved: in: 0
 *
 * Fails with EPROTONOSUPPORT if either side is too old for the other. The driver fills
 * in the struct even then, so that the caller can print both versions.
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

/*
 * Bit 0 stood for a feature until version 4. Do not use bit 0 for another feature.
 *
 * With the feature DMEM, the driver charges each page, including those from its pools,
 * to the dmem cgroup of the task that allocates the page. dmem.max and dmem.current list
 * each node as "actmem/nodeN".
 */
#define ACTMEM_FEATURE_DMEM		(1ULL << 1)

/* f_type of the file system "actmem", as statfs(2) returns it. */
#define ACTMEM_SUPER_MAGIC		0x6163746d

/*
 * The policy says which nodes the pages of a region come from. No page comes from a
 * node that the policy does not allow.
 *
 * BIND	uses only the nodes of the mask, in order of their distance from the calling
 *	CPU. The mask must not be empty.
 * PREFERRED	uses the one node of the mask, or the calling CPU's node if the mask is
 *	empty. If that node is full, the policy uses the other nodes that the task may
 *	use, nearest first.
 * INTERLEAVE	places page i on the (i modulo n)-th of the n nodes of the mask. If the
 *	mask is empty, the policy uses all nodes that the task may use when the task
 *	creates the region. Allocation fails if the page's node is full.
 *
 * If a node of the mask has no memory, the call fails with ENODEV. If the task's cpuset
 * forbids a node of the mask, the call fails with EPERM. The driver checks both
 * conditions when a task creates the region, and again when a task allocates a page, each
 * time for that task. The driver never removes nodes from a mask silently.
 */
#define ACTMEM_POLICY_BIND		0
#define ACTMEM_POLICY_PREFERRED		1
#define ACTMEM_POLICY_INTERLEAVE	2

/*
 * A forked child inherits mappings of the region. Without this flag, the child has no
 * mapping (as after madvise(MADV_DONTFORK)).
 */
#define ACTMEM_CREATE_INHERIT		(1U << 0)

/* Reasons why the driver could not allocate pages, in addition to the errno. */
#define ACTMEM_WHY_NONE			0
#define ACTMEM_WHY_NODE_FULL		1	/* ENOMEM: @node lacks free huge pages */
#define ACTMEM_WHY_MEMLOCK		2	/* ENOMEM: RLIMIT_MEMLOCK */
#define ACTMEM_WHY_CPUSET		3	/* EPERM: cpuset forbids @node */
#define ACTMEM_WHY_NO_MEMORY_NODE	4	/* ENODEV: @node has no memory */
#define ACTMEM_WHY_MEMCG		5	/* ENOMEM: the memory cgroup's limit */
#define ACTMEM_WHY_USER_LIMIT		6	/* EDQUOT: the limit of the user */
#define ACTMEM_WHY_NODE_LIMIT		7	/* EDQUOT: the limit of @node */
#define ACTMEM_WHY_MOUNT_LIMIT		8	/* ENOSPC: the mount's size= */
#define ACTMEM_WHY_POISON		9	/* EIO: hardware error in a page on @node */
#define ACTMEM_WHY_DMEM			10	/* EDQUOT: the cgroup's dmem.max of @node */

/**
 * struct actmem_why - why the driver could not allocate pages
 * @reason: ACTMEM_WHY_*
 * @node: the node that @reason refers to, or -1
 * @wanted: the bytes that the call requested from @node. If @reason is a limit, the bytes
 *	that would have counted against the limit. With POISON, the offset of the failed
 *	page in its region, in bytes.
 * @available: with NODE_FULL, the bytes that the node could provide in pages of
 *	ACTMEM_PAGE_BYTES, not counting memory that is reserved for movable allocations.
 *	If @reason is a limit, the bytes that were left under the limit. With MEMCG and
 *	DMEM, the bytes that the cgroup granted to the call.
 * @movable: with NODE_FULL, the free bytes of @node in its movable zone and in CMA.
 *	Regions cannot use these bytes, because they are reserved for movable allocations.
 */
struct actmem_why {
	__u32 reason;
	__s32 node;
	__u64 wanted;
	__u64 available;
	__u64 movable;
};

/**
 * struct actmem_ioctl_create - ACTMEM_IOC_CREATE: create a region
 * @size: sizeof(struct actmem_ioctl_create)
 * @flags: in: ACTMEM_CREATE_* bits
 * @length: in: bytes; a multiple of @page_bytes, not 0, at most max_region_bytes of the
 *	query (EINVAL otherwise)
 * @page_bytes: in: ACTMEM_PAGE_BYTES (EINVAL otherwise)
 * @policy: in: ACTMEM_POLICY_* (EINVAL if it is unknown or does not match the mask)
 * @fd: out: descriptor of the region, O_RDWR and O_CLOEXEC; the caller owns it and
 *	closes it
 * @nodes: in: node mask of the policy
 * @id: out: identifies the region on this machine; the driver uses each id only once
 *	until the module is unloaded
 * @why: out: why the call failed. The driver fills in this field even though the call
 *	returns an error.
 * @name: in: a label for the administrator, NUL-terminated, printable and without '/'
 *	(EINVAL otherwise). It may be empty and need not be unique.
 *
 * A new region has no pages. ACTMEM_IOC_POPULATE, or a page fault, allocates and zeroes
 * each page on a node of the policy. Several threads can populate parts of a region at
 * once. Returns EMFILE and ENFILE as open(2) does.
 *
 * The region counts against the limits of the caller's effective user. If the caller is
 * in a user namespace, the region counts against the limits of the owner of the outermost
 * namespace below the initial one. If root owns that outermost namespace, the namespace
 * itself counts as a user, with its own limits. Unless the caller has CAP_IPC_LOCK, the
 * driver records the caller's RLIMIT_MEMLOCK during this call. Unless the administrator
 * has set a limit for users, the total of all the user's regions must not exceed the
 * recorded limit. CAP_IPC_LOCK does not lift the administrator's limit on each user.
 *
 * ACTMEM_IOC_CREATE on the descriptor of an empty file of a mount creates the region of
 * that file, and @fd is -1. The descriptor must be open for writing (EBADF otherwise).
 * @name must be empty, because the region has the name of the file.
 * ACTMEM_POLICY_PREFERRED with an empty mask selects the mount's policy. If the call
 * fails, the file stays empty. EEXIST if the file already has a region; if several
 * callers try at once, exactly one succeeds. ENOTTY on the descriptor of an unnamed
 * region.
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

/*
 * No descriptor or mapping is left, and the remaining pages exist only because they are
 * pinned.
 */
#define ACTMEM_INFO_LINGERING		(1U << 0)
/* A forked child inherits mappings of the region. */
#define ACTMEM_INFO_INHERIT		(1U << 1)
/*
 * The region is a file of a mount, and @name is the name of that file. @name is empty while the
 * file has no name yet (O_TMPFILE), and while ACTMEM_IOC_CREATE copies its answer.
 */
#define ACTMEM_INFO_NAMED		(1U << 2)
/* The hardware has reported errors in pages of the region; see @poisoned_bytes. */
#define ACTMEM_INFO_POISONED		(1U << 5)

/* The process belongs to another pid namespace. */
#define ACTMEM_PID_ELSEWHERE		(-1)

/**
 * struct actmem_ioctl_info - ACTMEM_IOC_INFO: the current state of a region
 * @size: sizeof(struct actmem_ioctl_info)
 * @flags: in: 0
 * @id: in: for a call on /dev/actmem, the id of the region; for a call on a region's
 *	descriptor, 0; out: the region's id
 * @length: out: the region's length in bytes
 * @page_bytes: out: bytes of a page, the unit of ranges
 * @allocated_bytes: out: bytes of the allocated pages
 * @mapped_bytes: out: bytes of the pages that at least one process maps
 * @pinned_bytes: out: bytes of the pages to which code outside the driver holds a
 *	reference, such as for DMA or I/O in flight
 * @policy: out: ACTMEM_POLICY_*
 * @state: out: ACTMEM_INFO_* bits
 * @nodes: out: node mask of the policy
 * @uid: out: the user that created the region, in the caller's user namespace
 * @pid: out: the process that created the region, in the caller's pid namespace. 0 if the
 *	process has ended; ACTMEM_PID_ELSEWHERE if the process is not in the caller's pid
 *	namespace.
 * @node_bytes: in: pointer to an array of __u64, or 0; out: element i is the number of
 *	the region's bytes on node i
 * @node_count: in: the number of elements of that array; out: the highest possible node
 *	number + 1. The driver writes no more elements than the caller's count.
 * @surplus_reason: in: 0; out: ACTMEM_WHY_* of the limit that causes the largest surplus;
 *	ACTMEM_WHY_NONE if the region has no surplus
 * @name: out: the region's label. For a named region, the last name that its file got
 *	by creation, link or rename, without the directory.
 * @demand_faults: out: the number of pages that page faults allocated
 * @poisoned_bytes: out: bytes of the allocated pages in which the hardware has reported
 *	an error
 * @exported_bytes: out: total bytes of the existing dma-bufs of the region. A page in
 *	two dma-bufs counts twice.
 * @surplus_bytes: out: the bytes that the region should give back, because the usage is
 *	above a limit of the user, the mount or a node. Since Linux 7.3, a dmem.max that
 *	is set below the usage also causes a surplus. This field is the region's share of
 *	the excess. The shares of all regions add up to the excess, rounded up to pages,
 *	so several programs can give back their shares at once. Each call computes the
 *	share anew, except the share for dmem.max. While a task that writes dmem.max
 *	waits, the driver computes that share every 100 ms. If a region has given back its
 *	share, but other programs give nothing back, the region gets a share of the
 *	remaining excess.
 *
 * On /dev/actmem, the call returns ENOENT if the region does not exist. A caller
 * without CAP_SYS_ADMIN gets EPERM if another user owns the region, or if the region was
 * created outside the caller's pid namespace. On a region's descriptor, the call returns
 * EINVAL if @id is not 0, and ENODATA if the file is empty.
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
	__u32 surplus_reason;
	char name[ACTMEM_NAME_BYTES];
	__u64 demand_faults;
	__u64 poisoned_bytes;
	__u64 exported_bytes;
	__u64 surplus_bytes;
};

/**
 * struct actmem_ioctl_list - ACTMEM_IOC_LIST: the ids of regions
 * @size: sizeof(struct actmem_ioctl_list)
 * @flags: in: 0
 * @after: in: the call returns ids greater than this one, in ascending order; 0 for the
 *	first call
 * @ids: in: pointer to an array of __u64
 * @count: in: the number of elements of that array (EINVAL if 0); out: the number of ids
 *	written. If it is less than the input value, no further region exists.
 * @reserved: in: 0
 *
 * The call lists the regions that the caller's effective user created inside the caller's
 * pid namespace. With CAP_SYS_ADMIN, it lists the regions of all users. When the last pin
 * of a lingering region (ACTMEM_INFO_LINGERING) is gone, the region stays in the list
 * until the driver's next check, at most a second later.
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
 * @length: in: bytes, not 0, a multiple of @page_bytes; the range must end within the
 *	region (EINVAL otherwise)
 * @done: out: written even if the call fails. POPULATE: at least this many bytes from
 *	@offset are allocated. DISCARD: how many bytes of the range have no page. After
 *	EINTR, DISCARD counts only the part of the range that the call processed.
 * @why: out: why the driver could not allocate a page
 *
 * POPULATE allocates and zeroes the missing pages of the range, one after the other in
 * the calling thread, on nodes of the region's policy. Existing pages stay as they are.
 * Before it allocates the first page, the call checks the limits of the user, the mount
 * and the nodes for the missing bytes of the range. To find the missing bytes, the check
 * assumes that all pages of the region are in the range, including the pages that other
 * calls are allocating. If a limit is too low, the call fails and allocates nothing. For
 * an interleaved region, the call checks the limits of nodes in advance only if the range
 * is the whole region. The call also checks every limit for each page that it allocates,
 * and fails at the first page that exceeds a limit. EIO if the hardware has reported an
 * error in an existing page.
 *
 * DISCARD frees the pages of the range and unmaps them from every process. The next touch
 * allocates a zeroed page. A page that is in use outside the driver (registered with a
 * device, I/O in flight) is not freed, and keeps its contents. In this case, the call
 * processes all other pages, reports in @done how many bytes have no page, and returns
 * EBUSY. EBUSY may be transient: the kernel may hold a reference for a moment even if the
 * page is not in use outside the driver.
 *
 * If the driver cannot allocate a page that a thread touches, the thread gets SIGBUS,
 * as with hugetlb. A system call that touches the page returns EFAULT. A thread that
 * touches a missing page through a mapping of a read-only descriptor also gets SIGBUS.
 * Such a mapping allocates no page, because the page would count against the limits of
 * the region's owner.
 *
 * If a machine check or the firmware reports an uncorrected error anywhere in a page (of
 * @page_bytes), that page is lost. The rest of the region stays usable. The driver unmaps
 * the lost page from every process. A thread that touches any byte of the page gets
 * SIGBUS with si_code BUS_MCEERR_AR. (si_addr_lsb is 12, the smallest page size that the
 * kernel can report.) A system call returns EFAULT; POPULATE and read(2) return EIO. The
 * lost page belongs to the region, and counts against the same limits as its other pages,
 * until a program discards the page or the region ends. After that, the driver keeps the
 * lost page out of use until the next boot. The region can then get a new page at the
 * same offset. A device that registered the lost page can still access it, and DISCARD
 * returns EBUSY until the device releases the page.
 *
 * The kernel can mark a page as failed without a machine check (MADV_HWPOISON,
 * hard_offline_page). That page stays in use until a program discards it or the region
 * ends. After that, the driver keeps this page out of use, too.
 *
 * Both requests need a descriptor that is open for writing (EBADF otherwise). They
 * return ENODATA if the file is empty, and EINTR if the task was killed during the call.
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
 * struct actmem_ioctl_export - ACTMEM_IOC_EXPORT: export a range as a dma-buf
 * @size: sizeof(struct actmem_ioctl_export)
 * @flags: in: 0
 * @offset: in: bytes from the start of the region, a multiple of @page_bytes
 * @length: in: bytes, not 0, a multiple of @page_bytes; the range must end within the
 *	region (EINVAL otherwise)
 * @fd: out: descriptor of the dma-buf, O_RDWR and O_CLOEXEC; the caller owns it and
 *	closes it
 * @reserved: in: 0
 *
 * The call allocates no page, so POPULATE the range first. Returns ENODATA if a page is
 * missing or the file is empty, and EIO if the hardware has reported an error in a page.
 * While the dma-buf exists, the region exists and its pages in the range stay in place.
 * These pages count as pinned, and DISCARD returns EBUSY for them. The dma-buf exists as
 * long as a descriptor or an importer holds a reference to it.
 *
 * The dma-buf is for devices. It supports neither mmap() nor vmap(): a process maps the
 * region instead.
 *
 * The importer gets EOPNOTSUPP if DMA of its device might go through bounce buffers
 * (swiotlb), because a bounce buffer is a copy.
 *
 * The region's descriptor must be open for reading and writing (EBADF otherwise). Returns
 * EOPNOTSUPP if the kernel was built without dma-buf support, and EMFILE and ENFILE as
 * open(2) does.
 */
struct actmem_ioctl_export {
	__u32 size;
	__u32 flags;
	__u64 offset;
	__u64 length;
	__s32 fd;
	__u32 reserved;
};

/*
 * Each request number encodes the size of the field @size, not of the struct, so that the
 * number stays the same when the struct grows. Do not reuse the numbers 0x07 and 0x0A:
 * they were requests until version 3.
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
