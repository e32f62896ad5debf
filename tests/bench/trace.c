// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Traces of models; see trace.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actmem.h"
#include "bench.h"
#include "trace.h"

#define MODELS_MOST	16
#define BFLOAT16	2
#define FLOAT32		4
#define PER_LAYER_MOST	8

static struct actmem *am;

static int models_read(const char *path, struct model *models, int most)
{
	FILE *file = fopen(path, "re");
	char line[256];
	int count = 0;

	if (!file) {
		perror(path);
		return -1;
	}
	while (count < most && fgets(line, sizeof(line), file)) {
		struct model *m = &models[count];

		/* A comment, or the names of the columns. */
		if (line[0] == '#' || !strncmp(line, "model,", 6))
			continue;
		if (sscanf(line, "%31[^,],%u,%u,%u,%u,%u,%u", m->name, &m->layers, &m->hidden,
			   &m->d_ff, &m->q_heads, &m->kv_heads, &m->head_dim) != 7) {
			fprintf(stderr, "%s: not a line of a model: %s", path, line);
			count = -1;
			break;
		}
		count++;
	}
	fclose(file);
	return count;
}

/* Bytes of what a layer saves, in the order in which it is made; how many there are. */
static unsigned int layer_bytes(const struct model *m, enum saved saved, uint64_t tokens,
				uint64_t bytes[PER_LAYER_MOST])
{
	uint64_t kv = tokens * m->kv_heads * m->head_dim * BFLOAT16;
	unsigned int count = 0;

	bytes[count++] = tokens * m->q_heads * m->head_dim * BFLOAT16;
	bytes[count++] = kv;
	bytes[count++] = kv;
	if (saved == SAVED_QKV)
		return count;
	bytes[count++] = tokens * m->q_heads * FLOAT32;
	bytes[count++] = tokens * m->hidden * BFLOAT16;
	bytes[count++] = tokens * m->d_ff * BFLOAT16;
	bytes[count++] = tokens * m->d_ff * BFLOAT16;
	bytes[count++] = tokens * m->hidden * BFLOAT16;
	return count;
}

static struct trace make_trace(size_t blocks, size_t events)
{
	struct trace trace = {
		.blocks = blocks,
		.bytes = calloc(blocks, sizeof(*trace.bytes)),
		.event = calloc(events, sizeof(*trace.event)),
	};

	if (!trace.bytes || !trace.event) {
		perror("no memory for a trace");
		exit(1);
	}
	return trace;
}

static void find_peak(struct trace *trace)
{
	uint64_t live = 0;
	size_t i;

	for (i = 0; i < trace->events; i++) {
		const struct event *event = &trace->event[i];

		live += event->gives ? -trace->bytes[event->block] : trace->bytes[event->block];
		if (live > trace->live_peak)
			trace->live_peak = live;
	}
}

/* The blocks from @first on, taken in order or given in reverse order. */
static void add_pass(struct trace *trace, uint32_t first, unsigned int count, bool gives)
{
	unsigned int i;

	for (i = 0; i < count; i++) {
		uint32_t block = first + (gives ? count - 1 - i : i);

		trace->event[trace->events++] = (struct event){ block, gives };
	}
}

/* The blocks of a micro-batch. */
static unsigned int set_bytes(const struct trace *trace, uint32_t first, const struct model *m,
			      enum saved saved, uint64_t tokens)
{
	uint64_t bytes[PER_LAYER_MOST];
	unsigned int each = layer_bytes(m, saved, tokens, bytes), layer;

	for (layer = 0; layer < m->layers; layer++)
		memcpy(&trace->bytes[first + layer * each], bytes, each * sizeof(bytes[0]));
	return each * m->layers;
}

struct trace trace_step(const struct model *model, enum saved saved, uint64_t tokens)
{
	uint64_t bytes[PER_LAYER_MOST];
	unsigned int each = layer_bytes(model, saved, tokens, bytes);
	struct trace trace = make_trace((size_t)each * model->layers,
					(size_t)each * model->layers * 2);
	unsigned int count = set_bytes(&trace, 0, model, saved, tokens);

	add_pass(&trace, 0, count, false);
	add_pass(&trace, 0, count, true);
	find_peak(&trace);
	return trace;
}

struct trace trace_pipeline(const struct model *model, unsigned int depth, const uint64_t *tokens,
			    unsigned int count)
{
	unsigned int batches = depth * count, each = model->layers * 3, i;
	struct trace trace = make_trace((size_t)each * batches, (size_t)each * batches * 2);

	for (i = 0; i < batches; i++)
		set_bytes(&trace, i * each, model, SAVED_QKV, tokens[i % count]);
	for (i = 0; i < batches + depth; i++) {
		if (i >= depth)
			add_pass(&trace, (i - depth) * each, each, true);
		if (i < batches)
			add_pass(&trace, i * each, each, false);
	}
	find_peak(&trace);
	return trace;
}

void trace_free(struct trace *trace)
{
	free(trace->bytes);
	free(trace->event);
}

int trace_models(int argc, char **argv, int (*measure)(const struct model *model))
{
	const char *path = bench_begin(argc, argv, "MODELS.csv");
	struct model models[MODELS_MOST];
	int count = models_read(path, models, MODELS_MOST), status = count < 0, i;
	struct actmem_options options = {
		.size = sizeof(options), .backend = ACTMEM_BACKEND_MEMFD, .pages = ACTMEM_PAGES_4K,
		.allow = ACTMEM_ALLOW_UNLOCKED,
	};

	if (actmem_open(&am, &options)) {
		fprintf(stderr, "bench: %s\n", actmem_error());
		return 1;
	}
	if (bench_is_smoke && count > 1)
		count = 1;
	for (i = 0; i < count; i++)
		status |= measure(&models[i]);
	return actmem_close(am) ? 1 : status;
}

struct actmem_heap *trace_heap(void)
{
	struct actmem_region_options region = { .size = sizeof(region), .flags = ACTMEM_REGION_LAZY };
	struct actmem_heap_options options = { .size = sizeof(options), .region = &region };
	struct actmem_heap *heap;

	if (!actmem_heap_create(am, &options, &heap))
		return heap;
	fprintf(stderr, "bench: %s\n", actmem_error());
	return NULL;
}
