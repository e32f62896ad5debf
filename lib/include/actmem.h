/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * libactmem: pinned, NUMA-local, huge-page host memory for accelerators. Here is
 * what everything begins with; regions (actmem_region.h) and heaps (actmem_heap.h)
 * come along with it.
 *
 * Calls return 0 or a negative errno; actmem_error() then says in words what
 * was wanted, what was there and which knob helps. The library never prints,
 * never exits and never installs signal handlers. All sizes are bytes. Calls
 * are thread-safe unless their comment says otherwise. Structs that carry a
 * @size are set up with ACTMEM_INIT(), so that a program compiled today works
 * with a later library; -EINVAL for one that is not. A thread that is cancelled
 * (pthread_cancel(3)) in a call that waits is so when the call has ended.
 *
 * After fork() a child must not use handles it inherited: every call on them
 * that can fail answers -EOWNERDEAD. It opens its own with actmem_open().
 */
#ifndef ACTMEM_H
#define ACTMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* As the file VERSION says. */
#define ACTMEM_VERSION_MAJOR	0
#define ACTMEM_VERSION_MINOR	1
#define ACTMEM_VERSION_PATCH	0

#define ACTMEM_NODES_MAX	1024
#define ACTMEM_NAME_MAX		64	/* with the terminating NUL */

/* @timeout_ns of calls that wait, which is relative: without end. 0: they do not wait. */
#define ACTMEM_WAIT_FOREVER	UINT64_MAX

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct actmem;			/* an open backend */

/* A set of NUMA nodes: node n is bit n % 64 of word n / 64. Empty: default. */
struct actmem_nodes {
	uint64_t word[ACTMEM_NODES_MAX / 64];
};

enum actmem_backend {
	ACTMEM_BACKEND_AUTO,	/* driver where there is /dev/actmem, else memfd; 1G: memfd */
	ACTMEM_BACKEND_DRIVER,	/* /dev/actmem or an error */
	ACTMEM_BACKEND_MEMFD,	/* memfd, no module and no root needed */
};

enum actmem_policy {
	ACTMEM_PLACE_DEFAULT,	/* what the options of actmem_open() say */
	ACTMEM_PLACE_BIND,	/* only the given nodes, or an error */
	ACTMEM_PLACE_PREFERRED,	/* the given node, or the caller's, first */
	ACTMEM_PLACE_INTERLEAVE,/* page i on the (i mod n)-th given node */
};

enum actmem_pages {
	ACTMEM_PAGES_DEFAULT,	/* what the options of actmem_open() say */
	ACTMEM_PAGES_2M,	/* 2 MiB: the driver's, or hugetlb's */
	ACTMEM_PAGES_THP,	/* 2 MiB transparent huge pages of shared memory */
	ACTMEM_PAGES_4K,	/* the base page */
	ACTMEM_PAGES_1G,	/* 1 GiB: hugetlb's, by memfd alone */
};

/*
 * What may be used instead of what was asked for. Nothing is, unless it is
 * allowed here; what was used is told by actmem_region_get_info() and counted.
 */
#define ACTMEM_ALLOW_THP	(1u << 0)	/* memfd: transparent huge pages for 1G or 2M */
#define ACTMEM_ALLOW_4K		(1u << 1)	/* memfd: base pages for larger ones */
#define ACTMEM_ALLOW_NODE	(1u << 2)	/* other nodes once bound ones are full */
#define ACTMEM_ALLOW_UNLOCKED	(1u << 3)	/* unpinned if RLIMIT_MEMLOCK refuses mlock */
#define ACTMEM_ALLOW_2M		(1u << 4)	/* 2M for 1G */

/*
 * How to open, and what regions get that do not say otherwise.
 */
struct actmem_options {
	size_t size;			/* set by ACTMEM_INIT */
	enum actmem_backend backend;
	enum actmem_pages pages;	/* DEFAULT: 2M */
	enum actmem_policy policy;	/* DEFAULT: PREFERRED if nodes is empty, else BIND */
	struct actmem_nodes nodes;
	uint32_t allow;			/* ACTMEM_ALLOW_* */
	uint32_t reserved;		/* 0 */
	const char *heap_name;		/* of heaps' regions; NULL: none; see actmem_heap_create() */
};

