/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Runs puts and takes of a CPU that may wait for the store on threads of the library. On XLA's own
 * threads they would keep a processor from computing while they wait.
 */
#ifndef LIB_XLA_WAITING_H
#define LIB_XLA_WAITING_H

#include "xla/call.h"

/* Does the work of a handler. Returns NULL or an error. */
typedef XLA_FFI_Error *waiting_function(const XLA_FFI_Api *api, const struct call *call);

/*
 * Lets a thread of the library call @function, and sets *@frame's future. The calling thread calls
 * @function if there is no such thread. Returns an error only if it could not create a future.
 */
XLA_FFI_Error *waiting_run(XLA_FFI_CallFrame *frame, const struct call *call,
			   waiting_function *function);

#endif /* LIB_XLA_WAITING_H */
