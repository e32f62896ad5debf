/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The other operations of a worker on its regions, and its main loop. */
#ifndef FUZZ_WORKER_H
#define FUZZ_WORKER_H

#include <linux/mempolicy.h>
#include <linux/mman.h>

#include "fuzz_region.h"

/* The worker sends descriptors of regions to its second thread. */
static int channel[2];

/* Moves the mapping to a new address. The kernel refuses that if it has split the mapping. */
static void move_mapping(struct model *m)
{
	size_t length = m->count * PAGE_BYTES;
	char *room = mapped(mmap(NULL, length + PAGE_BYTES, PROT_NONE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	char *to = (char *)(((uintptr_t)room + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1));
	char *moved_to = mremap(m->memory, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, to);

	ensure(moved_to == to || errno == EFAULT, "mremap: errno %d", errno);
	/* On failure the second thread may already have another mapping there. */
	if (moved_to != to)
		return;
	m->memory = to;
	munmap(room, to - room);
	munmap(to + length, room + PAGE_BYTES - to);
}

/* Takes permissions away, and sees that the kernel enforces it. */
static void protect_mapping(struct model *m)
{
	uint32_t page = m->first + choose(m->count);
	int protection = choose(2) ? PROT_NONE : PROT_READ;
	char *memory = at(m, page * SMALLS);
	uint64_t found;

	expect(0, mprotect(memory, PAGE_BYTES, protection));
	ensure(touch_word(memory, ~0ULL, &found) == SIGSEGV,
	       "a mapping without PROT_WRITE can be written");
	expect(0, mprotect(memory, PAGE_BYTES, PROT_READ | PROT_WRITE));
}

/*
 * For a part of a folio, the last two advices try to split it. Linux 6.12 then first looks up the
 * folio's memory cgroup. lockdep warns that Linux does this without RCU, so a kernel with lockdep
 * is not given these two.
 */
static int some_advice(void)
{
	static const int advices[] = {
		MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE,
		MADV_MERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLLAPSE, MADV_POPULATE_READ,
		MADV_POPULATE_WRITE, MADV_DONTDUMP, MADV_DONTNEED_LOCKED, MADV_COLD, MADV_PAGEOUT,
	};
	size_t count = ARRAY_SIZE(advices);

	return advices[choose(access("/proc/lockdep_stats", F_OK) ? count : count - 2)];
}

static void advise(struct model *m)
{
	unsigned long mask = 1 + choose((1 << fuzz->node_count) - 1);
	size_t offset = choose(m->count) * PAGE_BYTES;
	size_t length = m->count * PAGE_BYTES - offset;
	char *memory = m->memory + offset;

	forget_missing(m, m->first, m->count);
	switch (choose(5)) {
	case 0:
		syscall(SYS_mbind, memory, length, choose(2) ? MPOL_BIND : MPOL_INTERLEAVE, &mask,
			64, choose(2) ? MPOL_MF_MOVE : MPOL_MF_STRICT);
		break;
	case 1:
		if (!mlock(memory, length))
			munlock(memory, length);
		break;
	case 2:
		expect(0, msync(memory, length, choose(2) ? MS_SYNC : MS_ASYNC));
		break;
	default:
		madvise(memory + choose(2) * SMALL, length - SMALL, some_advice());
	}
}

static void op_map(struct model *m)
{
	size_t length = m->count * PAGE_BYTES;
	uint32_t part = m->count > 1 ? 1 + choose(m->count - 1) : 0;

	if (!m->memory) {
		pick_pages(m, &m->first, &m->count);
		m->memory = mapped(mmap(NULL, m->count * PAGE_BYTES, PROT_READ | PROT_WRITE,
					MAP_SHARED, m->fd, m->first * PAGE_BYTES));
		note(m, m->first, m->count, 0);
		return;
	}
	note(m, m->first, m->count, part);
	switch (choose(7)) {
	case 0:
		expect(0, munmap(m->memory, length));
		m->memory = NULL;
		m->count = 0;
		break;
	case 1:
		m->count -= part;
		if (part)
			expect(0, munmap(m->memory + m->count * PAGE_BYTES, part * PAGE_BYTES));
		break;
	case 2:
		move_mapping(m);
		break;
	case 3:
		protect_mapping(m);
		break;
	case 4:
		expect(-EINVAL, munmap(m->memory, SMALL));
		expect(-EINVAL, mprotect(m->memory, length - SMALL, PROT_READ));
		expect(0, mprotect(m->memory, length, PROT_READ | PROT_WRITE));
		break;
	default:
		advise(m);
	}
}

static void op_access(struct model *m)
{
	uint32_t first, number;
	enum way way = choose(3) ? choose(2) : choose(WAYS);

	if (!m->memory || way == BY_READ) {
		pick(0, m->pages, &first, &number);
		fetch(m, first, number, BY_READ);
		return;
	}
	pick(m->first, m->count, &first, &number);
	if (choose(2))
		store(m, first, number, way);
	else
		fetch(m, first, number, way);
}

static void hold_release(struct hold *h)
{
	uint32_t i;

	if (h->kind == BY_PIPE) {
		expect(SMALL, read(h->ends[0], buffer, SMALL));
		if (h->m)
			h->version = h->m->version[h->small];
		ensure(pattern_differs(buffer, h->key, h->small, h->version) < 0,
		       "small page %u in a pipe has %016llx, expected %016llx (version %u)",
		       h->small, *(unsigned long long *)buffer,
		       (unsigned long long)word_of(h->key, h->small, h->version, 0), h->version);
		let_go(h->ends);
	} else if (h->kind == BY_DMABUF) {
		close(h->ends[0]);
		if (h->ends[1] >= 0)
			close(h->ends[1]);
		if (h->m)
			h->m->exported -= h->pages;
	} else {
		expect(0, io_uring_unregister_buffers(&ring));
		has_fixed = false;
	}
	for (i = h->first; h->m && i < h->first + h->pages; i++)
		h->m->pins[i]--;
	h->kind = NOTHING;
}

/* Pins a small page by a pipe, or pages by a dma-buf or a registered buffer. */
static void op_hold(struct model *m)
{
	struct hold *h = &holds[choose(HOLDS)];
	struct importer_map map;
	struct iovec vector;
	uint32_t i;
	int err;

	if (h->kind) {
		hold_release(h);
		return;
	}
	*h = (struct hold){ .m = m, .key = m->key };
	if (choose(2) || !m->memory) {
		h->kind = BY_DMABUF;
		pick_pages(m, &h->first, &h->pages);
		err = h->ends[0] = export(m->fd, h->first, h->pages);
		ensure(err >= 0 || err == -ENODATA, "EXPORT returned %d", err);
		h->ends[1] = err < 0 ? -1 : attach_to(device_in(choose(2)), err);
		if (h->ends[1] >= 0)
			expect(0, map_attachment(h->ends[1], IMPORTER_BIDIRECTIONAL, &map));
		m->exported += err < 0 ? 0 : h->pages;
	} else if (choose(2) && has_ring && !has_fixed) {
		h->kind = BY_BUFFER;
		h->first = m->first;
		h->pages = m->count;
		vector = (struct iovec){ m->memory, m->count * PAGE_BYTES };
		err = io_uring_register_buffers(&ring, &vector, 1);
		has_fixed = !err;
		ensure(!err || err == -EFAULT || err == -EOPNOTSUPP || err == -ENOMEM,
		       "io_uring_register_buffers returned %d", err);
	} else {
		h->kind = BY_PIPE;
		h->first = m->first + choose(m->count);
		h->pages = 1;
		h->small = h->first * SMALLS + choose(SMALLS);
		err = hold(at(m, h->small), h->ends);
		if (err)
			let_go(h->ends);
		ensure(!err || err == -EFAULT, "vmsplice returned %d", err);
	}
	note(m, h->first, h->pages, err);
	if (err < 0) {
		ensure(err == -EOPNOTSUPP || err == -ENOMEM ||
		       !all_present(m, h->first * SMALLS, h->pages * SMALLS),
		       "present pages cannot be pinned: %d", err);
		h->kind = NOTHING;
		forget_missing(m, h->first, h->pages);
		return;
	}
	for (i = h->first; i < h->first + h->pages; i++) {
		ensure(m->state[i] != MISSING || h->kind != BY_DMABUF,
		       "EXPORT exported the missing page %u", i);
		m->pins[i]++;
		m->state[i] = PRESENT;
	}
}

/* A child, which may be killed at any time, uses the mappings that it inherits. */
static void op_fork(struct model *m)
{
	pid_t parent = getpid();
	bool is_killed = choose(2);
	unsigned char resident;
	uint32_t first, number;
	pid_t child = fork();
	int ends[2], i;

	ensure(child >= 0, "fork: errno %d", errno);
	if (!child) {
		die_with(parent);
		random_state ^= self->records;
		if (m->memory && !m->is_inherited)
			expect(-ENOMEM, mincore(m->memory, SMALL, &resident));
		for (i = 0; m->memory && m->is_inherited && i < 8; i++) {
			pick(m->first, m->count, &first, &number);
			if (choose(2))
				store(m, first, number, choose(2));
			else
				fetch(m, first, number, choose(4) ? BY_MAPPING : BY_READ);
			if (is_killed)
				hold(at(m, first), ends);
		}
		while (is_killed)
			pause();
		_exit(0);
	}
	if (is_killed) {
		usleep(choose(8000));
		kill(child, SIGKILL);
		count(KILLED);
	}
	i = wait_for(child);
	ensure(i == 0 || (is_killed && i == -1), "a child failed");
	/* The child may have touched any page, and written half of its range. */
	if (m->memory && m->is_inherited)
		forget_missing(m, m->first, m->count);
	settle(m);
	note(m, 0, is_killed, i);
}

/* A descriptor and a mapping without the permission to write. */
static void op_read_only(struct model *m)
{
	uint32_t page = choose(m->pages);
	uint64_t found;
	int signal, fd = must(reopen(m->fd, O_RDONLY));
	struct actmem_ioctl_export arg = export_of(page, 1);
	char *memory = mapped(mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd,
				   page * PAGE_BYTES));

	expect(-EACCES, mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
	expect(-EACCES, mprotect(memory, PAGE_BYTES, PROT_READ | PROT_WRITE));
	expect(-EBADF, populate(fd, page, 1));
	expect(-EBADF, discard(fd, page, 1));
	expect(-EBADF, call(fd, ACTMEM_IOC_EXPORT, &arg));
	signal = touch_word(memory, 0, &found);
	note(m, page, 1, signal);
	if (!signal)
		check_bytes(m, memory, page * SMALLS, 1, "read-only mapping");
	ensure(m->state[page] == UNKNOWN || (m->state[page] == MISSING) == (signal == SIGBUS),
	       "signal %d after a read of page %u through a read-only mapping, state %u",
	       signal, page, m->state[page]);
	munmap(memory, PAGE_BYTES);
	close(fd);
}

/* Calls that the contract refuses. None may change anything. */
static void op_refused(struct model *m)
{
	unsigned long request = choose(2) ? ACTMEM_IOC_POPULATE : ACTMEM_IOC_DISCARD;
	struct actmem_ioctl_range good = range_of(0, 1), bad[] = { good, good, good, good };
	size_t lengths[] = { 0, SMALL, PAGE_BYTES - 1, ~0UL << 21 }, length = m->pages * PAGE_BYTES;
	struct actmem_ioctl_info now = { .size = sizeof(now), .id = ~0ULL >> choose(32) };
	struct actmem_ioctl_create create = region_of(1);
	int i;

	bad[0].length = lengths[choose(4)];
	bad[1].offset = lengths[1 + choose(3)];
	bad[2].flags = 1U << choose(32);
	bad[3] = range_of(choose(m->pages + 1), m->pages + 1);
	for (i = 0; i < 4; i++)
		expect(-EINVAL, call(m->fd, request, &bad[i]));
	create.length = lengths[choose(4)];
	expect(-EINVAL, create_empty(fuzz->device, &create));
	expect(m->kind ? -EEXIST : -ENOTTY, create_pages(m->fd, 1));
	expect(-EFAULT, call(m->fd, request, (void *)8));
	expect(-ENOTTY, call(m->fd, ACTMEM_IOC_LIST, &good));
	expect(-ENOENT, call(fuzz->device, ACTMEM_IOC_INFO, &now));
	expect(-EINVAL, call(m->fd, ACTMEM_IOC_INFO, &now));
	expect(-ENODATA, call(fuzz->empty, request, &good));
	expect(-ENODATA, mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fuzz->empty, 0));
	expect(-EINVAL, mmap(NULL, length, PROT_READ, MAP_PRIVATE, m->fd, 0));
	expect(-EINVAL, mmap(NULL, length, PROT_READ, MAP_SHARED, m->fd, PAGE_BYTES));
	expect(-EINVAL, mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, m->fd, SMALL));
	expect(-EINVAL, pwrite(m->fd, "x", 1, choose(length)));
	expect(0, pread(m->fd, buffer, SMALL, length));
	expect(-EPERM, ftruncate(m->fd, length + PAGE_BYTES));
	expect(-EOPNOTSUPP, fallocate(m->fd, choose(2) ? 0 : FALLOC_FL_KEEP_SIZE, 0, SMALL));
	if (m->kind == NAMED)
		expect(-EPERM, link(path_of(m), AT "/link"));
}

