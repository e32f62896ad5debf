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
 * The thread that ends the last part calls it, once; the handler fails with the error that
 * it returns.
 */
typedef XLA_FFI_Error *copy_done(const XLA_FFI_Api *api, void *data);

/*
 * Copies @bytes and calls @done. The handler returns the result as its own: *@frame's future
 * is set if threads still copy.
 *
 * @alone: the caller copies all of it, as it must where handlers can wait for each other
 * in threads that the parts of a copy would need.
 */
XLA_FFI_Error *copy_start(XLA_FFI_CallFrame *frame, int alone, void *to,
			  const void *from, uint64_t bytes, copy_done *done,
			  void *data);

#endif /* ACTMEM_XLA_COPY_H */
