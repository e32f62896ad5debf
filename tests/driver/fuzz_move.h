/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The ways in which the fuzzer reads and writes bytes of a region, and compares them. */
#ifndef FUZZ_MOVE_H
#define FUZZ_MOVE_H

#include <liburing.h>
#include <linux/aio_abi.h>

#include "fuzz_model.h"

/* BY_DISK and the following ways move bytes between the region and the disk. */
enum way { BY_MAPPING, BY_VM, BY_READ, BY_DISK, BY_AIO, BY_RING, BY_FIXED, WAYS };

static const char *const ways[] = {
	"mapping", "process_vm", "read(2)", "disk", "AIO", "io_uring", "fixed buffer",
};

/* Only the main thread of a worker uses these. */
static char buffer[SMALLS * SMALL] __attribute__((aligned(4096)));
static struct io_uring ring;
static bool has_ring, has_fixed;
static aio_context_t aio;

static inline char *at(const struct model *m, uint32_t small)
{
	return m->memory + (size_t)small * SMALL - m->first * PAGE_BYTES;
}

static inline off_t disk_place(void)
{
	return (off_t)self->number * 2 * sizeof(buffer);
}

static inline long aio_move(bool is_write, void *memory, size_t length)
{
	struct iocb call = {
		.aio_lio_opcode = is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
		.aio_fildes = fuzz->disk,
		.aio_buf = (uintptr_t)memory,
		.aio_nbytes = length,
		.aio_offset = disk_place(),
	}, *calls[] = { &call };
	struct io_event event;

	if (syscall(SYS_io_submit, aio, 1, calls) != 1)
		return -errno;
	/* This kind of request cannot be cancelled. */
	if (!choose(4))
		syscall(SYS_io_cancel, aio, &call, &event);
	while (syscall(SYS_io_getevents, aio, 1, 1, &event, NULL) != 1)
		ensure(errno == EINTR, "io_getevents: errno %d", errno);
	return event.res;
}

static inline long ring_move(bool is_write, bool is_fixed, void *memory, size_t length)
{
	static const int requests[] = {
		IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED,
	};
	bool is_cancelled = !choose(8);
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	struct io_uring_cqe *cqe;
	int i, err, result = 0;

	io_uring_prep_rw(requests[2 * is_fixed + is_write], sqe, fuzz->disk, memory, length,
			 disk_place());
	sqe->user_data = 1;
	if (choose(2))
		sqe->flags |= IOSQE_ASYNC;
	if (is_cancelled) {
		sqe = io_uring_get_sqe(&ring);
		io_uring_prep_cancel(sqe, (void *)1, 0);
		sqe->user_data = 2;
	}
	io_uring_submit(&ring);
	for (i = 0; i < 1 + is_cancelled; i++) {
		while ((err = io_uring_wait_cqe(&ring, &cqe)) == -EINTR)
			;
		ensure(!err, "io_uring_wait_cqe: %d", err);
		if (cqe->user_data == 1)
			result = cqe->res;
		io_uring_cqe_seen(&ring, cqe);
	}
	if (!is_cancelled || (result != -ECANCELED && result != -EINTR))
		return result;
	count(CANCELLED);
	return -ECANCELED;
}

/*
 * Moves bytes from memory to the disk or, by process_vm, to the buffer; without @is_read, in
 * the other direction. Returns their number or a negative errno.
 */
static inline long move(enum way way, bool is_read, void *memory, size_t length)
{
	struct iovec vector = { memory, length }, local = { buffer, length };
	long result;
	int err;

	if (way == BY_AIO)
		return aio_move(is_read, memory, length);
	if (way == BY_FIXED && has_ring && !has_fixed) {
		err = io_uring_register_buffers(&ring, &vector, 1);
		/* Linux 6.1 registers no memory of files. RLIMIT_MEMLOCK also applies. */
		if (err)
			return err == -EOPNOTSUPP || err == -ENOMEM ? -ECANCELED : err;
		result = ring_move(is_read, true, memory, length);
		expect(0, io_uring_unregister_buffers(&ring));
		return result;
	}
	if (way >= BY_RING && has_ring)
		return ring_move(is_read, false, memory, length);
	if (way == BY_VM)
		result = (is_read ? process_vm_readv : process_vm_writev)(getpid(), &local, 1,
									  &vector, 1, 0);
	else
		result = is_read ? pwrite(fuzz->disk, memory, length, disk_place()) :
				   pread(fuzz->disk, memory, length, disk_place());
	return result < 0 ? -errno : result;
}