/* The list has this region and, unless root asks, only regions of this user. */
static void op_list(struct model *m)
{
	static uint64_t ids[1024];
	struct actmem_ioctl_info now;
	int i, err, number = list(fuzz->device, ids, 1024);
	bool is_found = false;

	ensure(number > 0, "LIST returned %d", number);
	for (i = 0; i < number; i++)
		is_found |= ids[i] == m->id;
	ensure(is_found, "LIST omits region %llu", (unsigned long long)m->id);
	err = info(fuzz->device, ids[choose(number)], &now);
	ensure(err == -ENOENT || (!err && (!geteuid() || now.uid == geteuid())),
	       "INFO of a region of the list: %d, uid %u", err, now.uid);
}

/* A message that carries a descriptor. */
struct letter {
	struct msghdr message;
	struct iovec vector;
	char byte;
	_Alignas(struct cmsghdr) char space[CMSG_SPACE(sizeof(int))];
};

static struct msghdr *letter_begin(struct letter *letter)
{
	*letter = (struct letter){ .vector = { &letter->byte, 1 } };
	letter->message = (struct msghdr){
		.msg_iov = &letter->vector, .msg_iovlen = 1,
		.msg_control = letter->space, .msg_controllen = sizeof(letter->space),
	};
	return &letter->message;
}

