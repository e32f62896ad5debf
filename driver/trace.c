// SPDX-License-Identifier: GPL-2.0
/*
 * The tracepoints of trace.h, in the one place where they are defined.
 */
#define CREATE_TRACE_POINTS
#include "trace.h"
