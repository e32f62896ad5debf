/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Keeps a list of what is left of each mapping: one that is unmapped in its middle becomes
 * two, of the same region, which is closed with the last of them.
 *
 * A change of the list and of the kernel's mappings is one step under the lock: other
 * threads may get the same addresses as soon as they are free.
 *
 * Huge pages can be unmapped whole alone. Where the program unmaps a part of one, the page
 * goes with the rest of it.
 *
 * A region's mapping is shared. Of what the program mapped as private a child by fork()
 * gets a copy, as it was then. Of registered memory it gets none, as of other memory of
 * regions: it may be most of the machine's.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "machine/machine.h"
#include "preload/cuda/mapped_list.h"
#include "preload/say.h"

/* As in large.c: pthread_atfork() would keep this from loading with other C libraries. */
int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
		      void *library) __attribute__((weak));

struct mapped_gate mapped_gate = { .low = UINTPTR_MAX };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* A fork() of a signal's handler finds the lock taken, and leaves it alone. */
static __thread volatile sig_atomic_t inside;
static struct mapped *list;

/*
 * What a change of the list takes and leaves: no malloc is called under the lock, as it may
 * have a lock of its own, with which other threads call madvise() and so come here.
 */
struct cuts {
	struct mapped *spare;		/* for a part that becomes two, or NULL */
	struct mapped *gone;
	struct mapped_region *done;	/* nothing is left of these */
};

void mapped_lock(void)
{
	inside = true;
	pthread_mutex_lock(&mutex);
}

void mapped_unlock(void)
{
	pthread_mutex_unlock(&mutex);
	inside = false;
}

static void end_before(struct piece *piece, char *end)
{
	if (end > piece->first && end < piece->end)
		piece->end = end;
}

struct piece mapped_piece(char *first, char *end)
{
	struct piece piece = { NULL, false, first, end };
	struct mapped *mapped;

	for (mapped = list; mapped; mapped = mapped->next) {
		char *page = page_of(mapped->of, mapped->first);
		char *behind = page_behind(mapped->of, mapped->end);

		if (mapped->first <= first && first < mapped->end)
			piece.mapped = mapped;
		if (page <= first && first < behind)
			piece.is_rest = true;
		end_before(&piece, page);
		end_before(&piece, mapped->first);
		end_before(&piece, mapped->end);
		end_before(&piece, behind);
	}
	return piece;
}

static bool any_is_left(const char *first, const char *end)
{
	struct mapped *mapped;

	for (mapped = list; mapped; mapped = mapped->next)
		if (mapped->first < end && first < mapped->end)
			return true;
	return false;
}

static void add_part(struct mapped_region *of, char *first, char *end, struct mapped *mapped)
{
	*mapped = (struct mapped){ .next = list, .first = first, .end = end, .of = of };
	list = mapped;
	of->parts++;
}

static void drop_part(struct mapped *mapped, struct cuts *cuts)
{
	struct mapped **link = &list;

	while (*link != mapped)
		link = &(*link)->next;
	*link = mapped->next;
	if (!--mapped->of->parts) {
		mapped->of->next = cuts->done;
		cuts->done = mapped->of;
	}
	mapped->next = cuts->gone;
	cuts->gone = mapped;
}

/* To take it out makes two parts of one. */
static bool is_in_the_middle(const struct piece *piece)
{
	return piece->first > piece->mapped->first && piece->end < piece->mapped->end;
}

/* Takes a piece out of what is left. False: no memory to remember two parts. */
static bool cut_piece(const struct piece *piece, struct cuts *cuts)
{
	struct mapped *mapped = piece->mapped;

	if (is_in_the_middle(piece)) {
		if (!cuts->spare)
			return false;
		add_part(mapped->of, piece->end, mapped->end, cuts->spare);
		cuts->spare = NULL;
		list->not_for_children = mapped->not_for_children;
		mapped->end = piece->first;
	} else if (piece->first > mapped->first) {
		mapped->end = piece->first;
	} else if (piece->end < mapped->end) {
		mapped->first = piece->end;
	} else {
		drop_part(mapped, cuts);
	}
	return true;
}

