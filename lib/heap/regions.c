/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Opens a heap's regions. If the heap has a name, each region is a new or existing file. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "config/config.h"
#include "heap/inside.h"
#include "region/region.h"

/* Takes the lowest free number for a file's name. Returns -EMFILE if no number is free. */
static int take_file_number(struct heap_names *names, unsigned int *number)
{
	unsigned int word = 0;
	int error = 0;

	handles_lock();
	while (word < HEAP_NAMES_MAX / 64 && names->taken[word] == UINT64_MAX)
		word++;
	if (word < HEAP_NAMES_MAX / 64) {
		*number = word * 64 + (unsigned int)__builtin_ctzll(~names->taken[word]);
		names->taken[word] |= 1ULL << (*number % 64);
	} else {
		error = fail(EMFILE, "%s has %d regions in use; use longer regions", names->path,
			     HEAP_NAMES_MAX);
	}
	handles_unlock();
	return error;
}

static void give_file_number(struct heap_names *names, unsigned int number)
{
	handles_lock();
	names->taken[number / 64] &= ~(1ULL << (number % 64));
	handles_unlock();
}

/* Checks the length of an existing file, and populates its missing pages. */
static int check_found_file(const struct region_request *request, struct actmem_region *region,
			    uint64_t left)
{
	uint64_t length = actmem_region_length(region);
	struct actmem_region_info info;
	int error;

	if (length > left)
		return fail(ENOMEM, "the heap may grow by only %s, but the file %s has %s; raise %s, or remove the file",
			    BYTES_TEXT(left), request->path, BYTES_TEXT(length), KNOB(HEAP_LIMIT));
	ACTMEM_INIT(&info);
	error = actmem_region_get_info(region, &info);
	if (!error && info.allocated_bytes < length)
		error = actmem_region_populate(region, 0, length);
	return error;
}

/* Opens or creates the next file with the heap's name. */
static int open_next_file(struct actmem_heap *heap, struct region_request *request, uint64_t left,
			  struct heap_region *result)
{
	struct heap_names *names = &heap->am->heap_names;
	char path[PATH_MAX];
	int error = take_file_number(names, &result->number);

	if (error)
		return error;
	result->named = true;
	snprintf(path, sizeof(path), "%s.%u", names->path, result->number);
	request->path = path;
	request->open = ACTMEM_OPEN_CREATE | ACTMEM_OPEN_LOCK | ACTMEM_OPEN_ANY_LENGTH |
			ACTMEM_OPEN_OWN;
	error = region_open(heap->am, request, &result->region);
	if (error == -EBUSY)
		fail_more(" (each process of a job needs its own name: %s)", KNOB(NAME));
	if (!error && actmem_region_found(result->region)) {
		error = check_found_file(request, result->region, left);
		if (error)
			region_close(result->region);
	}
	if (error)
		give_file_number(names, result->number);
	return error;
}

/*
 * Closes a region whose registration failed with @error; (*@made)->region may be NULL. If
 * heap_own_region() succeeds, the new region in the runtime's own memory replaces the closed one.
 * Otherwise restores the error message, and returns @error.
 */
static int replace_region(struct actmem_heap *heap, uint64_t length, int error,
			  struct heap_region **made)
{
	char words[ERROR_TEXT_MAX];
	struct heap_region *own = calloc(1, sizeof(*own));

	snprintf(words, sizeof(words), "%s", fail_words());
	if (own)
		own->chunk_bytes = (*made)->chunk_bytes;
	heap_region_close(heap, *made);
	if (own && !heap_own_region(heap, length, words, &own->region)) {
		*made = own;
		return 0;
	}
	free(own);
	return fail_as_before(error, words);
}

int heap_region_open(struct actmem_heap *heap, uint64_t length, uint64_t left,
		     uint64_t chunk_bytes, uint64_t home, struct heap_region **result)
{
	struct heap_region *made = calloc(1, sizeof(*made));
	struct region_request request = heap->request;
	int error;

	if (!made)
		return fail(ENOMEM, "no memory for a heap's bookkeeping");
	made->chunk_bytes = chunk_bytes;
	request.length = length;
	error = heap_check_registers(heap);
	if (!error) {
		error = heap->am->heap_names.path ? open_next_file(heap, &request, left, made) :
			region_create(heap->am, &request, &made->region);
		if ((error == -EPERM || error == -ENODEV) && request.has_home)
			fail_more("; the device that uses this memory is at node %u",
				  request.home);
		if (error) {
			free(made);
			return error;
		}
		error = heap_register_region(heap, made, home);
	}
	if (error)
		error = replace_region(heap, length, error, &made);
	if (!error)
		*result = made;
	return error;
}

void heap_region_close(struct actmem_heap *heap, struct heap_region *its)
{
	if (its->region && heap_unregister_region(heap, its->region)) {
		region_close(its->region);
		if (its->named)
			give_file_number(&heap->am->heap_names, its->number);
	}
	free(its->first);
	free(its);
}
