/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Pinned huge-page host memory on chosen NUMA nodes, for accelerators. A program opens a handle
 * first (actmem_open()). This header includes the headers of regions (actmem_region.h) and heaps
 * (actmem_heap.h).
 *
 * Calls return 0 or a negative errno. After an error, actmem_error() returns a message with the
 * requested value, the available value, and the option that the user should change. The library
 * never ends the process, and never installs signal handlers. The library prints nothing except
 * lines about fallbacks (see ACTMEM_ALLOW_*). All sizes are bytes. Calls are thread-safe unless
 * their comment says otherwise. A call that waits defers cancellation (pthread_cancel(3)) until the
 * call returns.
 *
 * The caller initializes each struct that has the member @size with ACTMEM_INIT(). The size tells a
 * later library which members an older program was compiled with. Any call returns -EINVAL for a
 * struct that was not initialized this way, for a NULL handle, and for a NULL pointer to a result.
 * A call copies its options. After the call, the caller may therefore free the options and
 * everything that the options point to.
 *
 * A child of fork() must not use handles that it inherited: each call that can fail returns
 * -EOWNERDEAD for such a handle. The child opens its own handle with actmem_open(). A process may
 * open several handles, which share nothing.
 */
#ifndef ACTMEM_H
#define ACTMEM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers, as in the file VERSION. */
#define ACTMEM_VERSION_MAJOR	0
#define ACTMEM_VERSION_MINOR	1
#define ACTMEM_VERSION_PATCH	0

#define ACTMEM_NODES_MAX	1024
#define ACTMEM_NAME_MAX		64	/* with the terminating NUL */

/*
 * If @timeout_ns is ACTMEM_WAIT_FOREVER, a call waits without a limit. If @timeout_ns is 0, the
 * call does not wait.
 */
#define ACTMEM_WAIT_FOREVER	UINT64_MAX

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

struct actmem;			/* a handle: an open backend */

/*
 * A set of NUMA nodes: node n is bit n % 64 of word n / 64. If the set in an option is empty (no
 * bit is set), the default nodes apply.
 */
struct actmem_nodes {
	uint64_t word[ACTMEM_NODES_MAX / 64];
};

enum actmem_backend {
	ACTMEM_BACKEND_AUTO,	/* DRIVER if /dev/actmem exists, else MEMFD; MEMFD for 1G pages */
	ACTMEM_BACKEND_DRIVER,	/* the driver (/dev/actmem), or an error */
	ACTMEM_BACKEND_MEMFD,	/* memfd, which needs neither the module nor root */
};

enum actmem_policy {
	ACTMEM_PLACE_DEFAULT,	/* the policy of actmem_open() */
	ACTMEM_PLACE_BIND,	/* only the given nodes, or an error */
	ACTMEM_PLACE_PREFERRED,	/* prefer the given node or, without one, the caller's node */
	ACTMEM_PLACE_INTERLEAVE, /* page i on the (i mod n)-th given node */
};

enum actmem_pages {
	ACTMEM_PAGES_DEFAULT,	/* the pages of actmem_open() */
	ACTMEM_PAGES_2M,	/* 2 MiB, from the driver or hugetlb */
	ACTMEM_PAGES_THP,	/* 2 MiB transparent huge pages of shared memory */
	ACTMEM_PAGES_4K,	/* the base page */
	ACTMEM_PAGES_1G,	/* 1 GiB, from hugetlb; MEMFD only */
};

