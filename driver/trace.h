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

#include <linux/tracepoint.h>

#include "traced.h"

#define show_policy(policy) __print_symbolic(policy,		\
	{ ACTMEM_POLICY_BIND,		"bind" },		\
	{ ACTMEM_POLICY_PREFERRED,	"preferred" },		\
	{ ACTMEM_POLICY_INTERLEAVE,	"interleave" })

#define show_create_flags(flags) __print_flags(flags, "|",	\
	{ ACTMEM_CREATE_INHERIT,	"inherit" },		\
	{ ACTMEM_CREATE_LAZY,		"lazy" })

#define show_reason(reason) __print_symbolic(reason,		\
	{ ACTMEM_WHY_NONE,		"none" },		\
	{ ACTMEM_WHY_NODE_FULL,		"node-full" },		\
	{ ACTMEM_WHY_MEMLOCK,		"memlock" },		\
	{ ACTMEM_WHY_CPUSET,		"cpuset" },		\
	{ ACTMEM_WHY_NO_MEMORY_NODE,	"no-memory-node" },	\
	{ ACTMEM_WHY_MISPLACED,		"misplaced" },		\
	{ ACTMEM_WHY_MEMCG,		"memcg" },		\
	{ ACTMEM_WHY_USER_LIMIT,	"user-limit" },		\
	{ ACTMEM_WHY_NODE_LIMIT,	"node-limit" },		\
	{ ACTMEM_WHY_MOUNT_LIMIT,	"mount-limit" },	\
	{ ACTMEM_WHY_POISON,		"poison" },		\
	{ ACTMEM_WHY_IMPORT,		"import" })

/* Tools that read the format know the numbers only. */
TRACE_DEFINE_ENUM(ACTMEM_COMMAND_POPULATE);
TRACE_DEFINE_ENUM(ACTMEM_COMMAND_DISCARD);
TRACE_DEFINE_ENUM(ACTMEM_COMMAND_COPY);

#define show_command(command) __print_symbolic(command,	\
	{ ACTMEM_COMMAND_POPULATE,	"populate" },	\
	{ ACTMEM_COMMAND_DISCARD,	"discard" },	\
	{ ACTMEM_COMMAND_COPY,		"copy" })

TRACE_EVENT(actmem_region_create,
	    TP_PROTO(const struct actmem_ioctl_create *arg, int ret, u64 latency),
	    TP_ARGS(arg, ret, latency),
	    TP_STRUCT__entry(__field(u64, id)
			     __field(u64, length)
			     __field(u32, policy)
			     __field(u32, flags)
			     __field(u32, node_words)
			     __dynamic_array(u64, nodes, BITS_TO_U64(nr_node_ids))
			     __field(int, ret)
			     __field(u64, latency_ns)
			     __array(char, name, ACTMEM_NAME_BYTES)),
	    TP_fast_assign(__entry->id = arg->id;
			   __entry->length = arg->length;
			   __entry->policy = arg->policy;
			   __entry->flags = arg->flags;
			   __entry->node_words = BITS_TO_U64(nr_node_ids);
			   memcpy(__get_dynamic_array(nodes), arg->nodes,
				  __get_dynamic_array_len(nodes));
			   __entry->ret = ret;
			   __entry->latency_ns = latency;
			   memcpy(__entry->name, arg->name, ACTMEM_NAME_BYTES);),
	    TP_printk("id=%llu length=%llu policy=%s nodes=%s flags=%s ret=%d latency_ns=%llu name=%s",
		      __entry->id, __entry->length, show_policy(__entry->policy),
		      __print_array(__get_dynamic_array(nodes), __entry->node_words, 8),
		      __entry->flags ? show_create_flags(__entry->flags) : "none",
		      __entry->ret, __entry->latency_ns, __entry->name)
);

