/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The operations of a worker that make regions, change their pages and ask for them. */
#ifndef FUZZ_REGION_H
#define FUZZ_REGION_H

#include <poll.h>

#include "cgroup_test.h"
#include "dmabuf_test.h"
#include "fuzz_move.h"

#define HOLDS	3

/* Pages that the worker pins. @m is NULL once their region has ended. */
static struct hold {
	enum { NOTHING, BY_PIPE, BY_DMABUF, BY_BUFFER } kind;
	int ends[2];
	struct model *m;
	uint64_t key;
	uint32_t first;
	uint32_t pages;
	uint32_t small;
	uint32_t version;
} holds[HOLDS];

static const char *path_of(const struct model *m)
{
	static char path[64];

	snprintf(path, sizeof(path), AT "/%u-%td", self->number, m - self->regions);
	return path;
}

static void pick_pages(const struct model *m, uint32_t *first, uint32_t *number)
{
	*first = choose(m->pages);
	*number = 1 + choose(m->pages - *first);
}

/* Chooses small pages of the @pages pages from @page on. */
static void pick(uint32_t page, uint32_t pages, uint32_t *first, uint32_t *number)
{
	uint32_t end = (page + pages) * SMALLS;

	*first = page * SMALLS + choose(pages * SMALLS);
	*number = 1 + choose(choose(24) ? 6 : SMALLS);
	if (*number > end - *first)
		*number = end - *first;
}

static int ask(const struct model *m, struct actmem_ioctl_info *now, bool by_id)
{
	static uint64_t node_bytes[ACTMEM_NODE_MAX];

	*now = (struct actmem_ioctl_info){
		.size = sizeof(*now),
		.id = by_id ? m->id : 0,
		.node_bytes = (uintptr_t)node_bytes,
		.node_count = ACTMEM_NODE_MAX,
	};
	return call(by_id ? fuzz->device : m->fd, ACTMEM_IOC_INFO, now);
}