/* Since actmem_open(); *_total and *_peak only rise, the others return to 0. */
struct actmem_counters {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t regions;		/* that are open, those of heaps included */
	uint64_t region_bytes;
	uint64_t regions_mapped;
	uint64_t heaps;
	uint64_t blocks;		/* of heaps, live */
	uint64_t block_bytes;		/* as asked for */
	uint64_t block_bytes_peak;
	uint64_t region_bytes_peak;
	uint64_t regions_total;
	uint64_t blocks_total;
	uint64_t fallbacks_total;	/* allowed steps down: pages, node, unlocked */
	uint64_t stores;
	uint64_t spilled_bytes;		/* of their blocks that are in files alone */
};

/* struct actmem_options o; ACTMEM_INIT(&o); zeroes it and sets its size. */
#define ACTMEM_INIT(p)	actmem_init((p), sizeof(*(p)))

static inline void actmem_init(void *object, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		((unsigned char *)object)[i] = 0;
	*(size_t *)object = size;
}

/*
 * The last failure of this thread in words, "" before the first. Names the
 * thing, the number and the knob: "node 1 has 3.1 GiB free of 8.0 GiB wanted;
 * ...". Valid until this thread's next call.
 */
const char *actmem_error(void);

/* How an error names the options that it speaks of. */
enum actmem_names {
	ACTMEM_NAMES_C,			/* fields and flags of these headers: "grow_bytes" */
	ACTMEM_NAMES_VARIABLES,		/* "ACTMEM_HEAP_GROW" */
	ACTMEM_NAMES_RUN,		/* of `actmem run`: "--heap-grow (ACTMEM_HEAP_GROW)" */
	ACTMEM_NAMES_PYTHON,		/* of actmem.open(): "heap_grow= (ACTMEM_HEAP_GROW)" */
	ACTMEM_NAMES_REPLAY,		/* of `actmem replay`: "--budget" */
	ACTMEM_NAMES_AS_LIMIT = 1 << 8,	/* besides: budgets are called limits of heaps... */
	ACTMEM_NAMES_AS_BUDGET = 1 << 9,	/* ...or these budgets, as the user set them so */
};

/* As actmem_error(), which takes the names of C. */
const char *actmem_error_in(unsigned int names);

/* "0.1.0", of the library that runs. */
const char *actmem_version(void);

/*
 * Fills @options from the environment that `actmem run` sets up: actmem(1) has the variables.
 * DEFAULT or nothing for variables that are not set. -EINVAL for a value that is not allowed.
 * heap_name points into the environment, which no other thread may change meanwhile
 * (setenv(3)).
 */
int actmem_options_from_environment(struct actmem_options *options);

/* The same from @variables, "NAME=value" up to a NULL, which heap_name then points into. */
int actmem_options_from_variables(const char *const *variables, struct actmem_options *options);

/*
 * Sets all of ACTMEM_ALLOW_* in @options that choose nothing: neither backend, pages, policy,
 * nodes nor allow, and no heap_name; unless the environment has ACTMEM_STRICT, other than 0.
 * A region is then of the best memory there is, driver or not. 1 if it did so, else 0;
 * -EINVAL for a struct that was not set up.
 */
int actmem_options_allow_best(struct actmem_options *options);

/*
 * Opens a backend, for actmem_close() to end. @options NULL:
 * actmem_options_from_environment(). They can be freed afterwards, heap_name included.
 *
 * -ENOENT, -ENXIO  driver asked for, no device or no module
 * -EACCES, -EPERM  /dev/actmem not permitted, and memfd not asked for
 * -EPROTONOSUPPORT  the driver too far apart in age from the library, and memfd not asked for
 * -ENOENT, -EOPNOTSUPP, -EINVAL, -ENAMETOOLONG  heap_name: as for actmem_region_open()
 * -EINVAL  unknown value or flag, reserved not 0
 * -ENOMEM, -EMFILE, -EFBIG  no memory, descriptors or RLIMIT_FSIZE for the counters that
 *	are published
 */
int actmem_open(struct actmem **am, const struct actmem_options *options);

/*
 * -EBUSY while regions, heaps, queues, stores or runtimes of it are open; nothing is closed
 * then. No other thread may be in a call on @am, or make one later: it is freed.
 */
int actmem_close(struct actmem *am);

/* DRIVER or MEMFD: the one in use. */
enum actmem_backend actmem_get_backend(const struct actmem *am);

/*
 * Which backend is in use and why, in words: "memfd: /dev/actmem does not
 * exist (module not loaded)". Valid until actmem_close().
 */
const char *actmem_describe(const struct actmem *am);

/* Current counters of @am, all threads included. */
int actmem_get_counters(struct actmem *am, struct actmem_counters *counters);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#include "actmem_region.h"
#include "actmem_heap.h"

#endif /* ACTMEM_H */
