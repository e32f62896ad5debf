/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Keeps a list of what is left of each mapping: one that is unmapped in its middle becomes
 * two, of the same region, which is closed with the last of them.
 *
 * A change of the list and of the kernel's mappings is one step under the lock: other
 * threads may get the same addresses as soon as they are free.
 *
 * Pages of regions can be unmapped whole alone, those of 4 KiB excepted. Where the program
 * unmaps a part of one, the page goes with the rest of it.
 *
 * A region's mapping is shared. What the program mapped as private reads as zeros after
 * MADV_DONTNEED, and a child by fork() gets a copy of it as it was then. Of registered
 * memory it gets none, as of other memory of regions: it may be most of the machine's.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "machine/machine.h"
#include "preload/cuda/mapped.h"
#include "preload/say.h"

/* Newer kernels have these; the headers here may be older. */
#define ADVICE_DONTNEED_LOCKED	24
#define ADVICE_COLLAPSE		25

/* As in large.c: pthread_atfork() would keep this from loading with other C libraries. */
int __register_atfork(void (*before)(void), void (*in_parent)(void), void (*in_child)(void),
		      void *library) __attribute__((weak));

struct mapped_region {
	struct mapped_region *next;	/* of those that are to be closed */
	struct mapped_range range;
	struct cuda_region its;
	int fd;
	unsigned int parts, registered;
};

/* What is left. */
struct mapped {
	struct mapped *next;
	char *first, *end;
	struct mapped_region *of;
	bool not_for_children;		/* MADV_DONTFORK */
	void *copy;			/* for a child, while it is made */
};

struct piece {
	struct mapped *mapped;		/* NULL: it is in none */
	char *first, *end;
};

struct mapped_gate mapped_gate = { .low = UINTPTR_MAX };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* A fork() of a signal's handler finds the lock taken, and leaves it alone. */
static __thread volatile sig_atomic_t inside;
static struct mapped *list;

static void lock_list(void)
{
	inside = true;
	pthread_mutex_lock(&mutex);
}

static void unlock_list(void)
{
	pthread_mutex_unlock(&mutex);
	inside = false;
}

static char *page_of(const struct mapped_region *of, char *at)
{
	return at - (uintptr_t)at % of->range.unit;
}

static char *page_behind(const struct mapped_region *of, char *end)
{
	return page_of(of, end + of->range.unit - 1);
}

static size_t bytes_of(const struct piece *piece)
{
	return (size_t)(piece->end - piece->first);
}

/* Under the lock, as those below: the piece at @first of what ends at @end. */
static struct piece piece_at(char *first, char *end)
{
	struct piece piece = { NULL, first, end };
	struct mapped *mapped;

