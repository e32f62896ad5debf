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

/* The options of the command. */
struct replay_options {
	const char *model;
	const char *models_path;
	uint64_t tokens;
	double scale;
	const char *plan_path;			/* replay this plan; NULL: the model */
	double compute_ms;			/* of a layer in each pass; below 0: not given */
	uint64_t steps;
	unsigned int order;			/* enum order */
	uint64_t seed;
	uint64_t change_order_at;		/* a step; 0: never */
	uint64_t budget_bytes;
	const char *spill_paths[SPILL_FOLDERS_MAX];
	uint32_t spill_path_count;
	uint64_t window_bytes;
	uint64_t block_bytes;			/* of the queue; 0: the device's default */
	uint64_t depth;
	uint32_t flags;				/* ACTMEM_STORE_* */
	const char *trace_path;
};

/* Bytes per second of the spill devices, or 0 without any. */
struct disk_speed {
	double spill, fill;
};

/*
 * @beside: while a thread fills or verifies as much as a step does, which uses the same memory
 * bandwidth. @alone: without that thread.
 */
struct disk_speeds {
	struct disk_speed beside, alone;
};

struct replay_step {
	uint64_t ns;
	uint64_t forward_ns;
	uint64_t compute_ns;			/* requested */
	uint64_t pattern_ns;			/* filling and verifying, counted as computing */
	uint64_t overrun_ns;			/* filling and verifying beyond compute_ns */
	uint64_t put_stall_ns, take_stall_ns;	/* in calls of the store */
	struct disk_speeds speeds;		/* mean of before and after the step */
	struct actmem_store_stats stats;	/* *_total: the increase in this step */
};

struct replay_trace;

struct replay {
	struct replay_options options;
	struct model model;
	struct plan plan;			/* no layers: the option was not given */
	unsigned int tensors;			/* of a layer */
	char tensor_names[REPLAY_TENSORS_MAX][24];
	uint64_t bytes[MODEL_TENSORS];		/* of a plan: [0] is the largest layer */
	uint64_t step_bytes;
	uint64_t page_bytes;			/* region lengths are multiples of it */
	struct actmem *am;
	struct actmem_store *store;
	struct transfers *transfers;		/* NULL: the disks are not measured */
	struct work *work;			/* runs beside the transfers */
	uint64_t probe_bytes;
	uint64_t worked_bytes;			/* by the thread, in all measurements */
	struct timeline *timeline;		/* NULL: none */
	struct replay_trace *trace;
	uint32_t *order;			/* of layers, in the current step */
	struct replay_step *done;
	uint64_t done_count;			/* complete steps */
	struct actmem_store_stats stats;	/* at the end */
	char store_words[512];
	char engine_words[512];
	uint64_t wrong_blocks, wrong_bytes;
};

/* The signal that ends the command, or 0. */
extern volatile sig_atomic_t replay_signal;

static inline uint64_t replay_name(uint32_t layer, unsigned int tensor)
{
	return (uint64_t)layer * REPLAY_TENSORS_MAX + tensor;
}

/* Returns 0 for a layer of a plan that sends nothing to the host. */
static inline uint64_t replay_bytes(const struct replay *replay, uint32_t layer,
				    unsigned int tensor)
{
	return replay->plan.layers ? replay->plan.layers[layer].bytes : replay->bytes[tensor];
}

/*
 * Sets up the tensors of each layer, from the model or the plan. Returns an enum exit_status after
 * printing any error message with warnx(): STATUS_USAGE for sizes that no store can hold.
 */
int replay_lay_out(struct replay *replay);

/*
 * Runs one step, and records it in done[done_count]. Leaves no block in the store. Prints and
 * counts bytes that came back wrong. Returns 0, -EINTR for a signal, or another negative errno
 * after printing the error message with warnx().
 */
int replay_step(struct replay *replay);

struct actmem_queue_options replay_queue_options(const struct replay_options *options);

/*
 * Prepares the measurement of the disks, if anything is spilled. Otherwise, the other functions do
 * nothing. Returns an enum exit_status after printing any error message with warnx().
 */
int replay_probe_open(struct replay *replay);
void replay_probe_close(struct replay *replay);
/* Measures the disks. Returns 0, or a negative errno after printing the error message. */
int replay_probe(struct replay *replay, struct disk_speeds *speeds);
/* Returns the mean speeds over equal numbers of bytes before and after a step. */
struct disk_speeds replay_probe_mean(const struct disk_speeds *before,
				     const struct disk_speeds *after);

/* Prints the library's last error message with warnx(), after @where if it is not NULL. */
void replay_tell_error(const char *where);

/* Starts recording the store's events for the timeline. Returns 0 or -ENOMEM. */
int replay_trace_begin(struct replay *replay);
/* Writes the events since the last call to the timeline. */
void replay_trace_drain(struct replay *replay);
/* Ends the trace. The caller has already destroyed the store. */
void replay_trace_end(struct replay *replay);
/* Adds the store's current bytes to the timeline, as curves. */
void replay_trace_count(struct replay *replay);

/* Returns the result, or NULL if out of memory. */
json_t *replay_to_json(const struct replay *replay);
/* Prints the result. Returns 0 or -ENOMEM. */
int replay_print(const json_t *told);

#endif
