/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The code of the operations. A file that includes this one selects an instruction set, and defines
 * KERNELS, the name of its struct kernels, and KERNELS_NAME.
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

/* Where @mask has ones @a, elsewhere @b. */
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

/* Each operand equals the other only if both are alike or zeros, which differ in the sign. */
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

/* Adds half of the last place, less a bit if that makes a tie even. A NaN stays one. */
INLINE naturals round_bits(vector a)
{
	naturals bits = (naturals)a, is_nan = (naturals)(a != a);
	naturals rounded = bits + 0x7fff + ((bits >> 16) & 1);

	return ((is_nan & (bits | QUIET_BIT)) | (~is_nan & rounded)) & 0xffff0000U;
}

/* From 2^23 on, each number is whole. Below, an int has the number without its fraction. */
INLINE vector truncate_small(vector a, naturals is_small)
{
	vector small = (vector)((naturals)a & is_small);

	return __builtin_convertvector(__builtin_convertvector(small, integers), vector);
}

INLINE naturals is_below_2_23(vector a)
{
	return (naturals)((vector)((naturals)a & ~SIGN_BIT) < 8388608.0F);
}

/* Keeps the sign of @a, which a result of 0 would lose. */
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

#define KERNEL(name, result)							\
static void kernel_##name(vector *to, const struct operand *operands, size_t count) \
{										\
	const vector_at *at_a = operands[0].at, *at_b = operands[1].at;		\
	const vector_at *at_c = operands[2].at;					\
	size_t i;								\
										\
	_Pragma("GCC unroll 4")							\
	for (i = 0; i < count; i++) {						\
		vector a = *at_a, b = *at_b, c = *at_c;				\
										\
		(void)b, (void)c;						\
		to[i] = (result);						\
		at_a += operands[0].step;					\
		at_b += operands[1].step;					\
		at_c += operands[2].step;					\
	}									\
}

KERNEL(add, a + b)
KERNEL(sub, a - b)
KERNEL(mul, a * b)
KERNEL(div, a / b)
KERNEL(sqrt, square_root(a))
KERNEL(rsqrt, 1.0F / square_root(a))
KERNEL(neg, (vector)((naturals)a ^ SIGN_BIT))
KERNEL(abs, (vector)((naturals)a & ~SIGN_BIT))
KERNEL(sign, sign(a))
KERNEL(min, minimum(a, b))
KERNEL(max, maximum(a, b))
KERNEL(select, choose(is_true(a), b, c))
KERNEL(eq, one_where((naturals)(a == b)))
KERNEL(ne, one_where((naturals)(a != b)))
KERNEL(lt, one_where((naturals)(a < b)))
KERNEL(le, one_where((naturals)(a <= b)))
KERNEL(gt, one_where((naturals)(a > b)))
KERNEL(ge, one_where((naturals)(a >= b)))
KERNEL(and, one_where(is_true(a) & is_true(b)))
KERNEL(or, one_where(is_true(a) | is_true(b)))
KERNEL(not, one_where(~is_true(a)))
KERNEL(isfinite, one_where((naturals)(((naturals)a & INFINITY_BITS) != INFINITY_BITS)))
KERNEL(round_bf16, (vector)round_bits(a))
KERNEL(floor, floor_of(a))
KERNEL(ceil, ceil_of(a))

static void widen(vector *to, const half_at *from, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		to[i] = (vector)(__builtin_convertvector((halves)from[i], naturals) << 16);
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

static void store_f32(void *to, const struct operand *from, size_t count)
{
	const vector_at *at = from->at;
	vector_at *plain = to;
	vector *streamed = to;
	size_t i;

	if ((uintptr_t)to % VECTOR_BYTES) {
		for (i = 0; i < count; i++, at += from->step)
			plain[i] = *at;
		return;
	}
	for (i = 0; i < count; i++, at += from->step)
		stream(&streamed[i], *at);
}

/* Two vectors of float32 make one of bfloat16. */
static void store_bf16(void *to, const struct operand *from, size_t count)
{
	union { halves part[2]; vector whole; } pair;
	const vector_at *at = from->at;
	half_at *plain = to;
	size_t i = 0;

	for (; !((uintptr_t)to % VECTOR_BYTES) && i + 2 <= count; i += 2, at += 2 * from->step) {
		pair.part[0] = narrow(at[0]);
		pair.part[1] = narrow(at[from->step]);
		stream((vector *)&plain[i], pair.whole);
	}
	for (; i < count; i++, at += from->step)
		plain[i] = narrow(*at);
}

const struct kernels KERNELS = {
	.name = KERNELS_NAME,
	.operations = {
		[UPDATE_ADD] = kernel_add,
		[UPDATE_SUB] = kernel_sub,
		[UPDATE_MUL] = kernel_mul,
		[UPDATE_DIV] = kernel_div,
		[UPDATE_SQRT] = kernel_sqrt,
		[UPDATE_RSQRT] = kernel_rsqrt,
		[UPDATE_NEG] = kernel_neg,
		[UPDATE_ABS] = kernel_abs,
		[UPDATE_SIGN] = kernel_sign,
		[UPDATE_MIN] = kernel_min,
		[UPDATE_MAX] = kernel_max,
		[UPDATE_SELECT] = kernel_select,
		[UPDATE_EQ] = kernel_eq,
		[UPDATE_NE] = kernel_ne,
		[UPDATE_LT] = kernel_lt,
		[UPDATE_LE] = kernel_le,
		[UPDATE_GT] = kernel_gt,
		[UPDATE_GE] = kernel_ge,
		[UPDATE_AND] = kernel_and,
		[UPDATE_OR] = kernel_or,
		[UPDATE_NOT] = kernel_not,
		[UPDATE_ISFINITE] = kernel_isfinite,
		[UPDATE_ROUND_BF16] = kernel_round_bf16,
		[UPDATE_FLOOR] = kernel_floor,
		[UPDATE_CEIL] = kernel_ceil,
	},
	.widen = widen,
	.store_f32 = store_f32,
	.store_bf16 = store_bf16,
};
