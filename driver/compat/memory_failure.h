/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the tracepoint memory_failure_event passes to a probe. It is looked up by
 * its name when the module is loaded, so that the compiler would not notice if its
 * arguments changed; it does here.
 */
#ifndef _ACTMEM_COMPAT_MEMORY_FAILURE_H
#define _ACTMEM_COMPAT_MEMORY_FAILURE_H

#include "compat/probed.h"

#if ACTMEM_HAVE_MEMORY_FAILURE_TRACE
#include <trace/events/memory-failure.h>
#else
#include <ras/ras_event.h>
#endif

#define actmem_check_memory_failure_probe	check_trace_callback_type_memory_failure_event

#endif /* _ACTMEM_COMPAT_MEMORY_FAILURE_H */