/*
 * The library uses a fallback, such as smaller pages or another node, only if that fallback is
 * permitted. A program permits fallbacks with ACTMEM_ALLOW_* flags in @allow of the handle's or the
 * region's options. Which flags apply to an option, such as @pages, depends on which struct sets
 * the option:
 *
 * If neither the region nor the handle sets the option, the library by default uses the best memory
 *	available. Pages other than 2M are permitted if no struct sets @pages. Other nodes are
 *	permitted if no struct sets @policy or @nodes. Unpinned memory is permitted. The library
 *	prints a line on stderr for the first fallback in a process, and for the first region that
 *	is not pinned, unless the environment has ACTMEM_QUIET=1. If a struct has flags in @allow,
 *	only the fallbacks that these flags name are permitted. If no struct has flags, but the
 *	environment has ACTMEM_STRICT=1, no fallback is permitted.
 * If only the handle sets the option, the flags of the handle and of the region apply.
 * If the region sets the option, only the flags of the region apply. So a region that sets 1G
 *	and no flags gets 1G or an error, whatever the handle permits.
 *
 * The regions of a heap or a store have the region options that the heap or the store was created
 * with. No flag permits a backend other than the requested one. The library counts the fallbacks
 * that it used, and actmem_region_get_info() reports the pages and nodes of a region.
 */
#define ACTMEM_ALLOW_THP	(1u << 0)	/* memfd: THP instead of 1G or 2M pages */
#define ACTMEM_ALLOW_4K		(1u << 1)	/* memfd: base pages instead of larger ones */
#define ACTMEM_ALLOW_NODE	(1u << 2)	/* other nodes if the bound ones are full */
#define ACTMEM_ALLOW_UNLOCKED	(1u << 3)	/* unpinned memory if mlock() fails */
#define ACTMEM_ALLOW_2M		(1u << 4)	/* 2M pages instead of 1G */
#define ACTMEM_ALLOW_ONLY	(1u << 31)	/* no default fallbacks, no flags of the handle */

/*
 * Options of a handle, and defaults of its regions.
 */
struct actmem_options {
	size_t size;			/* set by ACTMEM_INIT */
	enum actmem_backend backend;
	enum actmem_pages pages;	/* DEFAULT: 2M */
	enum actmem_policy policy;	/* DEFAULT: PREFERRED if nodes is empty, else BIND */
	struct actmem_nodes nodes;
	uint32_t allow;			/* ACTMEM_ALLOW_*; 0: the fallbacks permitted by default */
	uint32_t reserved;		/* 0 */
	const char *heap_name;		/* prefix of file names or NULL; see actmem_heap_create() */
};

/*
 * Counters since actmem_open(). The counters *_total and *_peak never fall. The other counters fall
 * when objects are closed or freed.
 */
struct actmem_counters {
	size_t size;			/* set by ACTMEM_INIT */
	uint64_t regions;		/* open regions, including those of heaps */
	uint64_t region_bytes;
	uint64_t regions_mapped;
	uint64_t heaps;
	uint64_t blocks;		/* blocks of heaps that are allocated and not freed */
	uint64_t block_bytes;		/* sum of the blocks' lengths, as requested */
	uint64_t block_bytes_peak;
	uint64_t region_bytes_peak;
	uint64_t regions_total;
	uint64_t blocks_total;
	uint64_t fallbacks_total;	/* fallbacks to other pages or nodes, or unlocked memory */
	uint64_t stores;
	uint64_t spilled_bytes;		/* bytes of those store blocks that are only in files */
};

/*
 * Zeroes the struct that @p points to, and sets the member @size. If @p is a pointer to a pointer,
 * the macro does not compile, because a pointer has no member @size.
 */
#define ACTMEM_INIT(p)	actmem_init((p), sizeof(*(p)) + 0 * sizeof((p)->size))

static inline void actmem_init(void *object, size_t size)
{
	size_t i;

	for (i = 0; i < size; i++)
		((unsigned char *)object)[i] = 0;
	*(size_t *)object = size;
}

/*
 * Returns the error message of this thread's last failure, or "". The message names the object
 * (such as a node or a file), the wanted and the available amount, and the option that the user
 * should change. An example is "node 1 has 3.1 GiB free, but 8.0 GiB are needed; ...". Some calls
 * set a message even though they succeed, if they provide less than the caller asked for. The
 * string is valid until this thread calls the library again.
 */
const char *actmem_error(void);

