/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Declarations that the source files of actmem replay share. */
#ifndef ACTMEM_REPLAY_H
#define ACTMEM_REPLAY_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "actmem_store.h"
#include "disk.h"
#include "transfers.h"
#include "work.h"

#define MODEL_TENSORS		3		/* query, key, value */
#define REPLAY_TENSORS_MAX	64		/* in each layer; with a plan, one per device */
#define REPLAY_BYTES_MAX	(1ULL << 50)
#define REPLAY_STEPS_MAX	1000000

/* The options of the command. */
struct replay_options {
	const char *model;
	uint64_t tokens;
	double scale;
	const char *plan_path;			/* replay this plan; NULL: the model */
	double compute_ms;			/* for each layer and pass; below 0: not given */
	uint64_t steps;
	uint64_t budget_bytes;
	const char *spill_paths[SPILL_FOLDERS_MAX];
	uint32_t spill_path_count;
	uint32_t flags;				/* ACTMEM_STORE_* */
};

struct plan_layer {
	uint64_t forward_ns, backward_ns;
	uint64_t bytes;				/* bytes that each device sends to the host */
};

/* The layers of a plan that actmem plan --save wrote. */
struct plan {
	char name[64];				/* name of the model */
	uint32_t devices;			/* number on a host; all do the same work */
	uint32_t layer_count;
	struct plan_layer *layers;
	uint64_t step_ns;			/* predicted time of a step */
	uint64_t budget_bytes;			/* of all devices together; 0: no limit */
};

/* Reads a plan. On failure, prints an error message with warnx() and returns false. */
bool plan_read(const char *path, struct plan *plan);
void plan_free(struct plan *plan);

/* Bytes per second of the spill devices, or 0 if there are none. */
struct disk_speed {
	double spill, fill;
};

/*
 * @beside: speed while a thread fills or verifies memory. The thread uses as much memory bandwidth
 * as a step does. @alone: speed without that thread.
 */
struct disk_speeds {
	struct disk_speed beside, alone;
};

struct replay_step {
	uint64_t ns;
	uint64_t compute_ns;			/* requested compute time */
	uint64_t overrun_ns;			/* filling and verifying, beyond compute_ns */
	uint64_t stall_ns;			/* time in calls of the store */
	struct disk_speeds speeds;		/* mean of the speeds before and after the step */
	struct actmem_store_stats stats;	/* *_total: increase in this step, if reported */
};

struct replay {
	struct replay_options options;
	struct plan plan;			/* has no layers without --plan */
	const char *name;			/* name of the model */
	uint32_t layer_count;
	unsigned int tensors;			/* number in a layer */
	char tensor_names[REPLAY_TENSORS_MAX][24];
	uint64_t bytes[MODEL_TENSORS];		/* of each tensor; with a plan, [0]: the longest */
	uint64_t step_bytes;
	uint64_t page_bytes;			/* region lengths are multiples of it */
	struct actmem *am;
	struct actmem_store *store;
	struct transfers *transfers;		/* NULL: the disks are not measured */
	struct work *work;			/* thread that fills or verifies memory */
	uint64_t probe_bytes;
	uint64_t worked_bytes;			/* bytes that @work filled or verified */
	struct replay_step *done;
	uint64_t done_count;			/* number of complete steps */
	struct actmem_store_stats stats;	/* of the store, when the last step had ended */
	char store_text[512];			/* describes the store */
	uint64_t wrong_blocks, wrong_bytes;
};

/* The signal that ends the command, or 0. */
extern volatile sig_atomic_t replay_signal;

/* Returns the length of a tensor; 0 if this layer of a plan sends nothing to the host. */
static inline uint64_t replay_bytes(const struct replay *replay, uint32_t layer,
				    unsigned int tensor)
{
	return replay->plan.layers ? replay->plan.layers[layer].bytes : replay->bytes[tensor];
}

/*
 * Sets up the tensors of each layer, from the model or the plan. Returns an enum exit_status after
 * printing any error message with warnx(): STATUS_USAGE for an unknown model or an invalid size.
 */
int replay_lay_out(struct replay *replay);

/*
 * Runs one step, and records the step in done[done_count]. Leaves no block in the store. Reports
 * and counts the bytes that the store returned with wrong values. Returns 0, -EINTR for a signal,
 * or another negative errno after printing the error message with warnx().
 */
int replay_step(struct replay *replay);

/*
 * Prepares the measurement of the disks. Without a spill directory, there are no disks to measure:
 * this function, replay_probe() and replay_probe_close() then do nothing. Returns an enum
 * exit_status after printing any error message with warnx().
 */
int replay_probe_open(struct replay *replay);
void replay_probe_close(struct replay *replay);
/* Measures the disks. Returns 0, or a negative errno after printing the error message. */
int replay_probe(struct replay *replay, struct disk_speeds *speeds);
/* Returns the harmonic mean of the speeds that were measured before and after a step. */
struct disk_speeds replay_probe_mean(const struct disk_speeds *before,
				     const struct disk_speeds *after);

/* Returns the results of all steps, or NULL if out of memory. */
json_t *replay_to_json(const struct replay *replay);
/* Prints the results as a table. Returns 0 or -ENOMEM. */
int replay_print(const json_t *result);

#endif