static bool cut(char *first, char *end, struct cuts *cuts)
{
	struct piece piece;

	for (; first < end; first = piece.end) {
		piece = mapped_piece(first, end);
		if (piece.mapped && !cut_piece(&piece, cuts))
			return false;
	}
	return true;
}

/* A malloc is not called again while it unmaps its own memory, which is in no mapping here. */
static void begin_cuts(struct cuts *cuts, char *first, char *end)
{
	struct piece piece;

	*cuts = (struct cuts){ .spare = NULL };
	mapped_lock();
	piece = mapped_piece(first, end);
	if (!piece.mapped || !is_in_the_middle(&piece))
		return;
	mapped_unlock();
	cuts->spare = calloc(1, sizeof(*cuts->spare));
	mapped_lock();
}

static void end_cuts(struct cuts *cuts)
{
	struct mapped_region *of;
	struct mapped *mapped;

	mapped_unlock();
	free(cuts->spare);
	while ((mapped = cuts->gone)) {
		cuts->gone = mapped->next;
		free(mapped);
	}
	while ((of = cuts->done)) {
		cuts->done = of->next;
		cuda_region_close(&of->its);
		free(of);
	}
}

/* The page at @at, if a part has any of it; else no bytes at @otherwise. */
static struct piece page_with(char *at, char *otherwise)
{
	struct piece page = { .first = otherwise, .end = otherwise };
	struct mapped *mapped;

	for (mapped = list; mapped; mapped = mapped->next) {
		if (page_of(mapped->of, mapped->first) > at ||
		    page_behind(mapped->of, mapped->end) <= at)
			continue;
		page.first = page_of(mapped->of, at);
		page.end = page.first + mapped->of->its.page_bytes;
	}
	return page;
}

/*
 * By one call of the kernel's: what the program unmapped before and unmaps again, between
 * two parts, another thread could get after the part in front of it is gone.
 */
static int unmap(char *first, char *end, struct cuts *cuts)
{
	struct piece begin = page_with(first, first), last = page_with(end - 1, end);

	if (!cut(first, end, cuts)) {
		errno = ENOMEM;
		return -1;
	}
	first = any_is_left(begin.first, begin.end) ? begin.end : begin.first;
	end = any_is_left(last.first, last.end) ? last.first : last.end;
	return first < end ? kernel_munmap(first, (size_t)(end - first)) : 0;
}

int mapped_unmap(void *address, size_t bytes)
{
	char *first = address, *end = first + round_up(bytes, BASE_PAGE_BYTES);
	int failed, saved = errno;
	struct cuts cuts;

	if ((uintptr_t)address % BASE_PAGE_BYTES || end <= first)
		return kernel_munmap(address, bytes);
	begin_cuts(&cuts, first, end);
	failed = unmap(first, end, &cuts);
	if (failed)
		saved = errno;
	end_cuts(&cuts);
	errno = saved;
	return failed;
}

void mapped_forget(const void *address, size_t bytes)
{
	char *first = (char *)address, *end = first + round_up(bytes, BASE_PAGE_BYTES);
	int saved = errno;
	struct cuts cuts;

	begin_cuts(&cuts, first, end);
	/* Without memory, the end of it is taken to be there until all of it goes. */
	cut(first, end, &cuts);
	end_cuts(&cuts);
	errno = saved;
}

char *mapped_view(const struct mapped_region *of, char *first, char *end)
{
	char *begin = page_of(of, first);
	char *pages = kernel_mmap(NULL, (size_t)(page_behind(of, end) - begin),
				  PROT_READ | PROT_WRITE, MAP_SHARED, of->fd,
				  begin - of->range.address);

	return pages == MAP_FAILED ? NULL : pages + (first - begin);
}

void mapped_unview(const struct mapped_region *of, char *first, char *end, char *pages)
{
	char *begin = page_of(of, first);

	kernel_munmap(pages - (first - begin), (size_t)(page_behind(of, end) - begin));
}

enum mapped_kind mapped_kind(const void *address, size_t bytes)
{
	char *first = (char *)address, *end = first + bytes;
	enum mapped_kind kind = MAPPED_NOT;
	struct piece piece;

