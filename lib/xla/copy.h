/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies of host memory inside a handler. The calling thread makes short copies. Long copies are
 * split into parts, which run on XLA's pool of threads.
 */
#ifndef LIB_XLA_COPY_H
#define LIB_XLA_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "xla/ffi.h"

/* The thread that finishes the last part calls this function once. */
typedef void copy_done(void *data);

/*
 * Copies @bytes and calls @done. If the copy is split, also sets @frame->future, because threads
 * may still be copying when the call returns.
 */
void copy_start(XLA_FFI_CallFrame *frame, void *to, const void *from, uint64_t bytes,
		copy_done *done, void *data);

#endif /* LIB_XLA_COPY_H */
