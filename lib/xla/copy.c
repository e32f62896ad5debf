/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies host memory inside a handler; see copy.h.
 *
 * A handler and the parts of its copy run on threads of the same pool. A handler that waited for
 * the parts would occupy a thread that the parts may need. So the handler copies the first part
 * itself, and returns. The thread that finishes the last part completes the handler's future.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "xla/copy.h"

#define SPLIT_BYTES	(UINT64_C(1) << 20)	/* longer copies are split into parts */
#define PART_BYTES	(UINT64_C(512) << 10)	/* minimum length of a part */

struct copy {
	const XLA_FFI_Api *api;
	XLA_FFI_Future *future;
	copy_done *done;
	void *data;
	atomic_uint pending;
};

struct part {
	struct copy *copy;
	void *to;
	const void *from;
	uint64_t bytes;
};

/* One allocation: the copy and its parts. */
struct split {
	struct copy copy;
	struct part parts[];
};

static void copy_end(struct copy *copy)
{
	XLA_FFI_Future *future = copy->future;
	const XLA_FFI_Api *api = copy->api;

	copy->done(copy->data);
	free((char *)copy - offsetof(struct split, copy));
	ffi_future_end(api, future, NULL);
}

static void part_run(void *data)
{
	struct part *part = data;
	struct copy *copy = part->copy;

	memcpy(part->to, part->from, part->bytes);
	if (atomic_fetch_sub(&copy->pending, 1) == 1)
		copy_end(copy);
}

static uint64_t parts_of(XLA_FFI_CallFrame *frame, uint64_t bytes)
{
	uint64_t parts = bytes / PART_BYTES, threads;

	if (bytes < SPLIT_BYTES)
		return 1;
	threads = ffi_threads(frame);
	return parts < threads ? parts : threads;
}

void copy_start(XLA_FFI_CallFrame *frame, void *to, const void *from, uint64_t bytes,
		copy_done *done, void *data)
{
	uint64_t count = parts_of(frame, bytes), each, offset, i;
	struct split *split = NULL;
	XLA_FFI_Future *future;

	if (count > 1)
		split = malloc(sizeof(*split) + count * sizeof(struct part));
	future = split ? ffi_future(frame) : NULL;
	if (!future) {
		free(split);
		if (bytes)
			memcpy(to, from, bytes);
		done(data);
		return;
	}
	split->copy.api = frame->api;
	split->copy.future = future;
	split->copy.done = done;
	split->copy.data = data;
	atomic_init(&split->copy.pending, (unsigned int)count);
	frame->future = future;

	/* Parts are multiples of a cache line, so that no two threads write the same line. */
	each = (bytes / count + 63) & ~UINT64_C(63);
	for (i = 0, offset = 0; i < count; i++, offset += each) {
		struct part *part = &split->parts[i];

		part->copy = &split->copy;
		part->to = (char *)to + offset;
		part->from = (const char *)from + offset;
		part->bytes = i + 1 < count ? each : bytes - offset;
	}
	/* Run part 0 last: @split exists until all parts have run, so the loop may use it. */
	for (i = 1; i < count; i++)
		if (!ffi_schedule(frame, part_run, &split->parts[i]))
			part_run(&split->parts[i]);
	part_run(&split->parts[0]);
}
