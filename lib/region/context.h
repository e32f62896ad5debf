/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * An open backend with its regions; what fork() does to them.
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

/* The files PATH.0, PATH.1 ... that heaps of one handle have. */
struct heap_names {
	char *path;			/* absolute; NULL: heaps have no names */
	uint64_t taken[HEAP_NAMES_MAX / 64];	/* under the handles lock */
};

/* Descriptors that are closed in a forked child. */
struct held {
	struct link link;
	const int *descriptors;
	unsigned int count;
};

struct actmem {
	struct actmem *next, *previous;	/* under the handles lock, as all lists */
	struct actmem_region *regions;
	unsigned int heaps, queues, runtimes;	/* under the handles lock */
	struct link held;		/* besides those of regions */
	unsigned int generation;
	const struct backend *backend;
	int device;
	struct actmem_options options;
	struct heap_names heap_names;
	struct stats stats;		/* adding and removing: under the handles lock */
	struct counters *counters;	/* of stats, as are the waits */
	struct published_waits *waits;
	char description[DESCRIPTION_MAX];
};

struct actmem_region {
	struct actmem_region *next, *previous;
	struct actmem *am;
	const struct backend *backend;	/* not always that of am, if that was left to choose */
	pthread_mutex_t pages_lock;	/* where pages are made or given back in turn */
	pthread_mutex_t lock;
	struct backing backing;
	struct stats_record *record;	/* memfd only; mapped bytes: under lock */
	unsigned int maps;		/* under lock */
	_Atomic unsigned int attachments;	/* to queues */
	_Atomic unsigned int buffers;	/* of rings of queues, which hold its pages */
	_Atomic unsigned int commands;	/* of queues, which work on it */
	/* With a runtime, or NULL; set under lock. */
	struct registration *_Atomic registration;
};

void handles_lock(void);
void handles_unlock(void);

/* Has the descriptors closed in forked children, until it is dropped. */
void held_add(struct actmem *am, struct held *held);
void held_drop(struct held *held);

/* How often this process was forked off one that had the library open. */
extern unsigned int handles_generation;

static inline bool is_owner(const struct actmem *am)
{
	return am->generation == handles_generation;
}

/* 0; -EOWNERDEAD with words in a child of the process that opened @am. */
int check_owner(const struct actmem *am);

#endif /* LIB_REGION_CONTEXT_H */
