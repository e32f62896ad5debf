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

#define MODELS_MOST	16
#define STEPS		3

static struct actmem *am;

/* What the regions had, or 0. */
static uint64_t peak_of_heap(const struct trace *trace)
{
	void **blocks = calloc(trace->blocks, sizeof(void *));
	struct actmem_region_options region;
	struct actmem_heap_options options;
	struct actmem_heap_stats stats;
	struct actmem_heap *heap;
	int step, error;
	size_t i;

	ACTMEM_INIT(&stats);
	ACTMEM_INIT(&options);
	ACTMEM_INIT(&region);
	region.flags = ACTMEM_REGION_LAZY;
	options.region = &region;
	error = actmem_heap_create(am, &options, &heap);
	for (step = 0; step < STEPS && blocks; step++) {
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

int main(int argc, char **argv)
{
	/* Text is seldom as long as a power of two. */
	static const uint64_t lengths[] = { 4096, 3000, 3750, 2222 };
	const char *path = bench_begin(argc, argv, "MODELS.csv");
	struct model models[MODELS_MOST];
	int count = models_read(path, models, MODELS_MOST), status = count < 0, i;
	struct actmem_options options;

	ACTMEM_INIT(&options);
	options.backend = ACTMEM_BACKEND_MEMFD;
	options.pages = ACTMEM_PAGES_4K;
	options.allow = ACTMEM_ALLOW_UNLOCKED;
	if (actmem_open(&am, &options)) {
		fprintf(stderr, "bench: %s\n", actmem_error());
		return 1;
	}
	for (i = 0; i < count; i++) {
		const struct model *model = &models[i];

		status |= measure("qkv", model->name, trace_step(model, SAVED_QKV, 4096));
		status |= measure("qkv3000", model->name, trace_step(model, SAVED_QKV, 3000));
		if (bench_is_smoke)
			break;
		status |= measure("all", model->name, trace_step(model, SAVED_ALL, 4096));
		status |= measure("pipeline", model->name,
				  trace_pipeline(model, 2, lengths, 4));
	}
	return actmem_close(am) ? 1 : status;
}
