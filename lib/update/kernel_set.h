/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The code of the operations. A file that includes this one selects an instruction set, and defines
 * KERNELS (the name of its struct kernels) and KERNELS_NAME.
 */
#if defined(__x86_64__)
#include <immintrin.h>
#endif
#include <math.h>

#include "update/kernels.h"

#define INLINE	static inline __attribute__((always_inline))

typedef int32_t integers __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t naturals __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t halves __attribute__((vector_size(VECTOR_BYTES / 2)));

#define ONE		((naturals)((vector){} + 1.0F))
#define SIGN_BIT	((naturals){} + 0x80000000U)
#define INFINITY_BITS	((naturals){} + 0x7f800000U)
#define QUIET_BIT	((naturals){} + 0x00400000U)

/* Returns the bits of @a where @mask has a 1, and the bits of @b where @mask has a 0. */
INLINE vector choose(naturals mask, vector a, vector b)
{
	return (vector)((mask & (naturals)a) | (~mask & (naturals)b));
}

INLINE vector one_where(naturals mask)
{
	return (vector)(mask & ONE);
}

INLINE naturals is_true(vector a)
{
	return (naturals)(a != 0.0F);
}

/*
 * Operands that compare equal have the same bits, unless they are zeros of different signs. The
 * minimum is then -0, and the maximum 0.
 */
INLINE vector minimum(vector a, vector b)
{
	vector least = choose((naturals)(a < b), a, b);

	least = (vector)((naturals)least | ((naturals)(a == b) & (naturals)a & SIGN_BIT));
	return choose((naturals)(a != a), a, least);
}

INLINE vector maximum(vector a, vector b)
{
	vector most = choose((naturals)(a > b), a, b);

	most = (vector)((naturals)most & ~((naturals)(a == b) & ~(naturals)a & SIGN_BIT));
	return choose((naturals)(a != a), a, most);
}

INLINE vector sign(vector a)
{
	vector one = (vector)((naturals)one_where(is_true(a)) | ((naturals)a & SIGN_BIT));

	return choose((naturals)(a != a), a, one);
}

INLINE vector square_root(vector a)
{
	unsigned int i;
#if defined(__AVX512F__)
	(void)i;
	return (vector)_mm512_sqrt_ps((__m512)a);
#elif defined(__AVX__)
	union { vector whole; __m256 part[2]; } parts = { a };

	for (i = 0; i < 2; i++)
		parts.part[i] = _mm256_sqrt_ps(parts.part[i]);
	return parts.whole;
#elif defined(__x86_64__)
	union { vector whole; __m128 part[4]; } parts = { a };

	for (i = 0; i < 4; i++)
		parts.part[i] = _mm_sqrt_ps(parts.part[i]);
	return parts.whole;
#else
	for (i = 0; i < VECTOR_LENGTH; i++)
		a[i] = sqrtf(a[i]);
	return a;
#endif
}

INLINE vector widen(halves a)
{
	return (vector)(__builtin_convertvector(a, naturals) << 16);
}

/*
 * Rounds to the nearest bfloat16 (ties to even). The upper 16 bits of the result are the bfloat16;
 * the lower 16 bits are undefined. A NaN remains a NaN.
 */
INLINE naturals round_bits(vector a)
{
	naturals bits = (naturals)a, is_nan = (naturals)(a != a);
	naturals rounded = bits + 0x7fff + ((bits >> 16) & 1);

	return (is_nan & (bits | QUIET_BIT)) | (~is_nan & rounded);
}

/*
 * Numbers from 2^23 on have no fraction. Converting a smaller number to an int drops its fraction.
 */
INLINE vector truncate_small(vector a, naturals is_small)
{
	vector small = (vector)((naturals)a & is_small);

	return __builtin_convertvector(__builtin_convertvector(small, integers), vector);
}

INLINE naturals is_below_2_23(vector a)
{
	return (naturals)((vector)((naturals)a & ~SIGN_BIT) < 8388608.0F);
}

/*
 * If @a is small, returns @truncated with the sign of @a, because a truncated 0 has lost its sign.
 * Otherwise returns @a.
 */
INLINE vector whole(vector a, vector truncated, naturals is_small)
{
	truncated = (vector)((naturals)truncated | ((naturals)a & SIGN_BIT));
	return choose(is_small, truncated, a);
}

INLINE vector floor_of(vector a)
{
	naturals is_small = is_below_2_23(a);
	vector cut = truncate_small(a, is_small);

	return whole(a, cut - one_where((naturals)(cut > a)), is_small);
}

INLINE vector ceil_of(vector a)
{
	naturals is_small = is_below_2_23(a);
	vector cut = truncate_small(a, is_small);

	return whole(a, cut + one_where((naturals)(cut < a)), is_small);
}

INLINE void stream(vector *to, vector value)
{
#if defined(__AVX512F__)
	_mm512_stream_ps((float *)to, (__m512)value);
#elif defined(__x86_64__)
	union { vector whole; __m128 part[4]; } parts = { value };
	unsigned int i;

	for (i = 0; i < 4; i++)
		_mm_stream_ps((float *)to + 4 * i, parts.part[i]);
#else
	*to = value;
#endif
}

INLINE halves narrow(vector value)
{
	return __builtin_convertvector(round_bits(value) >> 16, halves);
}

