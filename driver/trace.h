/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints show data that system calls do not return: how long a page fault took, and why an
 * allocation failed. The names and fields of the tracepoints are a stable interface, which
 * docs/tracing.md describes. Amounts and offsets are in bytes.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM actmem

#if !defined(_ACTMEM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _ACTMEM_TRACE_H

#include <linux/ktime.h>
#include <linux/tracepoint.h>

#include "actmem.h"

#define show_reason(reason) __print_symbolic(reason,		\
	{ ACTMEM_WHY_NONE,		"none" },		\
	{ ACTMEM_WHY_NODE_FULL,		"node-full" },		\
	{ ACTMEM_WHY_MEMLOCK,		"memlock" },		\
	{ ACTMEM_WHY_CPUSET,		"cpuset" },		\
	{ ACTMEM_WHY_NO_MEMORY_NODE,	"no-memory-node" },	\
	{ ACTMEM_WHY_MEMCG,		"memcg" },		\
	{ ACTMEM_WHY_USER_LIMIT,	"user-limit" },		\
	{ ACTMEM_WHY_NODE_LIMIT,	"node-limit" },		\
	{ ACTMEM_WHY_MOUNT_LIMIT,	"mount-limit" },	\
	{ ACTMEM_WHY_POISON,		"poison" },		\
	{ ACTMEM_WHY_DMEM,		"dmem" })

TRACE_EVENT(actmem_fault,
	    TP_PROTO(const struct actmem_region *region, unsigned long index, int node, int ret,
		     u64 began_ns),
	    TP_ARGS(region, index, node, ret, began_ns),
	    TP_STRUCT__entry(__field(u64, id)
			     __field(u64, offset)
			     __field(int, node)
			     __field(int, ret)
			     __field(u64, latency_ns)),
	    TP_fast_assign(__entry->id = region->id;
			   __entry->offset = index * ACTMEM_PAGE_BYTES;
			   __entry->node = node;
			   __entry->ret = ret;
			   __entry->latency_ns = ktime_get_ns() - began_ns;),
	    TP_printk("id=%llu offset=%llu node=%d ret=%d latency_ns=%llu", __entry->id,
		      __entry->offset, __entry->node, __entry->ret, __entry->latency_ns)
);

TRACE_EVENT(actmem_alloc_fail,
	    TP_PROTO(const struct actmem_region *region, int ret, const struct actmem_why *why),
	    TP_ARGS(region, ret, why),
	    TP_STRUCT__entry(__field(u64, id)
			     __field(int, ret)
			     __field(u32, reason)
			     __field(int, node)
			     __field(u64, wanted)
			     __field(u64, available)
			     __field(u64, movable)),
	    TP_fast_assign(__entry->id = region->id;
			   __entry->ret = ret;
			   __entry->reason = why->reason;
			   __entry->node = why->node;
			   __entry->wanted = why->wanted;
			   __entry->available = why->available;
			   __entry->movable = why->movable;),
	    TP_printk("id=%llu ret=%d reason=%s node=%d wanted=%llu available=%llu movable=%llu",
		      __entry->id, __entry->ret, show_reason(__entry->reason), __entry->node,
		      __entry->wanted, __entry->available, __entry->movable)
);

#endif /* _ACTMEM_TRACE_H */

/* define_trace.h, in the kernel's tree, includes this file by a path that is relative to -I. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace

#include <trace/define_trace.h>
