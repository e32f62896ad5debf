// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The most memory that a heap's regions had, as a multiple of the most bytes that
 * were live, over some training steps, beside what pools of other rules would
 * have had. The regions are lazy, as nobody touches the blocks.
 *
 *   heap_peak [--smoke] MODELS.csv
 */
#include <stdio.h>
#include <stdlib.h>

#include "actmem.h"
#include "bench.h"
#include "pools.h"
#include "trace.h"

#define STEPS		3

/* What the regions had, or 0. */
static uint64_t peak_of_heap(const struct trace *trace)
{
	void **blocks = calloc(trace->blocks, sizeof(void *));
	struct actmem_heap_stats stats = { .size = sizeof(stats) };
	struct actmem_heap *heap = trace_heap();
	int step, error = 0;
	size_t i;

	for (step = 0; step < STEPS && blocks && heap; step++) {
		for (i = 0; i < trace->events && !error; i++) {
			void **block = &blocks[trace->event[i].block];

			if (trace->event[i].gives)
				error = actmem_heap_free(heap, *block);
			else
				error = actmem_heap_alloc(heap, trace->bytes[trace->event[i].block],
							  0, block);
		}
	}
	free(blocks);
	if (!heap)
		return 0;
	if (!error)
		error = actmem_heap_get_stats(heap, &stats);
	if (!error)
		error = actmem_heap_destroy(heap);
	if (error)
		fprintf(stderr, "bench: %s\n", actmem_error());
	return error ? 0 : stats.region_bytes_peak;
}

static void tell(const char *kind, const char *model, const char *peer_name,
		 const struct trace *trace, uint64_t ours, uint64_t peer)
{
	double live = (double)trace->live_peak;

	printf("{\"bench\": \"heap_peak_%s_%s\", \"peer_name\": \"%s\", \"unit\": \"peak/live\", \"ours\": %.6f, \"peer\": %.6f}\n",
	       kind, model, peer_name, (double)ours / live, (double)peer / live);
}

static int measure(const char *kind, const char *model, struct trace trace)
{
	uint64_t ours = peak_of_heap(&trace);

	if (ours) {
		tell(kind, model, "doubling best-fit pool", &trace, ours,
		     pool_doubling(&trace, STEPS));
		tell(kind, model, "power-of-two rounding", &trace, ours,
		     pool_powers_of_two(&trace, STEPS));
	}
	trace_free(&trace);
	return !ours;
}

static int measure_model(const struct model *model)
{
	/* Text is seldom as long as a power of two. */
	static const uint64_t lengths[] = { 4096, 3000, 3750, 2222 };
	int status = measure("qkv", model->name, trace_step(model, SAVED_QKV, 4096));

	status |= measure("qkv3000", model->name, trace_step(model, SAVED_QKV, 3000));
	if (bench_is_smoke)
		return status;
	status |= measure("all", model->name, trace_step(model, SAVED_ALL, 4096));
	return status | measure("pipeline", model->name, trace_pipeline(model, 2, lengths, 4));
}

int main(int argc, char **argv)
{
	return trace_models(argc, argv, measure_model);
}