	for (mapped = list; mapped; mapped = mapped->next) {
		if (mapped->first <= first && first < mapped->end) {
			piece.mapped = mapped;
			if (mapped->end < piece.end)
				piece.end = mapped->end;
			return piece;
		}
		if (mapped->first > first && mapped->first < piece.end)
			piece.end = mapped->first;
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

static bool add_part(struct mapped_region *of, char *first, char *end)
{
	struct mapped *mapped = calloc(1, sizeof(*mapped));

	if (!mapped)
		return false;
	*mapped = (struct mapped){ .next = list, .first = first, .end = end, .of = of };
	list = mapped;
	of->parts++;
	return true;
}

static void drop_part(struct mapped *mapped, struct mapped_region **done)
{
	struct mapped **link = &list;

	while (*link != mapped)
		link = &(*link)->next;
	*link = mapped->next;
	if (!--mapped->of->parts) {
		mapped->of->next = *done;
		*done = mapped->of;
	}
	free(mapped);
}

/* Takes a piece out of what is left. False: no memory to remember two parts. */
static bool cut_piece(const struct piece *piece, struct mapped_region **done)
{
	struct mapped *mapped = piece->mapped;

	if (piece->first > mapped->first && piece->end < mapped->end) {
		if (!add_part(mapped->of, piece->end, mapped->end))
			return false;
		list->not_for_children = mapped->not_for_children;
		mapped->end = piece->first;
	} else if (piece->first > mapped->first) {
		mapped->end = piece->first;
	} else if (piece->end < mapped->end) {
		mapped->first = piece->end;
	} else {
		drop_part(mapped, done);
	}
	return true;
}

static bool cut(char *first, char *end, struct mapped_region **done)
{
	struct piece piece;

	for (; first < end; first = piece.end) {
		piece = piece_at(first, end);
		if (piece.mapped && !cut_piece(&piece, done))
			return false;
	}
	return true;
}

/* Without the lock. */
static void close_all(struct mapped_region *done)
{
	struct mapped_region *next;

	for (; done; done = next) {
		next = done->next;
		cuda_region_close(&done->its);
		free(done);
	}
}

static int unmap_page_of(const struct mapped_region *of, char *at)
{
	char *page = page_of(of, at);

	return any_is_left(page, page + of->range.unit) ? 0 :
	       kernel_munmap(page, of->range.unit);
}

/* What has been cut of @of; else whole pages of it, if it has any. */
static int unmap_pages(const struct mapped_region *of, const struct piece *piece)
{
	char *first = page_behind(of, piece->first), *end = page_of(of, piece->end);

	if (!kernel_munmap(piece->first, bytes_of(piece)))
		return 0;
	if (errno != EINVAL)
		return -1;
	if (first < end && kernel_munmap(first, (size_t)(end - first)))
		return -1;
	if (piece->first != first && unmap_page_of(of, piece->first))
		return -1;
	return piece->end != end && (end >= first || piece->first == first) ?
	       unmap_page_of(of, piece->end - 1) : 0;
}

static int unmap_pieces(char *first, char *end, struct mapped_region **done)
{
	const struct mapped_region *of;
	struct piece piece;
	int failed = 0;

	for (; first < end && !failed; first = piece.end) {
		piece = piece_at(first, end);
		of = piece.mapped ? piece.mapped->of : NULL;
		if (!of) {
			failed = kernel_munmap(first, bytes_of(&piece));
		} else if (cut_piece(&piece, done)) {
			failed = unmap_pages(of, &piece);
		} else {
			errno = ENOMEM;
			failed = -1;
		}
	}
	return failed;
}

int mapped_unmap(void *address, size_t bytes)
{
	char *first = address, *end = first + round_up(bytes, BASE_PAGE_BYTES);
	struct mapped_region *done = NULL;
	int failed, saved = errno;

	if ((uintptr_t)address % BASE_PAGE_BYTES || end <= first)
		return kernel_munmap(address, bytes);
	lock_list();
	failed = unmap_pieces(first, end, &done);
	unlock_list();
	if (!failed)
		errno = saved;
	saved = errno;
	close_all(done);
	errno = saved;
	return failed;
}

void mapped_forget(const void *address, size_t bytes)
{
	struct mapped_region *done = NULL;
	int saved = errno;

	lock_list();
	/* Without memory, the end of it is taken to be there until all of it goes. */
	cut((char *)address, (char *)address + round_up(bytes, BASE_PAGE_BYTES), &done);
	unlock_list();
	close_all(done);
	errno = saved;
}

/* Another mapping of a part's pages, which the program may have made unreadable. */
static char *map_again(const struct mapped_region *of, char *first, char *end)
{
	char *begin = page_of(of, first);
	char *pages = kernel_mmap(NULL, (size_t)(page_behind(of, end) - begin),
				  PROT_READ | PROT_WRITE, MAP_SHARED, of->fd,
				  begin - of->range.address);

	return pages == MAP_FAILED ? NULL : pages + (first - begin);
}

static void unmap_again(const struct mapped_region *of, char *first, char *end, char *pages)
{
	char *begin = page_of(of, first);

	kernel_munmap(pages - (first - begin), (size_t)(page_behind(of, end) - begin));
}

static int zero_piece(const struct piece *piece)
{
	char *pages = map_again(piece->mapped->of, piece->first, piece->end);

	if (!pages)
		return -1;
	memset(pages, 0, bytes_of(piece));
	unmap_again(piece->mapped->of, piece->first, piece->end, pages);
	return 0;
}

/* Of less than a part the child gets a copy even so, which is as good to it. */
static int keep_from_children(const struct piece *piece, bool keep)
{
	struct mapped *mapped = piece->mapped;

	if (!keep || (piece->first == mapped->first && piece->end == mapped->end))
		mapped->not_for_children = keep;
	return 0;
}

/* A region has the pages that it has, whatever is advised of them. */
static int advise_piece(const struct piece *piece, int advice)
{
	bool is_shared = piece->mapped->of->range.is_shared;

	switch (advice) {
	case MADV_HUGEPAGE:
	case MADV_NOHUGEPAGE:
	case ADVICE_COLLAPSE:
	case MADV_MERGEABLE:
	case MADV_UNMERGEABLE:
		return 0;
	case MADV_FREE:
		if (!is_shared)
			return 0;
		break;
	case MADV_DONTNEED:
	case ADVICE_DONTNEED_LOCKED:
		if (!is_shared)
			return zero_piece(piece);
		break;
	case MADV_DONTFORK:
	case MADV_DOFORK:
		if (!is_shared)
			return keep_from_children(piece, advice == MADV_DONTFORK);
		break;
	case MADV_REMOVE:
		if (is_shared)
			return zero_piece(piece);
		errno = EINVAL;
		return -1;
	}
	return kernel_madvise(piece->first, bytes_of(piece), advice);
}

int mapped_advise(void *address, size_t bytes, int advice)
{
	char *first = address, *end = first + round_up(bytes, BASE_PAGE_BYTES);
	struct piece piece;
	int failed = 0;

	if ((uintptr_t)address % BASE_PAGE_BYTES || end <= first)
		return kernel_madvise(address, bytes, advice);
	lock_list();
	for (; first < end && !failed; first = piece.end) {
		piece = piece_at(first, end);
		failed = piece.mapped ? advise_piece(&piece, advice) :
			 kernel_madvise(first, bytes_of(&piece), advice);
	}
	unlock_list();
	return failed;
}

enum mapped_kind mapped_kind(const void *address, size_t bytes)
{
	char *first = (char *)address, *end = first + bytes;
	enum mapped_kind kind = MAPPED_NOT;
	struct piece piece;

	if (!mapped_may_have(address, bytes))
		return MAPPED_NOT;
	lock_list();
	for (; first < end && kind != MAPPED_SHARED; first = piece.end) {
		piece = piece_at(first, end);
		if (piece.mapped)
			kind = piece.mapped->of->range.is_shared ? MAPPED_SHARED : MAPPED_PRIVATE;
	}
	unlock_list();
	return kind;
}

void mapped_registered(const void *address, bool is_registered)
{
	struct mapped *mapped;

	if (!mapped_may_have(address, 1))
		return;
	lock_list();
	mapped = piece_at((char *)address, (char *)address + 1).mapped;
	if (mapped && is_registered)
		mapped->of->registered++;
	else if (mapped && mapped->of->registered)
		mapped->of->registered--;
	unlock_list();
}

static void widen_gate(const struct mapped_range *range)
{
	uintptr_t first = (uintptr_t)range->address, end = first + range->length;

	if (first < mapped_gate.low)
		atomic_store_explicit(&mapped_gate.low, first, memory_order_relaxed);
	if (end > mapped_gate.high)
		atomic_store_explicit(&mapped_gate.high, end, memory_order_relaxed);
}

bool mapped_add(const struct mapped_range *range, const struct cuda_region *its)
{
	struct mapped_region *of = calloc(1, sizeof(*of));
	bool added;

	if (!of)
		return false;
	of->range = *range;
	of->its = *its;
	of->fd = cuda_library.actmem_region_fd(its->region);
	lock_list();
	added = add_part(of, range->address, range->address + range->length);
	if (added)
		widen_gate(range);
	unlock_list();
	if (!added)
		free(of);
	return added;
}

static void copy_for_child(struct mapped *mapped)
{
	size_t bytes = (size_t)(mapped->end - mapped->first);
	char *pages = map_again(mapped->of, mapped->first, mapped->end);
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
		unmap_again(mapped->of, mapped->first, mapped->end, pages);
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
