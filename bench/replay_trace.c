// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Writes the store's events to the timeline. They arrive on the store's threads and under its lock,
 * so the callback only records them. They are written between steps.
 */
#include <err.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/base.h"
#include "replay.h"

#define EVENTS_FIRST	4096

static const char spilling[] = "spill", filling[] = "fill";
static const char resident[] = "blocks in memory,", pinned[] = "pinned", spilled[] = "spilled";

struct event_log {
	struct actmem_store_event *events;
	size_t count, capacity;
};

struct replay_trace {
	pthread_mutex_t lock;		/* protects log and lost */
	struct event_log log;
	uint64_t lost;
	struct event_log written;	/* being written, or the next log */
	uint64_t *spill_ids, *fill_ids;	/* of the current transfer, by the block's name */
	uint64_t last_id;
	uint64_t stalled_ns;		/* when the last stall began; 0: none did yet */
};

static bool make_room(struct event_log *log)
{
	size_t capacity = log->capacity ? 2 * log->capacity : EVENTS_FIRST;
	struct actmem_store_event *events;

	if (log->count < log->capacity)
		return true;
	events = reallocarray(log->events, capacity, sizeof(*events));
	if (!events)
		return false;
	log->events = events;
	log->capacity = capacity;
	return true;
}

static void keep_event(const struct actmem_store_event *event, void *data)
{
	struct replay_trace *trace = data;

	pthread_mutex_lock(&trace->lock);
	if (make_room(&trace->log))
		trace->log.events[trace->log.count++] = *event;
	else
		trace->lost++;
	pthread_mutex_unlock(&trace->lock);
}

static void free_trace(struct replay_trace *trace)
{
	pthread_mutex_destroy(&trace->lock);
	free(trace->log.events);
	free(trace->written.events);
	free(trace->spill_ids);
	free(trace->fill_ids);
	free(trace);
}

int replay_trace_begin(struct replay *replay)
{
	size_t blocks = (size_t)replay->model.layers * REPLAY_TENSORS_MAX;
	struct replay_trace *trace;
	char name[32];
	uint32_t layer;

	if (!replay->timeline)
		return 0;
	trace = calloc(1, sizeof(*trace));
	if (!trace)
		return -ENOMEM;
	pthread_mutex_init(&trace->lock, NULL);
	trace->spill_ids = calloc(blocks, sizeof(*trace->spill_ids));
	trace->fill_ids = calloc(blocks, sizeof(*trace->fill_ids));
	if (!trace->spill_ids || !trace->fill_ids || !make_room(&trace->log) ||
	    !make_room(&trace->written)) {
		free_trace(trace);
		return -ENOMEM;
	}
	replay->trace = trace;
	timeline_lane(replay->timeline, REPLAY_LANE_STEPS, "steps");
	timeline_lane(replay->timeline, REPLAY_LANE_STALLS, "stalls");
	for (layer = 0; layer < replay->model.layers; layer++) {
		snprintf(name, sizeof(name), "layer %02u", layer);
		timeline_lane(replay->timeline, REPLAY_LANE_LAYERS + layer, name);
	}
	actmem_store_observe(replay->store, keep_event, trace);
	return 0;
}

static void count_bytes(struct replay *replay, const char *name, uint64_t ns, uint64_t bytes)
{
	timeline_count(replay->timeline, name, "bytes", ns, bytes);
}

static json_t *about_block(const struct replay *replay,
			   const struct actmem_store_event *event)
{
	char block[32];

	snprintf(block, sizeof(block), "layer %02u %s",
		 (unsigned int)(event->key.name / REPLAY_TENSORS_MAX),
		 replay->tensor_names[event->key.name % REPLAY_TENSORS_MAX]);
	return json_pack("{s:s, s:I}", "block", block, "bytes", (json_int_t)event->length);
}

static void write_transfer(struct replay *replay, const struct actmem_store_event *event,
			   bool begins, const char *kind, uint64_t *ids)
{
	uint64_t *id = &ids[event->key.name];

	if (begins) {
		*id = ++replay->trace->last_id;
		timeline_begin(replay->timeline, kind, *id, event->time_ns, about_block(replay, event));
	} else {
		timeline_end(replay->timeline, kind, *id, event->time_ns,
			     json_pack("{s:i}", "result", (int)event->result));
	}
}

static void write_stall(struct replay *replay, const struct actmem_store_event *event, bool begins)
{
	struct replay_trace *trace = replay->trace;

	if (begins) {
		trace->stalled_ns = event->time_ns;
		return;
	}
	timeline_slice(replay->timeline, REPLAY_LANE_STALLS, "stall", trace->stalled_ns,
		       event->time_ns, about_block(replay, event));
}

static void write_event(struct replay *replay, const struct actmem_store_event *event)
{
	struct replay_trace *trace = replay->trace;

	switch (event->kind) {
	case ACTMEM_STORE_SPILL_BEGIN:
	case ACTMEM_STORE_SPILL_END:
		write_transfer(replay, event, event->kind == ACTMEM_STORE_SPILL_BEGIN, spilling,
			       trace->spill_ids);
		break;
	case ACTMEM_STORE_FILL_BEGIN:
	case ACTMEM_STORE_FILL_END:
		write_transfer(replay, event, event->kind == ACTMEM_STORE_FILL_BEGIN, filling,
			       trace->fill_ids);
		break;
	case ACTMEM_STORE_STALL_BEGIN:
	case ACTMEM_STORE_STALL_END:
		write_stall(replay, event, event->kind == ACTMEM_STORE_STALL_BEGIN);
		break;
	}
	count_bytes(replay, resident, event->time_ns, event->resident_bytes);
	count_bytes(replay, spilled, event->time_ns, event->spilled_bytes);
}

static void write_events(struct replay *replay)
{
	struct replay_trace *trace = replay->trace;
	struct event_log log;
	uint64_t lost;
	size_t i;

	pthread_mutex_lock(&trace->lock);
	log = trace->log;
	trace->log = trace->written;
	lost = trace->lost;
	trace->lost = 0;
	pthread_mutex_unlock(&trace->lock);
	for (i = 0; i < log.count; i++)
		write_event(replay, &log.events[i]);
	log.count = 0;
	trace->written = log;
	if (lost)
		warnx("no memory for %" PRIu64 " events of the trace", lost);
}

void replay_trace_drain(struct replay *replay)
{
	if (!replay->trace)
		return;
	write_events(replay);
	replay_trace_count(replay);
}

void replay_trace_count(struct replay *replay)
{
	struct actmem_store_stats stats;
	uint64_t now_ns;

	if (!replay->trace)
		return;
	ACTMEM_INIT(&stats);
	now_ns = clock_ns();
	if (actmem_store_get_stats(replay->store, &stats))
		return;
	count_bytes(replay, pinned, now_ns, stats.memory_bytes);
	count_bytes(replay, resident, now_ns, stats.resident_bytes);
	count_bytes(replay, spilled, now_ns, stats.spilled_bytes);
}

void replay_trace_end(struct replay *replay)
{
	struct actmem_counters counters;

	if (!replay->trace)
		return;
	/* Transfers of dropped blocks have ended since the last write. */
	write_events(replay);
	ACTMEM_INIT(&counters);
	if (!actmem_get_counters(replay->am, &counters))
		count_bytes(replay, pinned, clock_ns(), counters.region_bytes);
	free_trace(replay->trace);
	replay->trace = NULL;
}