/* How an error message names options. */
enum actmem_names {
	ACTMEM_NAMES_C,			/* fields and flags of these headers: "grow_bytes" */
	ACTMEM_NAMES_VARIABLES,		/* environment variables: "ACTMEM_HEAP_GROW" */
	ACTMEM_NAMES_RUN,		/* for `actmem run`: "--heap-grow (ACTMEM_HEAP_GROW)" */
	ACTMEM_NAMES_PYTHON,		/* for actmem.open(): "heap_grow= (ACTMEM_HEAP_GROW)" */
	ACTMEM_NAMES_REPLAY,		/* for `actmem replay`: "--budget" */
	ACTMEM_NAMES_AS_LIMIT = 1 << 8,	/* flag: name the heap limit, not the budget */
	ACTMEM_NAMES_AS_BUDGET = 1 << 9,	/* flag: name the budget, not the heap limit */
};

/*
 * Returns the message of actmem_error(). @names is a value of enum actmem_names, and selects how
 * the message names options. Add ACTMEM_NAMES_AS_LIMIT if the user sets only a heap limit, or
 * ACTMEM_NAMES_AS_BUDGET if the user sets only a store's budget. actmem_error() uses
 * ACTMEM_NAMES_C. After the program has called actmem_open() with @options NULL, messages with
 * ACTMEM_NAMES_C name environment variables in place of the fields that these variables set.
 */
const char *actmem_error_in(unsigned int names);

/* Returns the version of the loaded library, such as "0.1.0". */
const char *actmem_version(void);

/*
 * Fills @options from environment variables. actmem(1) lists the variables, and `actmem run` sets
 * them. If a variable is not set, its option keeps the default. ACTMEM_STRICT=1 sets the flag
 * ACTMEM_ALLOW_ONLY in @options->allow. After the call, heap_name points into the environment.
 * Until actmem_open() has returned, no other thread may change the environment (setenv(3)).
 *
 * -EINVAL  the value of a variable is not allowed; actmem_error() lists the allowed values
 */
int actmem_options_from_environment(struct actmem_options *options);

/*
 * Fills @options from an array of strings. Each string of @variables is "NAME=value", as in the
 * environment, and a NULL ends the array. After the call, heap_name points into one of these
 * strings.
 *
 * -EINVAL  the value of a variable is not allowed
 */
int actmem_options_from_variables(const char *const *variables, struct actmem_options *options);

/*
 * Opens a handle on a backend. The caller closes it with actmem_close(). If @options is NULL, the
 * handle gets the options of actmem_options_from_environment(). After an error, *@am is unchanged.
 *
 * -ENOENT, -ENXIO  the caller requests the driver, but the device or the module is missing
 * -EACCES, -EPERM  the user is not allowed to open /dev/actmem, and the backend is not MEMFD
 * -EPROTONOSUPPORT  driver and library do not support each other, and the backend is not MEMFD
 * -ENOENT, -EOPNOTSUPP, -EINVAL, -ENAMETOOLONG  heap_name is wrong; see actmem_region_open()
 * -EINVAL  an unknown value or flag, a wrong value in the environment, or reserved is not 0
 * -ENOMEM, -EMFILE, -EFBIG  no memory or no descriptor for the file in which this process publishes
 *	its counters, or RLIMIT_FSIZE is too low for this file
 */
int actmem_open(struct actmem **am, const struct actmem_options *options);

/*
 * Closes and frees a handle. No other thread may use @am during the call or later.
 *
 * -EBUSY  regions, heaps, queues, stores or runtimes of @am are open; nothing is closed
 */
int actmem_close(struct actmem *am);

/* Returns the backend in use, ACTMEM_BACKEND_DRIVER or ACTMEM_BACKEND_MEMFD. */
enum actmem_backend actmem_get_backend(const struct actmem *am);

/*
 * Describes which backend is in use and why. An example is "memfd: /dev/actmem does not exist
 * (module not loaded)". The string is valid until actmem_close().
 */
const char *actmem_describe(const struct actmem *am);

/*
 * Returns the counters of a handle. The counters cover all threads of the process. `actmem list`
 * shows the counters of each process.
 */
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
