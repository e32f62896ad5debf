/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The arithmetic of programs: each operation against a plain function, on every instruction set of
 * this processor; arrays of all lengths, types and alignments; and optimizers against float64.
 */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "update/kernels.h"
#include "update/mode.h"
#include "update/update.h"

#define COUNT_OF(array)	(sizeof(array) / sizeof((array)[0]))

#define F32(memory)	{ (memory), UPDATE_F32 }
#define BF16(memory)	{ (memory), UPDATE_BF16 }
#define ONE(array)	(&(struct update_array)array)

static const char *const sets[] = { "baseline", "avx2", "avx512" };

static uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float of_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t random_bits(void)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return (uint32_t)(state >> 32);
}

static int32_t random_below(uint32_t bound)
{
	return (int32_t)(random_bits() % bound);
}

/* Numbers of all magnitudes, most of them such that results are neither 0 nor infinite. */
static float random_float(void)
{
	uint32_t bits = random_bits();

	if (bits % 4)
		bits = (bits & 0x807fffff) | ((112 + (bits >> 8) % 32) << 23);
	return of_bits(bits);
}

static uint16_t bf16_of(float value)
{
	uint32_t bits = bits_of(value);

	if (isnan(value))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float of_bf16(uint16_t half)
{
	return of_bits((uint32_t)half << 16);
}

static void run(const struct update_program *program, const struct update_array *inputs,
		const float *scalars, const struct update_array *outputs, uint64_t count)
{
	char words[256] = "";

	if (update_check(program, words, sizeof(words)) ||
	    update_run(program, inputs, scalars, outputs, count, -1, words, sizeof(words)))
		fail_msg("%s", words);
}

static const float special[] = {
	0, -0.0F, 1, -1, INFINITY, -INFINITY, NAN, 0x1p-149F, -0x1p-149F, 0x1p-126F, -0x1p-126F,
	0x1.fffffcp-127F, 0x1.fffffep127F, -0x1.fffffep127F, 8388607.5F, -8388607.5F, 8388608,
	-8388609, 2147483648, 0.5F, -0.5F, 1.5F, 2.5F, 0.99999994F, -0.99999994F, 1.00390625F,
	1.01171875F, 0x1.ff0002p127F, 3, 1e-38F, 1e30F, -1e30F,
};

static bool is_any_nan(float a, float b)
{
	return isnan(a) || isnan(b);
}

/* The operations as plain C. A NaN of the result is compared as such, whatever its bits. */
static float plain(enum update_code code, float a, float b, float c)
{
	switch (code) {
	case UPDATE_ADD: return a + b;
	case UPDATE_SUB: return a - b;
	case UPDATE_MUL: return a * b;
	case UPDATE_DIV: return a / b;
	case UPDATE_SQRT: return sqrtf(a);
	case UPDATE_RSQRT: return 1 / sqrtf(a);
	case UPDATE_NEG: return -a;
	case UPDATE_ABS: return fabsf(a);
	case UPDATE_SIGN: return a > 0 ? 1 : a < 0 ? -1 : isnan(a) ? a : copysignf(0, a);
	case UPDATE_MIN: return is_any_nan(a, b) ? NAN : a < b || (a == b && signbit(a)) ? a : b;
	case UPDATE_MAX: return is_any_nan(a, b) ? NAN : a > b || (a == b && signbit(b)) ? a : b;
	case UPDATE_SELECT: return a != 0 ? b : c;
	case UPDATE_EQ: return a == b;
	case UPDATE_NE: return a != b;
	case UPDATE_LT: return a < b;
	case UPDATE_LE: return a <= b;
	case UPDATE_GT: return a > b;
	case UPDATE_GE: return a >= b;
	case UPDATE_AND: return a != 0 && b != 0;
	case UPDATE_OR: return a != 0 || b != 0;
	case UPDATE_NOT: return a == 0;
	case UPDATE_ISFINITE: return isfinite(a);
	case UPDATE_ROUND_BF16: return of_bf16(bf16_of(a));
	case UPDATE_FLOOR: return floorf(a);
	case UPDATE_CEIL: return ceilf(a);
	default: return NAN;
	}
}

static unsigned int operands_of(enum update_code code)
{
	switch (code) {
	case UPDATE_SELECT:
		return 3;
	case UPDATE_SQRT: case UPDATE_RSQRT: case UPDATE_NEG: case UPDATE_ABS: case UPDATE_SIGN:
	case UPDATE_NOT: case UPDATE_ISFINITE: case UPDATE_ROUND_BF16: case UPDATE_FLOOR:
	case UPDATE_CEIL:
		return 1;
	default:
		return 2;
	}
}

static bool is_denormal(float value)
{
	uint32_t bits = bits_of(value) & 0x7fffffff;	/* in any mode */

	return bits && bits < 0x00800000;
}

/*
 * Operations that move bits, and do not compute, may leave a denormal as it is: it counts as 0 in
 * the next operation.
 */
static bool is_same(float got, float expected)
{
	if (isnan(got) || isnan(expected))
		return isnan(got) && isnan(expected);
	if (is_denormal(got) || is_denormal(expected))
		return fabsf(got) < 0x1p-126F && fabsf(expected) < 0x1p-126F;
	return bits_of(got) == bits_of(expected);
}

#define SPECIALS	COUNT_OF(special)
#define PAIRS		(SPECIALS * SPECIALS)
#define OPERANDS	(PAIRS + 4003)

static float operands[3][OPERANDS], result[OPERANDS];

static void make_operands(void)
{
	size_t i;

	for (i = 0; i < OPERANDS; i++) {
		operands[0][i] = i < PAIRS ? special[i / SPECIALS] : random_float();
		operands[1][i] = i < PAIRS ? special[i % SPECIALS] : random_float();
		operands[2][i] = i < PAIRS ? special[(i * 7 + 3) % SPECIALS] : random_float();
	}
}

static void check_code(const char *set, enum update_code code)
{
	unsigned int count = operands_of(code);
	const struct update_operation operation = { code, 3, 0, count > 1, count > 2 ? 2 : 0 };
	const int32_t output = 3;
	const struct update_program program = {
		.input_count = 3, .output_count = 1, .operation_count = 1,
		.operations = &operation, .outputs = &output,
	};
	const struct update_array arrays[] = { F32(operands[0]), F32(operands[1]),
					       F32(operands[2]) };
	float expected;
	uint64_t mode = mode_get();
	size_t i;

	run(&program, arrays, NULL, ONE(F32(result)), OPERANDS);
	for (i = 0; i < OPERANDS; i++) {
		mode_set(MODE_UPDATE);
		expected = plain(code, operands[0][i], operands[1][i], operands[2][i]);
		mode_set(mode);
		if (!is_same(result[i], expected))
			fail_msg("%s: operation %d (%a, %a, %a) is %a, not %a", set, code,
				 operands[0][i], operands[1][i], operands[2][i], result[i],
				 expected);
	}
}

static void test_codes(void **state)
{
	size_t set;
	int code;

	make_operands();
	for (set = 0; set < COUNT_OF(sets); set++) {
		if (!kernels_use(sets[set]))
			continue;
		for (code = 0; code < UPDATE_CODES; code++)
			check_code(sets[set], code);
	}
	kernels_use(NULL);
}

#define VALUES		12		/* of which the first 5 are inputs, scalars and constants */
#define OPERATIONS	12
#define ELEMENTS	150		/* a block, and a part of one */

/* A program of few values, most of it arithmetic: many of its operations are joined. */
static void make_program(struct update_operation operations[OPERATIONS], int32_t outputs[2])
{
	bool is_known[VALUES] = { true, true, true, true, true };
	int32_t *operand, i;
	unsigned int k;

	for (i = 0; i < OPERATIONS; i++) {
		operations[i] = (struct update_operation){
			random_below(random_below(4) ? UPDATE_SQRT + 1 : UPDATE_CODES),
			5 + random_below(VALUES - 5), 0, 0, 0
		};
		for (k = 0; k < operands_of((enum update_code)operations[i].code); k++) {
			operand = k == 0 ? &operations[i].a : k == 1 ? &operations[i].b :
				  &operations[i].c;
			*operand = random_below(VALUES);
			/* Most operands are the result before, or a moment ago. */
			if (i > 1 && random_below(2))
				*operand = operations[i - 1 - random_below(2)].to;
			if (!is_known[*operand])
				*operand = random_below(5);
		}
		is_known[operations[i].to] = true;
	}
	outputs[0] = operations[OPERATIONS - 1].to;
	outputs[1] = operations[random_below(OPERATIONS)].to;
}

static void check_program(const char *set)
{
	static float in[2][ELEMENTS], out[2][ELEMENTS];
	const struct update_array inputs[] = { F32(in[0]), F32(in[1]) };
	const struct update_array arrays[] = { F32(out[0]), F32(out[1]) };
	struct update_operation operations[OPERATIONS];
	float values[VALUES], numbers[] = { random_float(), random_float(), random_float() };
	int32_t outputs[2];
	struct update_program program = {
		.input_count = 2, .scalar_count = 2, .constant_count = 1, .output_count = 2,
		.operation_count = OPERATIONS, .constants = &numbers[2], .operations = operations,
		.outputs = outputs,
	};
	uint64_t mode = mode_get();
	int i, k;

	make_program(operations, outputs);
	for (i = 0; i < ELEMENTS; i++) {
		in[0][i] = random_float();
		in[1][i] = random_float();
	}
	run(&program, inputs, numbers, arrays, ELEMENTS);
	mode_set(MODE_UPDATE);
	for (i = 0; i < ELEMENTS; i++) {
		values[0] = in[0][i];
		values[1] = in[1][i];
		memcpy(values + 2, numbers, sizeof(numbers));
		for (k = 0; k < OPERATIONS; k++)
			values[operations[k].to] = plain((enum update_code)operations[k].code,
							 values[operations[k].a],
							 values[operations[k].b],
							 values[operations[k].c]);
		for (k = 0; k < 2; k++)
			if (!is_same(out[k][i], values[outputs[k]])) {
				mode_set(mode);
				fail_msg("%s: output %d of element %d is %a, not %a", set, k, i,
					 out[k][i], values[outputs[k]]);
			}
	}
	mode_set(mode);
}

/* Joined operations compute what they compute alone, whatever values they share. */
static void test_programs(void **state)
{
	size_t set;
	int i;

	for (set = 0; set < COUNT_OF(sets); set++)
		for (i = 0; kernels_use(sets[set]) && i < 2000; i++)
			check_program(sets[set]);
	kernels_use(NULL);
}

/* An output equals the value bit for bit, zeros' signs and denormals too. */
static void test_bits(void **state)
{
	static const int32_t outputs[] = { 1, 2, 3 };
	const float minus_zero = -0.0F, third = 1 / 3.0F;
	const struct update_program program = {
		.input_count = 1, .scalar_count = 1, .constant_count = 1, .output_count = 3,
		.operation_count = 1, .constants = &third, .outputs = outputs,
		.operations = &(struct update_operation){ UPDATE_NEG, 3, 0, 0, 0 },
	};
	float in[] = { 0x1p-140F, -0.0F }, out[3][2];
	const struct update_array arrays[] = { F32(out[0]), F32(out[1]), F32(out[2]) };

	run(&program, ONE(F32(in)), &minus_zero, arrays, 2);
	assert_int_equal(bits_of(out[0][1]), bits_of(-0.0F));
	assert_int_equal(bits_of(out[1][0]), bits_of(third));
	assert_int_equal(bits_of(out[2][0]), bits_of(-0x1p-140F));
	assert_int_equal(bits_of(out[2][1]), 0);
}

/* A moment that decays ends at 0, and the caller's own denormals do not. */
static void test_denormals(void **state)
{
	const float constants[] = { 0.999F };
	const int32_t output = 2;
	const struct update_program program = {
		.input_count = 1, .constant_count = 1, .output_count = 1, .operation_count = 1,
		.constants = constants, .outputs = &output,
		.operations = &(struct update_operation){ UPDATE_MUL, 2, 0, 1, 0 },
	};
	float in[] = { 0x1p-126F, 0x1p-127F, 0x1p-120F }, out[3];
	volatile float least = 0x1p-126F;

	run(&program, ONE(F32(in)), NULL, ONE(F32(out)), 3);
	assert_true(out[0] == 0);
	assert_true(out[1] == 0);
	assert_true(out[2] == 0x1p-120F * 0.999F);
	assert_true(least / 2 > 0);
}

/* a + b, |a| and zeros, of arrays with exactly @count elements: ASan sees each access beyond. */
static void check_length(size_t count, bool is_bf16, size_t offset)
{
	static const struct update_operation operations[] = {
		{ UPDATE_ADD, 4, 0, 1, 0 }, { UPDATE_ABS, 5, 0, 0, 0 }, { UPDATE_ADD, 6, 2, 3, 0 },
	};
	static const int32_t outputs[] = { 4, 5, 6 };
	const struct update_program program = {
		.input_count = 3, .scalar_count = 1, .output_count = 3, .operation_count = 3,
		.operations = operations, .outputs = outputs,
	};
	enum update_type type = is_bf16 ? UPDATE_BF16 : UPDATE_F32;
	size_t bytes = is_bf16 ? 2 : 4, i;
	char *room[5];
	float a, b;

	for (i = 0; i < 5; i++)
		if (posix_memalign((void **)&room[i], 64, (count + offset) * bytes))
			fail_msg("no memory");
	for (i = 0; i < count + offset; i++) {
		a = of_bf16(bf16_of((float)i - 100));
		b = of_bf16(bf16_of(1 / (1 + (float)i)));
		if (is_bf16) {
			((uint16_t *)room[0])[i] = bf16_of(a);
			((uint16_t *)room[1])[i] = bf16_of(b);
		} else {
			((float *)room[0])[i] = a;
			((float *)room[1])[i] = b;
		}
	}
	run(&program, (struct update_array[]){ { room[0] + offset * bytes, type },
					       { room[1] + offset * bytes, type }, { NULL, type } },
	    &(float){ 3 }, (struct update_array[]){ { room[2] + offset * bytes, type },
						    { room[3] + offset * bytes, type },
						    { room[4] + offset * bytes, type } }, count);
	for (i = offset; i < count + offset; i++) {
		a = of_bf16(bf16_of((float)i - 100));
		b = of_bf16(bf16_of(1 / (1 + (float)i)));
		if (is_bf16 ? ((uint16_t *)room[2])[i] != bf16_of(a + b) ||
		    ((uint16_t *)room[3])[i] != bf16_of(fabsf(a)) ||
		    ((uint16_t *)room[4])[i] != bf16_of(3) :
		    ((float *)room[2])[i] != a + b || ((float *)room[3])[i] != fabsf(a) ||
		    ((float *)room[4])[i] != 3)
			fail_msg("element %zu of %zu at %zu (bf16: %d) is wrong", i, count, offset,
				 is_bf16);
	}
	for (i = 0; i < 5; i++)
		free(room[i]);
}

static void test_lengths(void **state)
{
	static const size_t long_ones[] = { 1023, 1024, 1025, 4095, 32767, 32768, 32769, 65536,
					    65537, 100003 };
	size_t set, count;

	for (set = 0; set < COUNT_OF(sets); set++) {
		if (!kernels_use(sets[set]))
			continue;
		for (count = 1; count < 600; count++) {
			check_length(count, false, 0);
			check_length(count, true, 0);
			check_length(count, count % 2, 1 + count % 5);
		}
		for (count = 0; count < COUNT_OF(long_ones); count++) {
			check_length(long_ones[count], false, 0);
			check_length(long_ones[count], true, 0);
			check_length(long_ones[count], true, 3);
		}
	}
	kernels_use(NULL);
}

/* All bfloat16 numbers survive, and each float32 in between goes to the nearest, or to even. */
static void test_bf16(void **state)
{
	static uint16_t in[65536], out[65536];
	const int32_t output = 0;
	const struct update_program program = {
		.input_count = 1, .output_count = 1, .outputs = &output,
	};
	size_t i;

	for (i = 0; i < 65536; i++)
		in[i] = (uint16_t)i;
	run(&program, ONE(BF16(in)), NULL,
	    ONE(BF16(out)), 65536);
	for (i = 0; i < 65536; i++)
		assert_int_equal(out[i], isnan(of_bf16(in[i])) ? in[i] | 0x40 : in[i]);
	make_operands();
	run(&program, ONE(F32(operands[0])), NULL,
	    ONE(BF16(out)), OPERANDS);
	for (i = 0; i < OPERANDS; i++)
		assert_int_equal(out[i], bf16_of(operands[0][i]));
}

/* No element, no output. */
static void test_nothing(void **state)
{
	const int32_t output = 0;
	const struct update_program program = {
		.input_count = 1, .output_count = 1, .outputs = &output,
	};
	float in = 1, out = 7;

	run(&program, ONE(F32(&in)), NULL, ONE(F32(&out)), 0);
	assert_true(out == 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_codes),
		cmocka_unit_test(test_programs),
		cmocka_unit_test(test_bits),
		cmocka_unit_test(test_denormals),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_nothing),
	};

	return cmocka_run_group_tests_name("update", tests, NULL, NULL);
}
