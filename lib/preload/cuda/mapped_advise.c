/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Follows what the program advises of mappings, and how it protects them.
 *
 * What it mapped as private reads as zeros after MADV_DONTNEED, as it would if it were;
 * the region keeps the pages.
 *
 * Huge pages are protected whole alone. One of which a part is protected otherwise than
 * the rest can be read and written, as the program is to do nothing less that it may.
 */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "machine/machine.h"
#include "preload/cuda/mapped_list.h"

/* Newer kernels have these; the headers here may be older. */
#define ADVICE_DONTNEED_LOCKED	24
#define ADVICE_COLLAPSE		25

static int zero_piece(const struct piece *piece)
{
	char *pages = mapped_view(piece->mapped->of, piece->first, piece->end);

	if (!pages)
		return -1;
	memset(pages, 0, bytes_of(piece));
	mapped_unview(piece->mapped->of, piece->first, piece->end, pages);
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

static int protect_piece(const struct piece *piece, int protection)
{
	const struct mapped_region *of = piece->mapped->of;
	char *begin = page_of(of, piece->first), *behind = page_behind(of, piece->end);
	char *first = page_behind(of, piece->first), *end = page_of(of, piece->end);
	const int more = protection | PROT_READ | PROT_WRITE;

	if (first > end)
		return kernel_mprotect(begin, (size_t)(behind - begin), more);
	if ((begin < first && kernel_mprotect(begin, (size_t)(first - begin), more)) ||
	    (end < behind && kernel_mprotect(end, (size_t)(behind - end), more)))
		return -1;
	return first < end ? kernel_mprotect(first, (size_t)(end - first), protection) : 0;
}

/* Does either, by @change, piece by piece: @piece of one mapping, @other of the rest. */
static int change_pieces(void *address, size_t bytes, int to,
			 int (*change)(const struct piece *piece, int to),
			 int (*other)(void *address, size_t bytes, int to))
{
	char *first = address, *end = first + round_up(bytes, BASE_PAGE_BYTES);
	struct piece piece;
	int failed = 0;

	if ((uintptr_t)address % BASE_PAGE_BYTES || end <= first)
		return other(address, bytes, to);
	mapped_lock();
	for (; first < end && !failed; first = piece.end) {
		piece = mapped_piece(first, end);
		if (piece.mapped) {
			failed = change(&piece, to);
		} else if (piece.is_rest) {
			errno = ENOMEM;
			failed = -1;
		} else {
			failed = other(first, bytes_of(&piece), to);
		}
	}
	mapped_unlock();
	return failed;
}

int mapped_advise(void *address, size_t bytes, int advice)
{
	return change_pieces(address, bytes, advice, advise_piece, kernel_madvise);
}

int mapped_protect(void *address, size_t bytes, int protection)
{
	return change_pieces(address, bytes, protection, protect_piece, kernel_mprotect);
}
