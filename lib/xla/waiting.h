/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Runs a CPU's puts and takes on threads of the library if they may wait for the store. Runs
 * updates there, too. A thread of XLA that waited would keep a processor from computing.
 */
#ifndef LIB_XLA_WAITING_H
#define LIB_XLA_WAITING_H

#include "xla/call.h"

/* Does the work of a handler. Returns NULL or an error. */
typedef XLA_FFI_Error *waiting_function(const XLA_FFI_Api *api, const struct call *call);

/*
 * Lets a thread of the library call @function, and sets @frame->future. If no such thread is free
 * or can be started, the calling thread calls @function. Returns NULL. If no future can be created,
 * calls @function and returns its result.
 */
XLA_FFI_Error *waiting_run(XLA_FFI_CallFrame *frame, const struct call *call,
			   waiting_function *function);

#endif /* LIB_XLA_WAITING_H */
