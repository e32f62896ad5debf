/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Registers and unregisters a region chunk by chunk, with pauses in which other threads can get the
 * lock of the accelerator's driver. If the kernel refuses to pin a chunk, the error message quotes
 * the kernel's log.
 */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/base.h"
#include "machine/machine.h"
#include "region/region.h"
#include "runtime/inside.h"

/*
 * Registers or unregisters a chunk, and then pauses. The runtime can wait here for all work of its
 * device.
 */
static int change_chunk(struct registration *registration,
			int (*change)(struct registration *registration, void *address,
				      uint64_t length),
			uint64_t at, uint64_t length)
{
	struct actmem_region *region = registration->region;
	struct published_wait *wait = wait_begin(region->am->waits, WAIT_REGISTER, 0, length,
						 region->backing.name);
	uint64_t began = clock_ns(), took;
	int error = change(registration, registration->address + at, length);

	took = clock_ns() - began;
	wait_end(region->am->waits, wait);
	if (!error && change == registration->runtime->kind->add && !registration->own)
		pace_learn(registration->runtime, length, took);
	pace_pause(took);
	return error;
}

int chunks_drop(struct registration *registration)
{
	int result = 0;

	while (registration->registered) {
		uint64_t at = (registration->registered - 1) / registration->chunk_bytes *
			      registration->chunk_bytes;
		int error = change_chunk(registration, registration->runtime->kind->drop, at,
					 registration->registered - at);

		if (error < 0)
			return error;
		if (error)
			result = error;
		registration->registered = at;
	}
	return result;
}

/*
 * Undoes a registration that failed with @error: unregisters its chunks, and keeps the error
 * message.
 */
static int undo_chunks(struct registration *registration, int error)
{
	char words[ERROR_TEXT_MAX], again[ERROR_TEXT_MAX];

	snprintf(words, sizeof(words), "%s", fail_words());
	if (chunks_drop(registration) >= 0)
		return fail_as_before(error, words);
	snprintf(again, sizeof(again), "%s", fail_words());
	return fail(-error, "%s; %s of the region stay registered until actmem_region_unregister(), because %s",
		    words, BYTES_TEXT(registration->registered), again);
}

/*
 * Adds the kernel's reason to the error message: if the kernel refuses to pin memory, CUDA itself
 * returns only CUDA_ERROR_INVALID_VALUE or OUT_OF_MEMORY.
 */
static void explain_refusal(int log, const void *address, uint64_t length, int error)
{
	char line[KERNEL_LOG_LINE_MAX];

	if (log >= 0 && kernel_log_find_refusal(log, address, length, line))
		fail_more("; the kernel's log says \"%s\"", line);
	else if (log < 0 && (error == -EINVAL || error == -ENOMEM))
		fail_more("; the kernel's log may say why (as root: dmesg)");
}

static int add_chunks(struct registration *registration)
{
	int error = 0;

	while (!error && registration->registered < registration->length) {
		uint64_t at = registration->registered, left = registration->length - at;
		uint64_t length = left < registration->chunk_bytes ? left :
				  registration->chunk_bytes;

		error = change_chunk(registration, registration->runtime->kind->add, at, length);
		if (!error)
			registration->registered += length;
	}
	return error;
}

/*
 * Halves the length of chunks if the runtime may have refused the first chunk because of its
 * length. Returns false if chunks cannot be shorter, or if the length was not the cause.
 */
static bool shorten_chunks(struct registration *registration, int error)
{
	uint64_t page = registration->region->backing.page_bytes;
	uint64_t unit = page > HUGE_PAGE_BYTES ? page : HUGE_PAGE_BYTES;
	uint64_t length = registration->length, least = registration->chunk_least, half;

	if (length > registration->chunk_bytes)
		length = registration->chunk_bytes;
	half = round_up(length / 2, unit);
	if (registration->own || registration->registered || half < least || half >= length ||
	    (error != -ENOMEM && error != -EINVAL && error != -EIO))
		return false;
	registration->chunk_bytes = half;
	return true;
}

int chunks_add(struct registration *registration)
{
	bool are_shorter = false;
	int log, error;

	thread_hold_cancellation();
	/* Open the log before the first call, in order to ignore earlier lines. */
	log = kernel_log_open(KERNEL_LOG);
	error = add_chunks(registration);
	while (error && shorten_chunks(registration, error)) {
		are_shorter = true;
		error = add_chunks(registration);
	}
	if (are_shorter && !error)
		pace_limit(registration->runtime, registration->chunk_bytes);
	if (error && !registration->own)
		explain_refusal(log, registration->address + registration->registered,
				registration->length - registration->registered, error);
	if (log >= 0)
		close(log);
	thread_let_cancellation();
	return error ? undo_chunks(registration, error) : 0;
}
