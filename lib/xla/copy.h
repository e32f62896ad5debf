/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies of host memory inside a handler: short ones at once, long ones in
 * parts on the runtime's own threads.
 */
#ifndef ACTMEM_XLA_COPY_H
#define ACTMEM_XLA_COPY_H

#include <stddef.h>
#include <stdint.h>

#include "xla/ffi.h"

/*
 * Called once, by whichever thread ends the last part; an error it returns is
 * the handler's.
 */
typedef XLA_FFI_Error *copy_done(const XLA_FFI_Api *api, void *data);

/*
 * Copies @bytes and calls @done. To be returned by the handler as its own
 * result: *@frame's future is set when threads are still at it.
 *
 * @alone: the caller copies all of it. So it must be where handlers can wait for
 * each other, in threads that the parts of a copy would need.
 */
XLA_FFI_Error *copy_start(XLA_FFI_CallFrame *frame, int alone, void *to,
			  const void *from, uint64_t bytes, copy_done *done,
			  void *data);

#endif /* ACTMEM_XLA_COPY_H */
