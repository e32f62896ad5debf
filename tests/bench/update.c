/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * AdamW on the host's processors, with a master copy and moments in float32, and gradients and
 * weights in bfloat16: of each parameter, 14 bytes are read and 14 are written. The bounds are a
 * copy of as many bytes, and the triad of STREAM, both by the same threads and with stores that
 * bypass the caches. A processor with few cores for its memory does not reach them: then
 * arithmetic takes longer than the memory bus.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"
#include "update/mode.h"
#include "update/threads.h"
#include "update/update.h"

#define PARAMETERS		((size_t)32 << 20)
#define SMOKE_PARAMETERS	((size_t)1 << 20)
#define ROUNDS			31
#define PIECE			((size_t)32 << 10)	/* parameters */
#define AIM			0.8

enum { GRADIENT, MASTER, FIRST, SECOND, ARRAYS };
enum { WEIGHT };

/* Arrays of 4 bytes for each parameter; those of bfloat16 use half of theirs. */
static struct update_array inputs[ARRAYS], outputs[ARRAYS];
static size_t parameters;
static char why[256];

/* Values: inputs 0-3; scalars 4 (clip), 5, 6 (1 / (1 - beta^t)), 7 (-rate); constants 8-13. */
static const struct update_operation operations[] = {
	{ UPDATE_MUL, 20, GRADIENT, 4, 0 },	/* clipped gradient */
	{ UPDATE_MUL, 21, FIRST, 8, 0 },
	{ UPDATE_MUL, 22, 20, 9, 0 },
	{ UPDATE_ADD, 21, 21, 22, 0 },		/* first moment */
	{ UPDATE_MUL, 20, 20, 20, 0 },
	{ UPDATE_MUL, 20, 20, 11, 0 },
	{ UPDATE_MUL, 22, SECOND, 10, 0 },
	{ UPDATE_ADD, 22, 22, 20, 0 },		/* second moment */
	{ UPDATE_MUL, 23, 22, 6, 0 },
	{ UPDATE_SQRT, 23, 23, 0, 0 },
	{ UPDATE_ADD, 23, 23, 12, 0 },
	{ UPDATE_MUL, 24, 21, 5, 0 },
	{ UPDATE_DIV, 23, 24, 23, 0 },
	{ UPDATE_MUL, 24, MASTER, 13, 0 },
	{ UPDATE_ADD, 23, 23, 24, 0 },
	{ UPDATE_MUL, 23, 23, 7, 0 },
	{ UPDATE_ADD, 23, 23, MASTER, 0 },	/* master weight */
};
static const float constants[] = { 0.9F, 1 - 0.9F, 0.999F, 1 - 0.999F, 1e-8F, 0.01F };
static const float scalars[] = { 0.5F, 1 / (1 - 0.81F), 1 / (1 - 0.998F), -1e-3F };
/* WEIGHT, master weight, first and second moment. */
static const int32_t results[] = { 23, 23, 21, 22 };
static const struct update_program adamw = {
	.input_count = ARRAYS, .scalar_count = 4, .constant_count = 6, .output_count = ARRAYS,
	.operation_count = sizeof(operations) / sizeof(operations[0]),
	.constants = constants, .operations = operations, .outputs = results,
};


static double update(const struct contest *contest)
{
	double begin = bench_seconds();

	if (update_run(&adamw, inputs, scalars, outputs, parameters, ALL_NODES, why, sizeof(why)))
		return bench_fail(why);
	return bench_seconds() - begin;
}

struct loop {
	void (*piece)(size_t first, size_t count);
	_Atomic size_t taken;
};

static void take_pieces(void *data)
{
	struct loop *loop = data;
	size_t first;

	for (;;) {
		first = atomic_fetch_add(&loop->taken, PIECE);
		if (first >= parameters)
			break;
		loop->piece(first, parameters - first < PIECE ? parameters - first : PIECE);
	}
	mode_fence();
}

