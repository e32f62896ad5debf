/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A mapping is taken if it is anonymous memory to be read and written, wherever there is
 * room, of a kind that the settings name, and nothing else is said of it: what is reserved,
 * a stack, a file or at a fixed address is the kernel's.
 *
 * Its whole huge pages are a region's; what is left at the end stays the kernel's.
 *
 * A malloc that maps memory may have its lock, and making a region calls malloc: mappings
 * that a library makes which has a malloc of its own, as this one has, are left alone.
 */
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "preload/cuda/cuda.h"
#include "preload/cuda/mapped.h"
#include "preload/cuda/maps.h"
#include "preload/malloc/regional.h"
#include "preload/say.h"
#include "preload/symbols.h"

#define HUGE_BITS	(0x3fU << MAP_HUGE_SHIFT)
#define HUGE_2M		(21U << MAP_HUGE_SHIFT)
#define FLAGS_UNDERSTOOD	(MAP_PRIVATE | MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE |	\
				 MAP_HUGETLB | HUGE_BITS)
#define MALLOCS_MAX	8
/* No process has so many addresses. */
#define BYTES_MAX	(1UL << 46)

struct code {
	uintptr_t first, end;
};

static struct cuda_settings settings;
static bool is_wanted;
static struct code mallocs[MALLOCS_MAX];
static unsigned int malloc_count;
static pid_t _Atomic owner;		/* 0: nobody has asked for one yet */

/* Where a library is mapped, if it has a malloc. */
static int add_malloc(struct dl_phdr_info *object, size_t size, void *data)
{
	struct code *code = &mallocs[malloc_count];
	int i;

	if (malloc_count == MALLOCS_MAX)
		return 1;
	if (!object_defines(object, "malloc"))
		return 0;
	*code = (struct code){ .first = UINTPTR_MAX };
	for (i = 0; i < object->dlpi_phnum; i++) {
		uintptr_t first = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;

		if (object->dlpi_phdr[i].p_type != PT_LOAD)
			continue;
		if (first < code->first)
			code->first = first;
		if (first + object->dlpi_phdr[i].p_memsz > code->end)
			code->end = first + object->dlpi_phdr[i].p_memsz;
	}
	malloc_count++;
	return 0;
}

static void *map_block(size_t bytes);

void cuda_maps_begin(bool with_malloc)
{
	struct setting_wrong wrong;

	if (!cuda_memory_settings_read(&settings, &wrong)) {
		say("%s is '%.200s'; it may be %s. Mappings are left alone.", wrong.variable,
		    wrong.text, wrong.choice);
		return;
	}
	if (!settings.maps_kinds || !is_glibc() || dl_iterate_phdr(add_malloc, NULL))
		return;
	is_wanted = mapped_begin() &&
		    (!(settings.maps_kinds & MAPS_MALLOC) || !with_malloc ||
		     regional_begin(settings.maps_bytes, map_block));
}

static bool is_of_malloc(const void *caller)
{
	unsigned int i;

	for (i = 0; i < malloc_count; i++)
		if ((uintptr_t)caller - mallocs[i].first < mallocs[i].end - mallocs[i].first)
			return true;
	return false;
}

static bool is_understood(const struct maps_request *request)
{
	unsigned int flags = (unsigned int)request->flags, huge = flags & HUGE_BITS;

	return request->bytes >= settings.maps_bytes && request->bytes < BYTES_MAX &&
	       !request->address && request->protection == (PROT_READ | PROT_WRITE) &&
	       flags & MAP_ANONYMOUS && !(flags & ~(unsigned int)FLAGS_UNDERSTOOD) &&
	       !(flags & MAP_PRIVATE) != !(flags & MAP_SHARED) &&
	       (!huge || (flags & MAP_HUGETLB && huge == HUGE_2M));
}

static bool is_of_kind(int flags)
{
	unsigned int kinds = flags & MAP_SHARED ? MAPS_SHARED : 0;

	if (flags & MAP_POPULATE)
		kinds |= MAPS_POPULATE;
	if (flags & MAP_HUGETLB)
		kinds |= MAPS_HUGETLB;
	return settings.maps_kinds & (kinds ? kinds : MAPS_PRIVATE);
}

/* Those of a child, in which the parent's regions are of no use, are the kernel's. */
static bool is_owner(void)
{
	pid_t nobody = 0, self = getpid();

	return atomic_compare_exchange_strong(&owner, &nobody, self) || nobody == self;
}

/*
 * Addresses for @bytes at a multiple of @unit, and what is behind the @whole pages of a
 * region. NULL: with errno.
 */
static char *make_room(size_t bytes, size_t whole, size_t unit, int flags)
{
	char *at = room_map(bytes, unit, PROT_NONE, MAP_NORESERVE);

	if (at == MAP_FAILED)
		return NULL;
	if (bytes == whole || kernel_mmap(at + whole, bytes - whole, PROT_READ | PROT_WRITE,
					  (flags & ~(int)(MAP_HUGETLB | HUGE_BITS)) | MAP_FIXED,
					  -1, 0) != MAP_FAILED)
		return at;
	kernel_munmap(at, bytes);
	return NULL;
}

