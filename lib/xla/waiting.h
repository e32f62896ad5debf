/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * If handlers of CPU programs can wait for the store, runs them on threads of the library. Always
 * runs the handler actmem_update on such a thread. If a thread of XLA waited instead, it could not
 * compute meanwhile.
 */
#ifndef LIB_XLA_WAITING_H
#define LIB_XLA_WAITING_H

#include "xla/call.h"

/* Does the work of a handler. Returns NULL or an error. */
typedef XLA_FFI_Error *waiting_function(const XLA_FFI_Api *api, const struct call *call);

/*
 * Sets @frame->future, lets a thread of the library call @function, and returns NULL. If no such
 * thread is free or can be started, the calling thread calls @function. If no future can be
 * created, calls @function and returns its result.
 */
XLA_FFI_Error *waiting_run(XLA_FFI_CallFrame *frame, const struct call *call,
			   waiting_function *function);

#endif /* LIB_XLA_WAITING_H */
