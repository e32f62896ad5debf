/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Handles (struct actmem): each handle is an open backend with its regions. A forked child closes
 * the descriptors of all handles.
 */
#ifndef LIB_REGION_CONTEXT_H
#define LIB_REGION_CONTEXT_H

#include <pthread.h>
#include <stdbool.h>

#include "actmem.h"
#include "base/base.h"
#include "region/backend.h"
#include "watch/watch.h"

#define DESCRIPTION_MAX	(512 + PATH_TEXT_MAX)

#define HEAP_NAMES_MAX	4096

/* Names of the files PATH.0, PATH.1 and so on, which are the regions of a handle's heaps. */
struct heap_names {
	char *path;			/* absolute path; NULL if heaps have no names */
	uint64_t taken[HEAP_NAMES_MAX / 64];	/* bit N: PATH.N is in use; under handles_lock() */
};

/* Descriptors that a forked child closes; -1: none. */
struct held {
	struct link link;
	const int *descriptors;
	unsigned int count;
};

struct actmem {
	struct actmem *next, *previous;	/* under handles_lock(), like all lists */
	struct actmem_region *regions;
	unsigned int heaps, queues, runtimes;	/* under handles_lock() */
	struct link held;		/* descriptors other than those of @regions */
	unsigned int generation;
	const struct backend *backend;
	int device;
	struct actmem_options options;
	struct heap_names heap_names;
	struct stats stats;		/* records are added and removed under handles_lock() */
	struct counters *counters;	/* points into @stats */
	struct published_waits *waits;	/* points into @stats */
	char description[DESCRIPTION_MAX];
};

struct actmem_region {
	struct actmem_region *next, *previous;
	struct actmem *am;
	const struct backend *backend;	/* with AUTO, may differ from am->backend */
	pthread_mutex_t pages_lock;	/* serializes populate and discard if backend->in_turn */
	pthread_mutex_t lock;
	bool by_default;		/* the caller did not set allow: report fallbacks */
	struct backing backing;
	int making[MAKING_COUNT];	/* descriptors, until the region is in the list */
	struct held held;		/* names @making for forked children until then */
	struct stats_record *record;	/* memfd only; @lock protects the record's mapped_bytes */
	unsigned int maps;		/* calls of map minus calls of unmap; under @lock */
	_Atomic unsigned int attachments;	/* number of attachments to queues */
	_Atomic unsigned int buffers;	/* number of queues that registered the pages */
	/* The registration with a runtime, or NULL. Set under @lock. */
	struct registration *_Atomic registration;
};

void handles_lock(void);
void handles_unlock(void);

/* A child that is forked between held_add() and held_drop() closes the descriptors. */
void held_add(struct actmem *am, struct held *held);
void held_drop(struct held *held);

/*
 * Incremented in each forked child. A handle can be used only in a process of the same generation.
 */
extern unsigned int handles_generation;

static inline bool is_owner(const struct actmem *am)
{
	return am->generation == handles_generation;
}

/* Fails with -EOWNERDEAD and an error message if @am was opened before this child was forked. */
int check_owner(const struct actmem *am);

#endif /* LIB_REGION_CONTEXT_H */