static double run_loop(void (*piece)(size_t first, size_t count))
{
	struct loop loop = { .piece = piece };
	double begin = bench_seconds();

	if (threads_run(ALL_NODES, take_pieces, &loop, 8192, why, sizeof(why)))
		return bench_fail(why);
	return bench_seconds() - begin;
}

static float *f32(const struct update_array *array, size_t first)
{
	return (float *)array->memory + first;
}

/* Stores @b, or @b + 3 @c, past the caches. All have the alignment of a cache line. */
#define STREAM_LOOP(isa, type, load, store)						\
	static __attribute__((target(#isa))) void stream_##isa(float *to, const float *b,	\
							       const float *c, size_t count)	\
	{										\
		size_t i;								\
											\
		for (i = 0; i < count; i += sizeof(type) / sizeof(float))		\
			store(to + i, c ? (type)(load(b + i) + 3 * load(c + i)) : load(b + i)); \
	}

STREAM_LOOP(avx512f, __m512, _mm512_load_ps, _mm512_stream_ps)
STREAM_LOOP(avx2, __m256, _mm256_load_ps, _mm256_stream_ps)
STREAM_LOOP(sse2, __m128, _mm_load_ps, _mm_stream_ps)

static void stream(float *to, const float *b, const float *c, size_t count)
{
	if (__builtin_cpu_supports("avx512f"))
		stream_avx512f(to, b, c, count);
	else if (__builtin_cpu_supports("avx2"))
		stream_avx2(to, b, c, count);
	else
		stream_sse2(to, b, c, count);
}

/* Copies three and a half arrays. */
static void copy_piece(size_t first, size_t count)
{
	size_t array;

	for (array = 0; array < ARRAYS; array++)
		stream(f32(&outputs[array], first), f32(&inputs[array], first), NULL,
		       array == WEIGHT ? count / 2 : count);
}

/* Moves 12 bytes for each element. */
static void triad_piece(size_t first, size_t count)
{
	stream(f32(&outputs[MASTER], first), f32(&inputs[FIRST], first),
	       f32(&inputs[SECOND], first), count);
}

static double copy(const struct contest *contest)
{
	return run_loop(copy_piece);
}

static double triad(const struct contest *contest)
{
	return run_loop(triad_piece) * 28 / 12;
}

static const struct contest contests[] = {
	{ "AdamW on the host", "a copy of 28 bytes a parameter", "ns/parameter", 0, ROUNDS, update,
	  copy, AIM },
	{ "AdamW on the host", "STREAM triad, as many bytes", "ns/parameter", 0, ROUNDS, update,
	  triad, AIM },
};

static bool make_array(struct update_array *array, enum update_type type)
{
	size_t bytes = parameters * sizeof(float);

	array->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			     0);
	if (array->memory == MAP_FAILED)
		return false;
	madvise(array->memory, bytes, MADV_HUGEPAGE);
	array->type = type;
	memset(array->memory, 0x3c, bytes);
	return true;
}

int main(int argc, char **argv)
{
	struct contest contest;
	unsigned int i;

	bench_begin(argc, argv, NULL);
	parameters = bench_size(PARAMETERS, SMOKE_PARAMETERS);
	if (update_check(&adamw, why, sizeof(why))) {
		bench_fail(why);
		return 1;
	}
	for (i = 0; i < ARRAYS; i++) {
		if (!make_array(&inputs[i], i == GRADIENT ? UPDATE_BF16 : UPDATE_F32) ||
		    !make_array(&outputs[i], i == WEIGHT ? UPDATE_BF16 : UPDATE_F32)) {
			bench_fail("mmap");
			return 1;
		}
	}
	for (i = 0; i < sizeof(contests) / sizeof(contests[0]); i++) {
		contest = contests[i];
		contest.bytes = parameters;
		if (bench_run(&contest))
			return 1;
	}
	return 0;
}