TRACE_EVENT(actmem_region_import,
	    TP_PROTO(const struct actmem_ioctl_import *arg, int ret, u64 latency),
	    TP_ARGS(arg, ret, latency),
	    TP_STRUCT__entry(__field(u64, id)
			     __field(u64, length)
			     __field(u64, page_bytes)
			     __field(u32, flags)
			     __field(int, ret)
			     __field(u64, latency_ns)
			     __array(char, name, ACTMEM_NAME_BYTES)),
	    TP_fast_assign(__entry->id = arg->id;
			   __entry->length = arg->length;
			   __entry->page_bytes = arg->page_bytes;
			   __entry->flags = arg->flags;
			   __entry->ret = ret;
			   __entry->latency_ns = latency;
			   memcpy(__entry->name, arg->name, ACTMEM_NAME_BYTES);),
	    TP_printk("id=%llu length=%llu page_bytes=%llu flags=%s ret=%d latency_ns=%llu name=%s",
		      __entry->id, __entry->length, __entry->page_bytes,
		      __entry->flags ? show_create_flags(__entry->flags) : "none",
		      __entry->ret, __entry->latency_ns, __entry->name)
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

TRACE_EVENT(actmem_region_free,
	    TP_PROTO(const struct actmem_region *region),
	    TP_ARGS(region),
	    TP_STRUCT__entry(__field(u64, id)),
	    TP_fast_assign(__entry->id = region->id;),
	    TP_printk("id=%llu", __entry->id)
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

TRACE_EVENT(actmem_page_alloc,
	    TP_PROTO(int node, bool from_pool, u64 latency),
	    TP_ARGS(node, from_pool, latency),
	    TP_STRUCT__entry(__field(int, node)
			     __field(bool, from_pool)
			     __field(u64, latency_ns)),
	    TP_fast_assign(__entry->node = node;
			   __entry->from_pool = from_pool;
			   __entry->latency_ns = latency;),
	    TP_printk("node=%d from_pool=%d latency_ns=%llu", __entry->node, __entry->from_pool,
		      __entry->latency_ns)
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

TRACE_EVENT(actmem_pool_fill,
	    TP_PROTO(int node, unsigned long ready, unsigned long target, u64 latency),
	    TP_ARGS(node, ready, target, latency),
	    TP_STRUCT__entry(__field(int, node)
			     __field(u64, ready)
			     __field(u64, target)
			     __field(u64, latency_ns)),
	    TP_fast_assign(__entry->node = node;
			   __entry->ready = ready * ACTMEM_PAGE_BYTES;
			   __entry->target = target * ACTMEM_PAGE_BYTES;
			   __entry->latency_ns = latency;),
	    TP_printk("node=%d ready=%llu target=%llu latency_ns=%llu", __entry->node,
		      __entry->ready, __entry->target, __entry->latency_ns)
);

TRACE_EVENT(actmem_pool_stall,
	    TP_PROTO(int node, unsigned long held, unsigned long target, unsigned int retry_ms),
	    TP_ARGS(node, held, target, retry_ms),
	    TP_STRUCT__entry(__field(int, node)
			     __field(u64, held)
			     __field(u64, target)
			     __field(unsigned int, retry_ms)),
	    TP_fast_assign(__entry->node = node;
			   __entry->held = held * ACTMEM_PAGE_BYTES;
			   __entry->target = target * ACTMEM_PAGE_BYTES;
			   __entry->retry_ms = retry_ms;),
	    TP_printk("node=%d held=%llu target=%llu retry_ms=%u", __entry->node, __entry->held,
		      __entry->target, __entry->retry_ms)
);

TRACE_EVENT(actmem_pool_empty,
	    TP_PROTO(int node, unsigned long target),
	    TP_ARGS(node, target),
	    TP_STRUCT__entry(__field(int, node)
			     __field(u64, target)),
	    TP_fast_assign(__entry->node = node;
			   __entry->target = target * ACTMEM_PAGE_BYTES;),
	    TP_printk("node=%d target=%llu", __entry->node, __entry->target)
);

TRACE_EVENT(actmem_pool_shrink,
	    TP_PROTO(int node, unsigned long wanted, unsigned long freed, unsigned long held),
	    TP_ARGS(node, wanted, freed, held),
	    TP_STRUCT__entry(__field(int, node)
			     __field(u64, wanted)
			     __field(u64, freed)
			     __field(u64, held)),
	    TP_fast_assign(__entry->node = node;
			   __entry->wanted = wanted * ACTMEM_PAGE_BYTES;
			   __entry->freed = freed * ACTMEM_PAGE_BYTES;
			   __entry->held = held * ACTMEM_PAGE_BYTES;),
	    TP_printk("node=%d wanted=%llu freed=%llu held=%llu", __entry->node, __entry->wanted,
		      __entry->freed, __entry->held)
);

TRACE_EVENT(actmem_zero,
	    TP_PROTO(int node, u64 bytes, u64 latency),
	    TP_ARGS(node, bytes, latency),
	    TP_STRUCT__entry(__field(int, node)
			     __field(u64, bytes)
			     __field(u64, latency_ns)),
	    TP_fast_assign(__entry->node = node;
			   __entry->bytes = bytes;
			   __entry->latency_ns = latency;),
	    TP_printk("node=%d bytes=%llu latency_ns=%llu", __entry->node, __entry->bytes,
		      __entry->latency_ns)
);

TRACE_EVENT(actmem_command_issue,
	    TP_PROTO(const struct actmem_region *region, unsigned int request, const void *req),
	    TP_ARGS(region, request, req),
	    TP_STRUCT__entry(__field(const void *, req)
			     __field(u64, id)
			     __field(int, command)),
	    TP_fast_assign(__entry->req = req;
			   __entry->id = region->id;
			   __entry->command = _IOC_NR(request);),
	    TP_printk("req=%p id=%llu command=%s", __entry->req, __entry->id,
		      show_command(__entry->command))
);

TRACE_EVENT(actmem_command_start,
	    TP_PROTO(const struct actmem_command *command),
	    TP_ARGS(command),
	    TP_STRUCT__entry(__field(const void *, req)
			     __field(u64, id)
			     __field(int, command)
			     __field(u64, offset)
			     __field(u64, length)
			     __field(u64, source)
			     __field(u64, source_offset)),
	    TP_fast_assign(__entry->req = command->req;
			   __entry->id = command->region->id;
			   __entry->command = command->what;
			   __entry->offset = command->offset;
			   __entry->length = command->length;
			   __entry->source = command->source ? command->source->id : 0;
			   __entry->source_offset = command->source_offset;),
	    TP_printk("req=%p id=%llu command=%s offset=%llu length=%llu source=%llu source_offset=%llu",
		      __entry->req, __entry->id, show_command(__entry->command),
		      __entry->offset, __entry->length, __entry->source,
		      __entry->source_offset)
);

TRACE_EVENT(actmem_command_complete,
	    TP_PROTO(const struct actmem_command *command, u64 done, int ret, u64 latency),
	    TP_ARGS(command, done, ret, latency),
	    TP_STRUCT__entry(__field(const void *, req)
			     __field(u64, id)
			     __field(int, command)
			     __field(u64, offset)
			     __field(u64, length)
			     __field(u64, source)
			     __field(u64, source_offset)
			     __field(u64, done)
			     __field(int, ret)
			     __field(u64, latency_ns)),
	    TP_fast_assign(__entry->req = command->req;
			   __entry->id = command->region->id;
			   __entry->command = command->what;
			   __entry->offset = command->offset;
			   __entry->length = command->length;
			   __entry->source = command->source ? command->source->id : 0;
			   __entry->source_offset = command->source_offset;
			   __entry->done = done;
			   __entry->ret = ret;
			   __entry->latency_ns = latency;),
	    TP_printk("req=%p id=%llu command=%s offset=%llu length=%llu source=%llu source_offset=%llu done=%llu ret=%d latency_ns=%llu",
		      __entry->req, __entry->id, show_command(__entry->command),
		      __entry->offset, __entry->length, __entry->source,
		      __entry->source_offset, __entry->done, __entry->ret,
		      __entry->latency_ns)
);

#endif /* _ACTMEM_TRACE_H */

/* Found by way of -I, as the header that includes it lies in the kernel's tree. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace

#include <trace/define_trace.h>
