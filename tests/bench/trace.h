/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What training steps of published models take and give: forward the layers take
 * what their policy saves, backward they give it in reverse order.
 */
#ifndef BENCH_TRACE_H
#define BENCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One line of models.csv: the model as published. */
struct model {
	char name[32];
	unsigned int layers, hidden, d_ff, q_heads, kv_heads, head_dim;
};

struct event {
	uint32_t block;			/* which of the trace's blocks */
	bool gives;			/* false: takes */
};

struct trace {
	size_t blocks;			/* at most so many are live */
	uint64_t *bytes;		/* of each */
	size_t events;
	struct event *event;
	uint64_t live_peak;		/* most bytes that are live at once */
};

enum saved {
	SAVED_QKV,			/* query, key and value */
	SAVED_ALL,			/* also what the projections and the attention's softmax give */
};

/* A step over so many tokens, in bfloat16. */
struct trace trace_step(const struct model *model, enum saved saved, uint64_t tokens);

/*
 * A pipeline's stage that has up to @depth micro-batches in flight, of @count
 * lengths in turn: after the first ones a forward pass follows each backward pass.
 */
struct trace trace_pipeline(const struct model *model, unsigned int depth,
			    const uint64_t *tokens, unsigned int count);

void trace_free(struct trace *trace);

/*
 * What both of the heap's programs do: @measure for each model of the file that the arguments
 * name, or for one in a smoke run, with memory that any machine has. The exit status.
 */
int trace_models(int argc, char **argv, int (*measure)(const struct model *model));

/* A heap of lazy regions, as nobody touches the blocks; says why there is none. */
struct actmem_heap *trace_heap(void);

#endif