	if (!mapped_may_have(address, bytes))
		return MAPPED_NOT;
	mapped_lock();
	for (; first < end && kind != MAPPED_SHARED; first = piece.end) {
		piece = mapped_piece(first, end);
		if (piece.mapped)
			kind = piece.mapped->of->range.is_shared ? MAPPED_SHARED : MAPPED_PRIVATE;
	}
	mapped_unlock();
	return kind;
}

void mapped_registered(const void *address, bool is_registered)
{
	struct mapped *mapped;

	if (!mapped_may_have(address, 1))
		return;
	mapped_lock();
	mapped = mapped_piece((char *)address, (char *)address + 1).mapped;
	if (mapped && is_registered)
		mapped->of->registered++;
	else if (mapped && mapped->of->registered)
		mapped->of->registered--;
	mapped_unlock();
}

static void widen_gate(const struct mapped_range *range)
{
	uintptr_t first = (uintptr_t)range->address, end = first + range->length;

	if (first < mapped_gate.low)
		atomic_store_explicit(&mapped_gate.low, first, memory_order_relaxed);
	if (end > mapped_gate.high)
		atomic_store_explicit(&mapped_gate.high, end, memory_order_relaxed);
}

bool mapped_put(const struct mapped_range *range, const struct cuda_region *its)
{
	struct mapped_region *of = calloc(1, sizeof(*of));
	struct mapped *mapped = calloc(1, sizeof(*mapped));
	bool put = false;

	if (of && mapped) {
		of->range = *range;
		of->its = *its;
		of->fd = cuda_library.actmem_region_fd(its->region);
		mapped_lock();
		put = kernel_mmap(range->address, range->length, PROT_READ | PROT_WRITE,
				  MAP_SHARED | MAP_FIXED, of->fd, 0) != MAP_FAILED &&
		      (range->is_shared ||
		       !kernel_madvise(range->address, range->length, MADV_DONTFORK));
		if (put) {
			add_part(of, range->address, range->address + range->length, mapped);
			widen_gate(range);
		}
		mapped_unlock();
	}
	if (!put) {
		free(mapped);
		free(of);
	}
	return put;
}

static void copy_for_child(struct mapped *mapped)
{
	size_t bytes = (size_t)(mapped->end - mapped->first);
	char *pages = mapped_view(mapped->of, mapped->first, mapped->end);
	void *copy = MAP_FAILED;

	if (pages)
		copy = kernel_mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (copy != MAP_FAILED)
		mapped->copy = memcpy(copy, pages, bytes);
	else
		say_once(TALE_CHILD, "a forked child has nothing where %s are mapped: no memory for a copy (%s)",
			 SAY_BYTES(bytes), strerror(errno));
	if (pages)
		mapped_unview(mapped->of, mapped->first, mapped->end, pages);
}

static void before_fork(void)
{
	struct mapped *mapped;

	if (inside)
		return;
	pthread_mutex_lock(&mutex);
	for (mapped = list; mapped; mapped = mapped->next)
		if (!mapped->of->range.is_shared && !mapped->of->registered &&
		    !mapped->not_for_children)
			copy_for_child(mapped);
}

static void after_fork_in_parent(void)
{
	struct mapped *mapped;

	if (inside)
		return;
	for (mapped = list; mapped; mapped = mapped->next) {
		if (mapped->copy)
			kernel_munmap(mapped->copy, (size_t)(mapped->end - mapped->first));
		mapped->copy = NULL;
	}
	pthread_mutex_unlock(&mutex);
}

/* From here on it is all the kernel's: a child has no part in the parent's regions. */
static void after_fork_in_child(void)
{
	struct mapped *mapped;

	if (!inside)
		for (mapped = list; mapped; mapped = mapped->next)
			if (mapped->copy)
				syscall(SYS_mremap, mapped->copy,
					(size_t)(mapped->end - mapped->first),
					(size_t)(mapped->end - mapped->first),
					MREMAP_MAYMOVE | MREMAP_FIXED, mapped->first);
	list = NULL;
	mapped_gate.low = UINTPTR_MAX;
	mapped_gate.high = 0;
	pthread_mutex_init(&mutex, NULL);
}

bool mapped_begin(void)
{
	return __register_atfork &&
	       !__register_atfork(before_fork, after_fork_in_parent, after_fork_in_child, NULL);
}