static void op_make(struct model *m)
{
	uint32_t pages = 1 + choose(PAGES), policy = choose(3);
	uint64_t nodes = choose(1 << fuzz->node_count);
	struct actmem_ioctl_create arg;
	struct actmem_ioctl_info now;

	if (policy == ACTMEM_POLICY_PREFERRED)
		nodes &= -nodes;
	else if (policy == ACTMEM_POLICY_BIND)
		nodes += !nodes;
	m->life = NONE;
	unlink(path_of(m));
	memset(m, 0, sizeof(*m));
	m->life = MAKING;
	m->kind = choose(3);
	m->pages = pages;
	m->key = mix(random_state);
	m->is_inherited = choose(2);
	arg = region_on(pages, policy, nodes);
	arg.flags = LAZY | (m->is_inherited ? ACTMEM_CREATE_INHERIT : 0);
	if (m->kind == UNNAMED) {
		strcpy(arg.name, "fuzz");
		expect(0, create_empty(fuzz->device, &arg));
		m->fd = arg.fd;
	} else {
		m->fd = m->kind == NAMED ? make_file(path_of(m)) :
					   open(AT, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		ensure(m->fd >= 0, "cannot create a file: %d", m->fd);
		if (choose(2)) {
			expect(0, create_empty(m->fd, &arg));
		} else {
			expect(0, ftruncate(m->fd, pages * PAGE_BYTES));
			m->is_inherited = false;
		}
	}
	expect(0, ask(m, &now, false));
	m->id = now.id;
	m->policy = now.policy;
	m->nodes = now.nodes[0];
	note(m, 0, pages, policy);
	m->life = LIVE;
}

/* Waits until the driver no longer knows a region that nothing can hold. */
static bool has_ended(const struct model *m)
{
	struct actmem_ioctl_info now;

	return ask(m, &now, true) == -ENOENT;
}

static void op_end(struct model *m)
{
	bool is_held = m->is_shared, is_pinned = false;
	struct actmem_ioctl_info now;
	int i;

	for (i = 0; i < HOLDS; i++) {
		if (!holds[i].kind || holds[i].m != m)
			continue;
		holds[i].m = NULL;
		holds[i].version = m->version[holds[i].small];
		is_held |= holds[i].kind == BY_DMABUF;
		is_pinned = true;
	}
	m->life = MAKING;
	if (m->memory)
		expect(0, munmap(m->memory, m->count * PAGE_BYTES));
	m->memory = NULL;
	if (m->kind == NAMED)
		expect(0, unlink(path_of(m)));
	expect(0, close(m->fd));
	note(m, is_held, is_pinned, 0);
	if (!is_held && !is_pinned) {
		ensure(wait_until(has_ended(m)), "region %llu still exists after its end",
		       (unsigned long long)m->id);
	} else if (!is_held) {
		expect(0, ask(m, &now, true));
		ensure(now.state & ACTMEM_INFO_LINGERING && now.pinned_bytes,
		       "region %llu has pinned pages and does not linger",
		       (unsigned long long)m->id);
		count(LINGERED);
	}
	m->life = NONE;
}

static void populate_some(struct model *m, bool checks_bytes)
{
	static const int errors[] = {
		[ACTMEM_WHY_NODE_FULL] = -ENOMEM, [ACTMEM_WHY_MEMLOCK] = -ENOMEM,
		[ACTMEM_WHY_MEMCG] = -ENOMEM, [ACTMEM_WHY_USER_LIMIT] = -EDQUOT,
		[ACTMEM_WHY_NODE_LIMIT] = -EDQUOT, [ACTMEM_WHY_MOUNT_LIMIT] = -ENOSPC,
		[ACTMEM_WHY_DMEM] = -EDQUOT,
	};
	uint32_t first, number, done, i;
	struct actmem_ioctl_range arg;
	int err;

	pick_pages(m, &first, &number);
	err = change_range(m->fd, ACTMEM_IOC_POPULATE, first, number, &arg);
	note(m, first, number, err);
	done = arg.done / PAGE_BYTES;
	if (err) {
		count(REFUSED);
		ensure(arg.why.reason < ARRAY_SIZE(errors) && errors[arg.why.reason] == err,
		       "POPULATE returned %d with reason %u", err, arg.why.reason);
		ensure(m->kind || arg.why.reason != ACTMEM_WHY_MOUNT_LIMIT,
		       "an unnamed region exceeds the size of a mount");
		ensure(!all_present(m, first * SMALLS, number * SMALLS),
		       "POPULATE of present pages returned %d", err);
	}
	ensure(err ? done < number : done == number, "POPULATE returned %d and %u pages of %u",
	       err, done, number);
	for (i = first; i < first + done; i++)
		m->state[i] = PRESENT;
	if (done && checks_bytes)
		fetch(m, (first + choose(done)) * SMALLS, SMALLS, BY_READ);
}

static void op_populate(struct model *m)
{
	populate_some(m, !choose(4));
}

/* After a DISCARD with EBUSY: which page is it, if any of its bytes can tell? */
static void find_discarded(struct model *m, uint32_t page)
{
	uint64_t words[WORDS];
	uint32_t i, end = (page + 1) * SMALLS;

	for (i = page * SMALLS; i < end && !m->version[i]; i++)
		;
	if (m->state[page] == PRESENT && i == end && !m->pins[page])
		m->state[page] = UNKNOWN;
	if (i == end)
		return;
	expect(SMALL, pread(m->fd, words, SMALL, (off_t)i * SMALL));
	if (pattern_differs(words, m->key, i, m->version[i]) < 0)
		return;
	ensure(!m->pins[page], "DISCARD freed page %u of region %td, which is pinned", page,
	       m - self->regions);
	memset(&m->version[page * SMALLS], 0, SMALLS * sizeof(m->version[0]));
	m->state[page] = m->is_shared ? UNKNOWN : MISSING;
}

static void op_discard(struct model *m)
{
	uint32_t first, number, done, i, pinned = 0;
	struct actmem_ioctl_range arg;
	int err, tries = PATIENCE_MS / 2;

	pick_pages(m, &first, &number);
	for (i = first; i < first + number; i++)
		pinned += !!m->pins[i];
	change_begin(m, first * SMALLS, number * SMALLS, 0);
	do {
		err = change_range(m->fd, ACTMEM_IOC_DISCARD, first, number, &arg);
	} while (err == -EBUSY && !pinned && !m->is_shared && --tries && !usleep(2000));
	note(m, first, number, err);
	done = arg.done / PAGE_BYTES;
	ensure(!err || err == -EBUSY, "DISCARD returned %d", err);
	ensure(err ? done < number : done == number, "DISCARD returned %d and %u pages of %u",
	       err, done, number);
	ensure(!pinned || done <= number - pinned, "DISCARD freed %u pages of %u, of which %u are pinned",
	       done, number, pinned);
	ensure(!err || pinned || m->is_shared, "DISCARD returned EBUSY for %d ms, but no page is pinned",
	       PATIENCE_MS);
	if (!err) {
		change_end(m, number * SMALLS);
		memset(m->state + first, m->is_shared ? UNKNOWN : MISSING, number);
	} else {
		count(BUSY);
		for (i = first; i < first + number; i++)
			find_discarded(m, i);
		change_end(m, 0);
	}
	if (!choose(4))
		fetch(m, (first + choose(number)) * SMALLS, SMALLS, BY_READ);
}

/* Returns the node on which an interleaved region has a page. */
static unsigned int node_of_page(const struct model *m, uint32_t page)
{
	unsigned int node, i = page % __builtin_popcountll(m->nodes);

	for (node = 0; !(m->nodes >> node & 1) || i; node++)
		i -= m->nodes >> node & 1;
	return node;
}

static void check_node(const struct model *m, const uint64_t *node_bytes)
{
	uint32_t page = m->first + choose(m->count);
	void *address = at(m, page * SMALLS);
	int node = -1;

	if (m->state[page] != PRESENT ||
	    syscall(SYS_move_pages, 0, 1, &address, NULL, &node, 0) || node < 0)
		return;
	ensure(node_bytes[node] >= PAGE_BYTES, "page %u is on node %d, where INFO counts none",
	       page, node);
	ensure(m->policy != ACTMEM_POLICY_INTERLEAVE || node == (int)node_of_page(m, page),
	       "page %u is on node %d, not %u", page, node, node_of_page(m, page));
}

static void op_info(struct model *m)
{
	uint32_t i, here, allocated, least = 0, most = 0, pinned = 0, sum = 0;
	uint32_t state = (m->is_inherited ? ACTMEM_INFO_INHERIT : 0) |
			 (m->kind == UNNAMED ? 0 : ACTMEM_INFO_NAMED);
	const uint64_t *node_bytes;
	struct pollfd events = { m->fd, POLLIN | POLLOUT, 0 };
	struct actmem_ioctl_info now;
	struct stat status;

	expect(0, ask(m, &now, choose(2)));
	expect(0, fstat(m->fd, &status));
	expect(1, poll(&events, 1, 0));
	ensure(events.revents == (POLLIN | POLLOUT), "poll: events %x", events.revents);
	node_bytes = (uint64_t *)(uintptr_t)now.node_bytes;
	for (i = 0; i < m->pages; i++) {
		least += m->state[i] == PRESENT;
		most += m->state[i] != MISSING;
		pinned += !!m->pins[i];
	}
	for (i = 0; i < now.node_count; i++) {
		here = node_bytes[i] / PAGE_BYTES;
		sum += here;
		ensure(!here || m->policy == ACTMEM_POLICY_PREFERRED || m->nodes >> i & 1,
		       "INFO: %u pages on node %u, against the policy", here, i);
	}
	allocated = now.allocated_bytes / PAGE_BYTES;
	ensure(allocated >= least && allocated <= most && allocated == sum,
	       "INFO: %u pages are allocated, %u on all nodes, not %u to %u", allocated, sum,
	       least, most);
	ensure(m->is_shared || status.st_blocks * 512ULL == now.allocated_bytes,
	       "fstat: %ld blocks are allocated, INFO: %u pages", status.st_blocks, allocated);
	ensure(now.length == m->pages * PAGE_BYTES && now.id == m->id && now.state == state &&
	       status.st_size == (off_t)now.length, "INFO: id %llu, length %llu, state %x",
	       now.id, now.length, now.state);
	ensure(now.exported_bytes == m->exported * PAGE_BYTES &&
	       now.pinned_bytes >= pinned * PAGE_BYTES &&
	       (m->is_shared || now.mapped_bytes <= m->count * PAGE_BYTES),
	       "INFO: bytes exported %llu, pinned %llu, mapped %llu, but pages %u, %u, %u",
	       now.exported_bytes, now.pinned_bytes, now.mapped_bytes, m->exported, pinned,
	       m->count);
	ensure(now.surplus_bytes <= now.length && !now.surplus_bytes == !now.surplus_reason,
	       "INFO: a surplus of %llu bytes, reason %u", now.surplus_bytes, now.surplus_reason);
	if (m->memory)
		check_node(m, node_bytes);
}

#endif