/* Sends a descriptor of the region to the second thread, which changes no bytes. */
static void op_share(struct model *m)
{
	struct letter letter;
	struct cmsghdr *header = CMSG_FIRSTHDR(letter_begin(&letter));

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &m->fd, sizeof(int));
	m->is_shared = true;
	forget_missing(m, 0, m->pages);
	if (sendmsg(channel[0], &letter.message, MSG_DONTWAIT) < 0)
		ensure(errno == EAGAIN || errno == ETOOMANYREFS, "sendmsg: errno %d", errno);
}

static void op_reopen(struct model *m)
{
	int fd = m->kind == NAMED ? open(path_of(m), O_RDWR | O_CLOEXEC) : reopen(m->fd, O_RDWR);

	ensure(fd >= 0, "cannot open region %td again: %d", m - self->regions, fd);
	expect(0, close(m->fd));
	m->fd = fd;
}

/*
 * Populates in a memory cgroup that allows two more pages. The rest, which is less than a page,
 * is for the kernel's own objects: without it, the kernel would kill the child.
 */
static void op_cgroup(struct model *m)
{
	pid_t child, parent = getpid();
	char text[32];

	if (geteuid() || !fuzz->has_cgroup)
		return;
	snprintf(text, sizeof(text), "%zu", cgroup_bytes() + 3 * PAGE_BYTES - PAGE_BYTES / 4);
	expect(0, put(CGROUP "/memory.max", text));
	child = fork();
	ensure(child >= 0, "fork: errno %d", errno);
	if (!child) {
		die_with(parent);
		expect(0, enter_cgroup());
		populate_some(m, false);
		_exit(0);
	}
	ensure(!wait_for(child), "a child in a cgroup failed");
}

