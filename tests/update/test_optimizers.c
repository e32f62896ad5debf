/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * AdamW and Lion for 100 steps: no element is further from float64 than with a plain loop in
 * float32, except for one unit in the last place of the element's largest term.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "update/kernels.h"
#include "update/update.h"

#define COUNT		1003
#define STEPS		100
#define COUNT_OF(array)	(sizeof(array) / sizeof((array)[0]))

#define RATE		0x1p-9F
#define BETA1		0.9F
#define BETA2		0.999F
#define EPSILON		1e-8F
#define DECAY		0.01F

enum { GRADIENT, MASTER, FIRST, SECOND };

struct state {
	float master[COUNT], first[COUNT], second[COUNT];
};

struct exact {
	double master[COUNT], first[COUNT], second[COUNT];
};

struct optimizer {
	struct update_program program;
	void (*exact)(struct exact *state, int step, int i, double gradient);
	void (*plain)(struct state *state, int step, int i, float gradient);
};

static uint16_t gradients[COUNT], weights[COUNT];

static float of_bf16(uint16_t half)
{
	uint32_t bits = (uint32_t)half << 16;
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void make_gradients(int step)
{
	float value;
	uint32_t bits;
	int i;

	for (i = 0; i < COUNT; i++) {
		value = sinf((float)(step * 131 + i * 17)) * ldexpf(1, -(i % 24));
		memcpy(&bits, &value, sizeof(bits));
		gradients[i] = (uint16_t)(bits >> 16);
	}
}

/*
 * Scalars: 4 and 5 are 1 - beta^step. Constants: 6 beta1, 7 1 - beta1, 8 beta2, 9 1 - beta2,
 * 10 epsilon, 11 decay, 12 rate. Temporaries: 13 on.
 */
static const float constants[] = { BETA1, 1 - BETA1, BETA2, 1 - BETA2, EPSILON, DECAY, RATE };

static const struct update_operation adamw_operations[] = {
	{ UPDATE_MUL, 13, FIRST, 6, 0 },
	{ UPDATE_MUL, 14, GRADIENT, 7, 0 },
	{ UPDATE_ADD, 13, 13, 14, 0 },		/* 13: first moment */
	{ UPDATE_MUL, 14, GRADIENT, GRADIENT, 0 },
	{ UPDATE_MUL, 14, 14, 9, 0 },
	{ UPDATE_MUL, 15, SECOND, 8, 0 },
	{ UPDATE_ADD, 14, 15, 14, 0 },		/* 14: second moment */
	{ UPDATE_DIV, 15, 14, 5, 0 },
	{ UPDATE_SQRT, 15, 15, 0, 0 },
	{ UPDATE_ADD, 15, 15, 10, 0 },
	{ UPDATE_DIV, 16, 13, 4, 0 },
	{ UPDATE_DIV, 15, 16, 15, 0 },
	{ UPDATE_MUL, 16, MASTER, 11, 0 },
	{ UPDATE_ADD, 15, 15, 16, 0 },
	{ UPDATE_MUL, 15, 15, 12, 0 },
	{ UPDATE_SUB, 15, MASTER, 15, 0 },	/* 15: master weight */
};
static const int32_t adamw_outputs[] = { 15, 13, 14, 15 };

static void adamw_exact(struct exact *state, int step, int i, double gradient)
{
	double first, second;

	state->first[i] = (double)BETA1 * state->first[i] + (double)(1 - BETA1) * gradient;
	state->second[i] = (double)BETA2 * state->second[i] +
			   (double)(1 - BETA2) * gradient * gradient;
	first = state->first[i] / (double)(1 - powf(BETA1, (float)step));
	second = state->second[i] / (double)(1 - powf(BETA2, (float)step));
	state->master[i] -= (double)RATE * (first / (sqrt(second) + (double)EPSILON) +
					    (double)DECAY * state->master[i]);
}

static void adamw_plain(struct state *state, int step, int i, float gradient)
{
	state->first[i] = BETA1 * state->first[i] + (1 - BETA1) * gradient;
	state->second[i] = BETA2 * state->second[i] + (1 - BETA2) * gradient * gradient;
	state->master[i] -= RATE * (state->first[i] / (1 - powf(BETA1, (float)step)) /
		(sqrtf(state->second[i] / (1 - powf(BETA2, (float)step))) + EPSILON) +
		DECAY * state->master[i]);
}

static const struct update_operation lion_operations[] = {
	{ UPDATE_MUL, 13, FIRST, 6, 0 },
	{ UPDATE_MUL, 14, GRADIENT, 7, 0 },
	{ UPDATE_ADD, 13, 13, 14, 0 },
	{ UPDATE_SIGN, 13, 13, 0, 0 },
	{ UPDATE_MUL, 14, MASTER, 11, 0 },
	{ UPDATE_ADD, 13, 13, 14, 0 },
	{ UPDATE_MUL, 13, 13, 12, 0 },
	{ UPDATE_SUB, 15, MASTER, 13, 0 },	/* 15: master weight */
	{ UPDATE_MUL, 13, FIRST, 8, 0 },
	{ UPDATE_MUL, 14, GRADIENT, 9, 0 },
	{ UPDATE_ADD, 13, 13, 14, 0 },		/* 13: moment */
};
/* Lion has one moment, so SECOND is kept as it is. */
static const int32_t lion_outputs[] = { 15, 13, SECOND, 15 };

static double sign_of(double value)
{
	return (value > 0) - (value < 0);
}

static void lion_exact(struct exact *state, int step, int i, double gradient)
{
	state->master[i] -= (double)RATE *
		(sign_of((double)BETA1 * state->first[i] + (double)(1 - BETA1) * gradient) +
		 (double)DECAY * state->master[i]);
	state->first[i] = (double)BETA2 * state->first[i] + (double)(1 - BETA2) * gradient;
}

static void lion_plain(struct state *state, int step, int i, float gradient)
{
	float direction = BETA1 * state->first[i] + (1 - BETA1) * gradient;

	state->master[i] -= RATE * ((float)sign_of(direction) + DECAY * state->master[i]);
	state->first[i] = BETA2 * state->first[i] + (1 - BETA2) * gradient;
}

#define PROGRAM(name)									\
	{ .input_count = 4, .scalar_count = 2, .constant_count = COUNT_OF(constants),	\
	  .output_count = 4, .operation_count = COUNT_OF(name##_operations),		\
	  .constants = constants, .operations = name##_operations, .outputs = name##_outputs }

static void compute(const struct update_program *program, int step, struct state *from,
		    struct state *to)
{
	const float scalars[] = { 1 - powf(BETA1, (float)step), 1 - powf(BETA2, (float)step) };
	const struct update_array inputs[] = {
		{ gradients, UPDATE_BF16 }, { from->master, UPDATE_F32 },
		{ from->first, UPDATE_F32 }, { from->second, UPDATE_F32 },
	};
	const struct update_array outputs[] = {
		{ to->master, UPDATE_F32 }, { to->first, UPDATE_F32 }, { to->second, UPDATE_F32 },
		{ weights, UPDATE_BF16 },
	};
	char words[256] = "";

	if (update_check(program, words, sizeof(words)) ||
	    update_run(program, inputs, scalars, outputs, COUNT, -1, words, sizeof(words)))
		fail_msg("%s", words);
}

/* @largest: the largest term of the sum that made the number. */
static void assert_near(const char *what, int step, int i, float got, float plain, double exact,
			double largest)
{
	double unit = ldexp(1, ilogb(largest) - 23);

	if (fabs(got - exact) > fabs(plain - exact) + unit)
		fail_msg("step %d: %s %d is %.9g, in plain C %.9g, in float64 %.17g", step, what, i,
			 got, plain, exact);
}

static void check_optimizer(const struct optimizer *optimizer)
{
	static struct state states[2], plain;
	static struct exact exact, before;
	struct state *got;
	int step, i;

	memset(states, 0, sizeof(states));
	for (i = 0; i < COUNT; i++)
		states[1].master[i] = cosf((float)i) * 0.02F;
	plain = states[1];
	memset(&exact, 0, sizeof(exact));
	for (i = 0; i < COUNT; i++)
		exact.master[i] = plain.master[i];
	for (step = 1; step <= STEPS; step++) {
		before = exact;
		make_gradients(step);
		got = &states[(step + 1) % 2];
		compute(&optimizer->program, step, &states[step % 2], got);
		for (i = 0; i < COUNT; i++) {
			optimizer->exact(&exact, step, i, of_bf16(gradients[i]));
			optimizer->plain(&plain, step, i, of_bf16(gradients[i]));
			assert_near("weight", step, i, got->master[i], plain.master[i],
				    exact.master[i], fmax(fabs(before.master[i]), RATE));
			assert_near("first moment", step, i, got->first[i], plain.first[i],
				    exact.first[i],
				    fabs(before.first[i]) + fabs(of_bf16(gradients[i])));
			assert_near("second moment", step, i, got->second[i], plain.second[i],
				    exact.second[i], fmax(before.second[i], 0x1p-120));
			assert_true(fabsf(of_bf16(weights[i]) - got->master[i]) <=
				    ldexpf(fabsf(got->master[i]), -8));
		}
	}
}

static const struct optimizer adamw = { PROGRAM(adamw), adamw_exact, adamw_plain };
static const struct optimizer lion = { PROGRAM(lion), lion_exact, lion_plain };

static void on_each_set(const struct optimizer *optimizer)
{
	static const char *const sets[] = { "baseline", "avx2", "avx512" };
	size_t set;

	for (set = 0; set < COUNT_OF(sets); set++)
		if (kernels_use(sets[set]))
			check_optimizer(optimizer);
	kernels_use(NULL);
}

static void test_adamw(void **state)
{
	on_each_set(&adamw);
}

static void test_lion(void **state)
{
	on_each_set(&lion);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_adamw),
		cmocka_unit_test(test_lion),
	};

	return cmocka_run_group_tests_name("optimizers", tests, NULL, NULL);
}