/* Rounds two vectors of float32 to one vector of bfloat16. */
INLINE vector narrow_two(const vector_at *from)
{
	return (vector)__builtin_shufflevector(
		narrow(from[0]), narrow(from[1]), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14,
		15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
}

/* Moves the addresses in @values to the next block. */
INLINE void advance(struct values *values, const struct steps *steps)
{
	uint32_t i;

	for (i = 0; i < steps->input_count; i++) {
		values->inputs[i] += steps->input_bytes[i];
		if (!steps->is_widened[i])
			values->at[i] = (const vector_at *)values->inputs[i];
	}
	for (i = 0; i < steps->output_count; i++)
		values->outputs[i] += steps->output_bytes[i];
}

/*
 * Most steps wait mainly for loads. So each step has a second form for operands @b and @d that are
 * scalars or constants. This form loads @b and @d only once for all vectors of a block.
 */
#define EACH(count, statement)							\
	do {									\
		_Pragma("GCC unroll 8")						\
		for (i = 0; i < (count); i++)					\
			statement;						\
	} while (0)
#define CASE(code, result)							\
	case code:								\
		EACH(BLOCK_VECTORS, {						\
			b = at_b[i];						\
			d = at_d[i];						\
			to[i] = (result);					\
		});								\
		break;								\
	case (code) + STEP_REPEATED:						\
		b = at_b[0];							\
		d = at_d[0];							\
		EACH(BLOCK_VECTORS, to[i] = (result));				\
		break;
#define A	at_a[i]
#define B	b
#define C	at_c[i]
#define D	d
#define LINKED(code, f)								\
	CASE(STEP_LINKED + LINKED_CODES * (code) + UPDATE_ADD, (A f B) + C)	\
	CASE(STEP_LINKED + LINKED_CODES * (code) + UPDATE_SUB, (A f B) - C)	\
	CASE(STEP_LINKED + LINKED_CODES * (code) + UPDATE_MUL, (A f B) * C)	\
	CASE(STEP_LINKED + LINKED_CODES * (code) + UPDATE_DIV, (A f B) / C)	\
	CASE(STEP_SUB_OF + (code), C - (A f B))					\
	CASE(STEP_DIV_OF + (code), C / (A f B))

INLINE void compute_step(struct values *values, const struct step *step)
{
	const vector_at *at_a = values->at[step->a], *at_b = values->at[step->b];
	const vector_at *at_c = values->at[step->c], *at_d = values->at[step->d];
	vector *to = values->room[step->to];
	const half_at *input;
	vector_at *output;
	half_at *halves_at;
	vector b, d;
	unsigned int i;

	switch (step->code) {
	CASE(UPDATE_ADD, A + B)
	CASE(UPDATE_SUB, A - B)
	CASE(UPDATE_MUL, A * B)
	CASE(UPDATE_DIV, A / B)
	CASE(UPDATE_SQRT, square_root(A))
	CASE(UPDATE_RSQRT, 1.0F / square_root(A))
	CASE(UPDATE_NEG, (vector)((naturals)A ^ SIGN_BIT))
	CASE(UPDATE_ABS, (vector)((naturals)A & ~SIGN_BIT))
	CASE(UPDATE_SIGN, sign(A))
	CASE(UPDATE_MIN, minimum(A, B))
	CASE(UPDATE_MAX, maximum(A, B))
	CASE(UPDATE_SELECT, choose(is_true(A), B, C))
	CASE(UPDATE_EQ, one_where((naturals)(A == B)))
	CASE(UPDATE_NE, one_where((naturals)(A != B)))
	CASE(UPDATE_LT, one_where((naturals)(A < B)))
	CASE(UPDATE_LE, one_where((naturals)(A <= B)))
	CASE(UPDATE_GT, one_where((naturals)(A > B)))
	CASE(UPDATE_GE, one_where((naturals)(A >= B)))
	CASE(UPDATE_AND, one_where(is_true(A) & is_true(B)))
	CASE(UPDATE_OR, one_where(is_true(A) | is_true(B)))
	CASE(UPDATE_NOT, one_where(~is_true(A)))
	CASE(UPDATE_ISFINITE,
	     one_where((naturals)(((naturals)A & INFINITY_BITS) != INFINITY_BITS)))
	CASE(UPDATE_ROUND_BF16, (vector)(round_bits(A) & 0xffff0000U))
	CASE(UPDATE_FLOOR, floor_of(A))
	CASE(UPDATE_CEIL, ceil_of(A))
	LINKED(UPDATE_ADD, +)
	LINKED(UPDATE_SUB, -)
	LINKED(UPDATE_MUL, *)
	LINKED(UPDATE_DIV, /)
	CASE(STEP_MUL_MUL_ADD, (A * B) + (C * D))
	CASE(STEP_MUL_MUL_SUB, (A * B) - (C * D))
	CASE(STEP_SQRT_ADD, square_root(A) + B)
	case STEP_WIDEN:
		input = (const half_at *)values->inputs[step->a];
		EACH(BLOCK_VECTORS, to[i] = widen(input[i]));
		break;
	case STEP_STORE_F32:
		output = (vector_at *)values->outputs[step->to];
		EACH(BLOCK_VECTORS, output[i] = A);
		break;
	case STEP_STORE_BF16:
		halves_at = (half_at *)values->outputs[step->to];
		EACH(BLOCK_VECTORS, halves_at[i] = narrow(A));
		break;
	case STEP_STREAM_F32:
		to = (vector *)values->outputs[step->to];
		EACH(BLOCK_VECTORS, stream(&to[i], A));
		break;
	case STEP_STREAM_BF16:
		to = (vector *)values->outputs[step->to];
		EACH(BLOCK_VECTORS / 2, stream(&to[i], narrow_two(&at_a[2 * i])));
		break;
	default:
		__builtin_unreachable();
	}
}

static void compute(struct values *values, const struct steps *steps, uint64_t blocks)
{
	const struct step *step, *end = steps->step + steps->count;

	for (; blocks; blocks--) {
		for (step = steps->step; step < end; step++)
			compute_step(values, step);
		advance(values, steps);
	}
}

const struct kernels KERNELS = { KERNELS_NAME, compute };
