// SPDX-License-Identifier: GPL-2.0
/*
 * Is the tracepoint memory_failure_event in a header of its own? Before, it was
 * with those of ras.
 */
#if PROBE
#include <trace/events/memory-failure.h>
#else
#include <linux/aer.h>
#include <linux/cper.h>
#include <ras/ras_event.h>
#endif

int probe(void (*callback)(void *data, unsigned long pfn, int type, int result));
int probe(void (*callback)(void *data, unsigned long pfn, int type, int result))
{
	check_trace_callback_type_memory_failure_event(callback);
	return 0;
}