/* Copies small pages to the buffer or, with a version, fills them. Returns how many. */
static inline uint32_t touch(const struct model *m, uint32_t first, uint32_t number,
			     uint32_t version)
{
	volatile uint32_t done = 0;

	if (!touch_begin())
		for (; done < number; done++) {
			if (version)
				pattern_fill(at(m, first + done), m->key, first + done, version);
			else
				memcpy(buffer + done * SMALL, at(m, first + done), SMALL);
		}
	touch_end();
	return done;
}

/* Returns how many small pages of a range were moved: all, if their pages are present. */
static inline uint32_t moved(struct model *m, enum way way, uint32_t first, uint32_t number,
			     long result)
{
	uint32_t done = result < 0 ? 0 : result / SMALL;

	note(m, first, number, result);
	if (done == number) {
		pages_touched(m, first, number, done);
		return done;
	}
	/* A block device reports EIO if a page of a later bio is missing. */
	ensure(result >= 0 || result == -EFAULT || (result == -EIO && way >= BY_DISK) ||
	       (result == -ECANCELED && way >= BY_RING),
	       "%s of region %td returned %ld", ways[way], m - self->regions, result);
	ensure(result == -ECANCELED || !all_present(m, first, number),
	       "%s of region %td, small pages %u to %u: %ld, although all pages are present",
	       ways[way], m - self->regions, first, first + number, result);
	if (result != -ECANCELED)
		count(FAULTED);
	pages_touched(m, first, number, way == BY_MAPPING || way == BY_VM ? done : 0);
	return done;
}

/* Reads small pages and compares them. All ways other than BY_READ need a mapping. */
static inline void fetch(struct model *m, uint32_t first, uint32_t number, enum way way)
{
	size_t length = (size_t)number * SMALL, i;
	uint32_t done = number;
	long result;

	for (i = 0; i < number * WORDS; i += WORDS)
		((uint64_t *)buffer)[i] = ~0ULL;
	if (way == BY_READ) {
		expect((long)length, pread(m->fd, buffer, length, (off_t)first * SMALL));
		note(m, first, number, 0);
	} else {
		result = way == BY_MAPPING ? (long)touch(m, first, number, 0) * SMALL :
			 move(way, true, at(m, first), length);
		done = moved(m, way, first, number, result);
		if (done && way >= BY_DISK)
			expect((long)done * SMALL,
			       pread(fuzz->disk, buffer, (size_t)done * SMALL, disk_place()));
	}
	check_bytes(m, buffer, first, done, ways[way]);
}

/* Finds out what an interrupted change did, and completes the small pages that it cut in two. */
static inline void settle(struct model *m)
{
	static uint64_t words[WORDS] __attribute__((aligned(4096)));
	uint32_t i, version = m->change.version;
	size_t w;

	for (i = m->change.first; i < m->change.first + m->change.count; i++) {
		off_t page = i / SMALLS * PAGE_BYTES;
		char *memory;

		expect(SMALL, pread(m->fd, words, SMALL, (off_t)i * SMALL));
		if (pattern_differs(words, m->key, i, m->version[i]) < 0)
			continue;
		if (pattern_differs(words, m->key, i, version) < 0) {
			m->version[i] = version;
			continue;
		}
		for (w = 0; w < WORDS; w++) {
			bool is_old = words[w] == word_of(m->key, i, m->version[i], w);
			bool is_new = words[w] == word_of(m->key, i, version, w);

			ensure(version && (is_old || is_new),
			       "region %td, small page %u, word %zu is %016llx after a change from version %u to %u",
			       m - self->regions, i, w, (unsigned long long)words[w],
			       m->version[i], version);
		}
		memory = mapped(mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd,
				     page));
		pattern_fill(memory + i % SMALLS * SMALL, m->key, i, version);
		munmap(memory, PAGE_BYTES);
		m->version[i] = version;
	}
	change_end(m, 0);
}

/* Writes a new version of small pages of the mapping. */
static inline void store(struct model *m, uint32_t first, uint32_t number, enum way way)
{
	size_t length = (size_t)number * SMALL;
	uint32_t i, done, version = ++m->next_version;
	long result;

	way = way == BY_READ ? BY_MAPPING : way;
	for (i = 0; i < number && way != BY_MAPPING; i++)
		pattern_fill(buffer + i * SMALL, m->key, first + i, version);
	if (way >= BY_DISK)
		expect((long)length, pwrite(fuzz->disk, buffer, length, disk_place()));
	change_begin(m, first, number, version);
	result = way == BY_MAPPING ? (long)touch(m, first, number, version) * SMALL :
		 move(way, false, at(m, first), length);
	done = moved(m, way, first, number, result);
	if (done == number || way == BY_MAPPING)
		change_end(m, done);
	else
		settle(m);
}

#endif
