/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints. Their names, and those of their fields, are documented in
 * docs/tracing.md and stay. Amounts and offsets are bytes. A latency of 0 is one
 * that has not been measured, as nobody was tracing when it began.
 *
 * Formats are kept to what tools parse that are some years old. A mask of nodes
 * is an array, as in Linux 7 a bitmask spoils what is printed along with it.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM actmem

#if !defined(_ACTMEM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _ACTMEM_TRACE_H

#include <linux/pid.h>
#include <linux/ktime.h>
#include <linux/timekeeping.h>
#include <linux/tracepoint.h>

#include "actmem.h"

#define show_policy(policy) __print_symbolic(policy,		\
	{ ACTMEM_POLICY_BIND,		"bind" },		\
	{ ACTMEM_POLICY_PREFERRED,	"preferred" },		\
	{ ACTMEM_POLICY_INTERLEAVE,	"interleave" })

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
	{ ACTMEM_WHY_POISON,		"poison" })

/* Numbers of requests, as tools that read the format know no macros. */
#define show_command(command) __print_symbolic(command,	\
	{ 5,	"populate" },				\
	{ 6,	"discard" })

#ifndef ACTMEM_LATENCY
#define ACTMEM_LATENCY
/* When something begins whose latency is @wanted, or 0: reading a clock takes time. */
static inline u64 actmem_latency_begin(bool wanted)
{
	return wanted ? ktime_get_ns() : 0;
}

static inline u64 actmem_latency_end(u64 began)
{
	return began ? ktime_get_ns() - began : 0;
}
#endif

TRACE_EVENT(actmem_region_create,
	    TP_PROTO(const struct actmem_ioctl_create *arg, int ret),
	    TP_ARGS(arg, ret),
	    TP_STRUCT__entry(__field(u64, id)
			     __field(u64, length)
			     __field(u32, policy)
			     __field(u32, flags)
			     __field(u32, node_words)
			     __dynamic_array(u64, nodes, BITS_TO_U64(nr_node_ids))
			     __field(int, ret)
			     __array(char, name, ACTMEM_NAME_BYTES)),
	    TP_fast_assign(__entry->id = arg->id;
			   __entry->length = arg->length;
			   __entry->policy = arg->policy;
			   __entry->flags = arg->flags;
			   __entry->node_words = BITS_TO_U64(nr_node_ids);
			   memcpy(__get_dynamic_array(nodes), arg->nodes,
				  __get_dynamic_array_len(nodes));
			   __entry->ret = ret;
			   memcpy(__entry->name, arg->name, ACTMEM_NAME_BYTES);),
	    TP_printk("id=%llu length=%llu policy=%s nodes=%s inherit=%d ret=%d name=%s",
		      __entry->id, __entry->length, show_policy(__entry->policy),
		      __print_array(__get_dynamic_array(nodes), __entry->node_words, 8),
		      !!(__entry->flags & ACTMEM_CREATE_INHERIT), __entry->ret,
		      __entry->name)
);

TRACE_EVENT(actmem_region_retire,
	    TP_PROTO(const struct actmem_region *region, unsigned long pages),
	    TP_ARGS(region, pages),
	    TP_STRUCT__entry(__field(u64, id)
			     __field(u64, bytes)
			     __field(u64, lingering)),
	    TP_fast_assign(__entry->id = region->id;
			   __entry->bytes = pages * ACTMEM_PAGE_BYTES;
			   __entry->lingering = READ_ONCE(region->pages_held) * ACTMEM_PAGE_BYTES;),
	    TP_printk("id=%llu bytes=%llu lingering=%llu",
		      __entry->id, __entry->bytes, __entry->lingering)
);

TRACE_EVENT(actmem_fault,
	    TP_PROTO(const struct actmem_region *region, unsigned long index, int node, int ret,
		     u64 latency),
	    TP_ARGS(region, index, node, ret, latency),
	    TP_STRUCT__entry(__field(u64, id)
			     __field(u64, offset)
			     __field(int, node)
			     __field(int, ret)
			     __field(u64, latency_ns)),
	    TP_fast_assign(__entry->id = region->id;
			   __entry->offset = index * ACTMEM_PAGE_BYTES;
			   __entry->node = node;
			   __entry->ret = ret;
			   __entry->latency_ns = latency;),
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

TRACE_EVENT(actmem_page_poisoned,
	    TP_PROTO(const struct actmem_region *region, unsigned long index,
		     struct folio *folio),
	    TP_ARGS(region, index, folio),
	    TP_STRUCT__entry(__field(u64, id)
			     __field(u64, offset)
			     __field(int, node)
			     __field(int, pid)
			     __field(u64, pfn)),
	    TP_fast_assign(__entry->id = region ? region->id : 0;
			   __entry->offset = region ? index * ACTMEM_PAGE_BYTES : 0;
			   __entry->node = folio_nid(folio);
			   __entry->pid = region ? pid_nr(region->pid) : 0;
			   __entry->pfn = folio_pfn(folio);),
	    TP_printk("id=%llu offset=%llu node=%d pid=%d pfn=%llu", __entry->id,
		      __entry->offset, __entry->node, __entry->pid, __entry->pfn)
);

TRACE_EVENT(actmem_command,
	    TP_PROTO(const struct actmem_region *region, int command,
		     const struct actmem_ioctl_range *arg, const void *req, int ret, u64 latency),
	    TP_ARGS(region, command, arg, req, ret, latency),
	    TP_STRUCT__entry(__field(const void *, req)
			     __field(u64, id)
			     __field(int, command)
			     __field(u64, offset)
			     __field(u64, length)
			     __field(u64, done)
			     __field(int, ret)
			     __field(u64, latency_ns)),
	    TP_fast_assign(__entry->req = req;
			   __entry->id = region->id;
			   __entry->command = command;
			   __entry->offset = arg->offset;
			   __entry->length = arg->length;
			   __entry->done = arg->done;
			   __entry->ret = ret;
			   __entry->latency_ns = latency;),
	    TP_printk("req=%p id=%llu command=%s offset=%llu length=%llu done=%llu ret=%d latency_ns=%llu",
		      __entry->req, __entry->id, show_command(__entry->command),
		      __entry->offset, __entry->length, __entry->done, __entry->ret,
		      __entry->latency_ns)
);

#endif /* _ACTMEM_TRACE_H */

/* Found by way of -I, as the header that includes it lies in the kernel's tree. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace

#include <trace/define_trace.h>
