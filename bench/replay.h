/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The parts of actmem replay share these declarations. */
#ifndef ACTMEM_REPLAY_H
#define ACTMEM_REPLAY_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "actmem_store.h"
#include "disk.h"
#include "models.h"
#include "order.h"
#include "plan_file.h"
#include "timeline.h"
#include "transfers.h"
#include "work.h"

#define REPLAY_TENSORS_MAX	64		/* of a layer: devices, or query, key, value */
#define REPLAY_BYTES_MAX	(1ULL << 50)
#define REPLAY_STEPS_MAX	1000000
#define REPLAY_LANE_STEPS	1
#define REPLAY_LANE_STALLS	2
#define REPLAY_LANE_LAYERS	10

/* The options given. */
struct replay_options {
	const char *model;
	const char *models_path;
	uint64_t tokens;
	double scale;
	const char *plan_path;			/* whose traffic it is; NULL: the model's */
	double compute_ms;			/* of a layer in each pass; below 0: nobody said */
	uint64_t steps;
	unsigned int order;			/* enum order */
	uint64_t seed;
	uint64_t change_order_at;		/* a step; 0: never */
	uint64_t budget_bytes;
	const char *spill_paths[SPILL_FOLDERS_MAX];
	uint32_t spill_path_count;
	uint64_t window_bytes;
	uint64_t block_bytes;			/* of the queue; 0: as the device likes */
	uint64_t depth;
	uint32_t flags;				/* ACTMEM_STORE_* */
	const char *trace_path;
};

/* Bytes a second of the spill devices; 0 without any. */
struct disk_speed {
	double spill, fill;
};

/*
 * Beside as much filling and verifying as a step does, which take of the same memory's
 * bandwidth; and with nothing beside.
 */
struct disk_speeds {
	struct disk_speed beside, alone;
};

struct replay_step {
	uint64_t ns;
	uint64_t forward_ns;
	uint64_t compute_ns;			/* that was asked for */
	uint64_t pattern_ns;			/* filling and verifying, within that */
	uint64_t overrun_ns;			/* of pattern_ns, beyond it */
	uint64_t put_stall_ns, take_stall_ns;	/* in calls of the store */
	struct disk_speeds speeds;		/* as before and after it */
	struct actmem_store_stats stats;	/* what *_total rose by */
};

struct replay_trace;

struct replay {
	struct replay_options options;
	struct model model;
	struct plan plan;			/* without layers: none */
	unsigned int tensors;			/* of a layer */
	char tensor_names[REPLAY_TENSORS_MAX][24];
	uint64_t bytes[MODEL_TENSORS];		/* of a plan: the most of any layer */
	uint64_t step_bytes;
	uint64_t page_bytes;			/* that lengths of regions are multiples of */
	struct actmem *am;
	struct actmem_store *store;
	struct transfers *transfers;		/* NULL: nothing is spilled */
	struct work *work;			/* beside them */
	uint64_t probe_bytes;
	uint64_t worked_bytes;			/* beside all measurements */
	struct timeline *timeline;		/* NULL: none */
	struct replay_trace *trace;
	uint32_t *order;			/* of layers, in the step that runs */
	struct replay_step *done;
	uint64_t done_count;			/* complete steps */
	struct actmem_store_stats stats;	/* at the end */
	char store_words[512];
	char engine_words[512];
	uint64_t wrong_blocks, wrong_bytes;
};

/* The signal that is to end it, 0 for none. */
extern volatile sig_atomic_t replay_signal;

static inline uint64_t replay_name(uint32_t layer, unsigned int tensor)
{
	return (uint64_t)layer * REPLAY_TENSORS_MAX + tensor;
}

/* 0 for a layer of a plan that keeps all. */
static inline uint64_t replay_bytes(const struct replay *replay, uint32_t layer,
				    unsigned int tensor)
{
	return replay->plan.layers ? replay->plan.layers[layer].bytes : replay->bytes[tensor];
}

/*
 * What each layer has, from the model or the plan: an enum exit_status, told by warnx().
 * STATUS_USAGE for sizes that no store could have.
 */
int replay_lay_out(struct replay *replay);

/*
 * One step: done[done_count] tells of it. 0; -EINTR: a signal; or a negative errno,
 * told by warnx(). No block is left in the store. Bytes that came back wrong are
 * told, and counted.
 */
int replay_step(struct replay *replay);

struct actmem_queue_options replay_queue_options(const struct replay_options *options);

/*
 * Has the disks measured, where something is spilled: an enum exit_status, told by
 * warnx(). The others are no calls without that.
 */
int replay_probe_open(struct replay *replay);
void replay_probe_close(struct replay *replay);
/* 0 or a negative errno, told. */
int replay_probe(struct replay *replay, struct disk_speeds *speeds);
/* The speeds of as many bytes at each of two, as before and after a step. */
struct disk_speeds replay_probe_mean(const struct disk_speeds *before,
				     const struct disk_speeds *after);

/* warnx() with the library's last error, and where that was, if not NULL. */
void replay_tell_error(const char *where);

/* Has the store's events put on the timeline; 0 or -ENOMEM. */
int replay_trace_begin(struct replay *replay);
/* Writes the events since the last time. */
void replay_trace_drain(struct replay *replay);
/* Ends it; the store is gone by then. */
void replay_trace_end(struct replay *replay);
/* The store's bytes at this moment, as curves. */
void replay_trace_count(struct replay *replay);

/* The result; NULL: no memory. */
json_t *replay_to_json(const struct replay *replay);
/* 0 or -ENOMEM. */
int replay_print(const json_t *told);

#endif