static bool put_region(const struct mapped_range *range, const struct cuda_region *its,
		       int flags)
{
	if (!mapped_put(range, its))
		return false;
	/* Where pages are huge anyway it is refused. */
	kernel_madvise(range->address, range->length, MADV_HUGEPAGE);
	if (flags & MAP_POPULATE)
		kernel_madvise(range->address, range->length, MADV_POPULATE_WRITE);
	/* The program maps zeros; a file has what the last process left. */
	if (cuda_library.actmem_region_found(its->region) > 0)
		memset(range->address, 0, range->length);
	return true;
}

static char *map_region(size_t bytes, uint64_t unit, struct mapped_range *range, int flags,
			char words[CUDA_WORDS_MAX])
{
	const struct cuda_policy policy = { .mode = 0 };
	struct cuda_region its;

	if (!cuda_region_open(&its, range->length, range->is_shared, &policy, words))
		return NULL;
	range->address = make_room(bytes, range->length, unit, flags);
	if (range->address && put_region(range, &its, flags))
		return range->address;
	snprintf(words, CUDA_WORDS_MAX, "cannot map a region (%s)", strerror(errno));
	if (range->address)
		kernel_munmap(range->address, bytes);
	cuda_region_close(&its);
	return NULL;
}

static void *take(size_t bytes, int flags, const char *call, bool strict)
{
	struct mapped_range range = { .is_shared = flags & MAP_SHARED };
	enum tale tale = TALE_LIBRARY;
	char words[CUDA_WORDS_MAX];
	char *taken = NULL;
	uint64_t unit;

	if (cuda_library_load_regions(words)) {
		tale = TALE_MAP;
		if (cuda_region_prepare(&settings, &unit, words)) {
			range.length = bytes / unit * unit;
			if (!range.length)
				return NULL;
			taken = map_region(bytes, unit, &range, flags, words);
		}
	}
	if (taken)
		return taken;
	say_once(tale, strict ?
		 "%s of %s fails, as ACTMEM_STRICT=1 wants (actmem run --strict): %s" :
		 "%s of %s gets the kernel's own pages, not a region's: %s",
		 call, SAY_BYTES(bytes), words);
	errno = ENOMEM;
	return strict ? MAP_FAILED : NULL;
}

void *cuda_maps_take(const struct maps_request *request)
{
	int saved = errno;
	void *taken;

	if (!is_wanted || cuda_inside || !is_understood(request) || !is_of_kind(request->flags) ||
	    is_of_malloc(request->caller) || !is_owner())
		return NULL;
	taken = take(round_up(request->bytes, request->flags & MAP_HUGETLB ? HUGE_PAGE_BYTES :
			      BASE_PAGE_BYTES), request->flags, "mmap", settings.strict);
	if (taken != MAP_FAILED)
		errno = saved;
	return taken;
}

/* A malloc that fails is not what any program expects: that is never strict. */
static void *map_block(size_t bytes)
{
	if (!is_wanted || cuda_inside || bytes >= BYTES_MAX || !is_owner())
		return NULL;
	return take(round_up(bytes, BASE_PAGE_BYTES), MAP_PRIVATE | MAP_ANONYMOUS, "malloc",
		    false);
}

static void *refuse_move(size_t bytes, size_t wanted, const char *why)
{
	say_once(TALE_MOVE, "mremap of %s to %s fails: the memory has pages of a region, %s; actmem run without --preload-maps leaves it to the kernel",
		 SAY_BYTES(bytes), SAY_BYTES(wanted), why);
	errno = ENOMEM;
	return MAP_FAILED;
}

/* What the kernel moves by its tables is copied. */
void *cuda_maps_move(void *address, size_t bytes, size_t wanted, int flags)
{
	size_t was = round_up(bytes, BASE_PAGE_BYTES), to = round_up(wanted, BASE_PAGE_BYTES);
	char *moved;

	if (flags & ~MREMAP_MAYMOVE || !was || !to || (uintptr_t)address % BASE_PAGE_BYTES)
		return refuse_move(bytes, wanted, "which stay at their addresses");
	if (to <= was)
		return to < was && mapped_unmap((char *)address + to, was - to) ? MAP_FAILED :
		       address;
	if (mapped_kind(address, was) == MAPPED_SHARED)
		return refuse_move(bytes, wanted, "which do not become more, and children may share");
	if (!(flags & MREMAP_MAYMOVE)) {
		errno = ENOMEM;
		return MAP_FAILED;
	}
	moved = take(to, MAP_PRIVATE | MAP_ANONYMOUS, "mremap", settings.strict);
	if (!moved)
		moved = kernel_mmap(NULL, to, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				    -1, 0);
	if (moved == MAP_FAILED)
		return moved;
	memcpy(moved, address, was);
	mapped_unmap(address, was);
	return moved;
}