static const struct operation {
	const char *name;
	unsigned int weight;
	void (*run)(struct model *m);
} operations[] = {
	{ "access", 40, op_access }, { "info", 25, op_info }, { "refused", 8, op_refused },
	{ "map", 12, op_map }, { "populate", 8, op_populate }, { "discard", 8, op_discard },
	{ "hold", 8, op_hold }, { "reopen", 6, op_reopen }, { "list", 4, op_list },
	{ "read-only", 4, op_read_only }, { "end", 2, op_end }, { "share", 2, op_share },
	{ "fork", 1, op_fork }, { "cgroup", 1, op_cgroup },
};

static const struct operation *choose_operation(void)
{
	unsigned int i, sum = 0, at_weight;

	for (i = 0; i < ARRAY_SIZE(operations); i++)
		sum += operations[i].weight;
	at_weight = choose(sum);
	for (i = 0; at_weight >= operations[i].weight; i++)
		at_weight -= operations[i].weight;
	return &operations[i];
}

static bool is_idle(const struct model *m)
{
	struct actmem_ioctl_info now;

	expect(0, ask(m, &now, false));
	return !now.pinned_bytes && !now.mapped_bytes;
}

/* Finds the named regions of the worker that was killed, and checks every byte of them. */
static void recover(struct model *m)
{
	uint32_t i;

	if (m->life != LIVE || m->kind != NAMED) {
		unlink(path_of(m));
		m->life = NONE;
		return;
	}
	m->memory = NULL;
	m->count = 0;
	m->is_shared = false;
	m->exported = 0;
	memset(m->pins, 0, sizeof(m->pins));
	memset(m->state, UNKNOWN, sizeof(m->state));
	m->fd = open(path_of(m), O_RDWR | O_CLOEXEC);
	ensure(m->fd >= 0, "a named region is lost: errno %d", errno);
	ensure(wait_until(is_idle(m)), "pages of a killed process are still mapped or pinned");
	settle(m);
	for (i = 0; i < m->pages; i++)
		fetch(m, i * SMALLS, SMALLS, BY_READ);
	op_info(m);
	count(RECOVERED);
}

/* Runs until the supervisor kills this process. */
__attribute__((noreturn))
static void work(void)
{
	const struct operation *chosen;
	struct model *m;
	int i;

	has_ring = !io_uring_queue_init(8, &ring, 0);
	expect(0, syscall(SYS_io_setup, 8, &aio));
	for (i = 0; i < REGIONS; i++) {
		step("recover");
		recover(&self->regions[i]);
	}
	for (;;) {
		m = &self->regions[choose(REGIONS)];
		chosen = choose_operation();
		step(m->life == LIVE ? chosen->name : "make");
		if (m->life == LIVE)
			chosen->run(m);
		else
			op_make(m);
	}
}

#endif
