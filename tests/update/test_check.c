/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Programs that update_check() refuses, with the message of each; and random ones, of which those
 * that it accepts run without an access beyond their values.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "random.h"
#include "update/update.h"

#define FUZZ_STEPS	200000
#define FUZZ_MOST	12		/* operations */

static struct update_operation operations[2];
static int32_t output;
static const float constant = 1;

/* Inputs 0 and 1, scalar 2, constant 3, temporaries from 4 on. */
static struct update_program good(void)
{
	operations[0] = (struct update_operation){ UPDATE_MUL, 4, 0, 2, 0 };
	operations[1] = (struct update_operation){ UPDATE_SELECT, 5, 4, 1, 3 };
	output = 5;
	return (struct update_program){
		.input_count = 2, .scalar_count = 1, .constant_count = 1, .output_count = 1,
		.operation_count = 2, .constants = &constant, .operations = operations,
		.outputs = &output,
	};
}

static void refused(const struct update_program *program, const char *message)
{
	char words[256] = "";

	assert_int_equal(update_check(program, words, sizeof(words)), -EINVAL);
	assert_string_equal(words, message);
}

static void test_accepted(void **state)
{
	struct update_program program = good();
	char words[256] = "none";

	assert_int_equal(update_check(&program, words, sizeof(words)), 0);
	assert_string_equal(words, "none");
	/* Values up to the last one, and an operation that replaces its operand. */
	operations[0].to = operations[1].a = UPDATE_VALUES_MAX - 1;
	operations[1].to = output = UPDATE_VALUES_MAX - 1;
	assert_int_equal(update_check(&program, words, sizeof(words)), 0);
	/* No operation: an output that is an input. */
	program.operation_count = 0;
	output = 0;
	assert_int_equal(update_check(&program, words, sizeof(words)), 0);
}

static void test_counts(void **state)
{
	struct update_program program = good();

	program.input_count = 17;
	refused(&program, "the program has 17 inputs, but must have 0 to 16");
	program = good();
	program.output_count = 17;
	refused(&program, "the program has 17 outputs, but must have 1 to 16");
	program.output_count = 0;
	refused(&program, "the program has 0 outputs, but must have 1 to 16");
	program = good();
	program.operation_count = 1025;
	refused(&program, "the program has 1025 operations, but must have 0 to 1024");
	program = good();
	program.scalar_count = UINT32_MAX;
	refused(&program, "the program has 4294967295 scalars, but must have 0 to 64");
	program = good();
	program.constant_count = 65;
	refused(&program, "the program has 65 constants, but must have 0 to 64");
	program = good();
	program.scalar_count = 62;
	refused(&program, "the program has 65 inputs, scalars and constants, but must have 0 to 64");
}

static void test_memory(void **state)
{
	static const char message[] =
		"the pointer to the program's operations, constants or outputs is NULL";
	struct update_program program = good();

	program.operations = NULL;
	refused(&program, message);
	program = good();
	program.constants = NULL;
	refused(&program, message);
	program = good();
	program.outputs = NULL;
	refused(&program, message);
}

static void test_operations(void **state)
{
	struct update_program program = good();

	operations[1].code = UPDATE_CODES;
	refused(&program, "operation 1 has the code 25, but codes are 0 to 24");
	operations[1].code = -1;
	refused(&program, "operation 1 has the code -1, but codes are 0 to 24");
	good();
	operations[0].b = -1;
	refused(&program, "operation 0 (mul) reads value -1, which has not been written");
	operations[0].b = 64;
	refused(&program, "operation 0 (mul) reads value 64, which has not been written");
	/* A temporary is not known before its operation. */
	good();
	operations[0].a = 5;
	refused(&program, "operation 0 (mul) reads value 5, which has not been written");
	good();
	operations[1].c = 6;
	refused(&program, "operation 1 (select) reads value 6, which has not been written");
	good();
	operations[0].c = 1;
	refused(&program, "operation 0 (mul) has 2 operands, but operand 2 is not 0");
	good();
	operations[0].code = UPDATE_NEG;
	refused(&program, "operation 0 (neg) has 1 operands, but operand 1 is not 0");
	good();
	operations[0].to = 3;
	refused(&program, "operation 0 (mul) writes value 3, but temporaries are values 4 to 63");
	operations[0].to = 64;
	refused(&program, "operation 0 (mul) writes value 64, but temporaries are values 4 to 63");
	operations[0].to = -1;
	refused(&program, "operation 0 (mul) writes value -1, but temporaries are values 4 to 63");
}

static void test_outputs(void **state)
{
	struct update_program program = good();

	output = 6;
	refused(&program, "output 0 is value 6, which has not been written");
	output = 64;
	refused(&program, "output 0 is value 64, which has not been written");
	output = -1;
	refused(&program, "output 0 is value -1, which has not been written");
}

/* The message is cut off at the end of its buffer. */
static void test_short_words(void **state)
{
	struct update_program program = good();
	char words[16] = "";

	output = 6;
	assert_int_equal(update_check(&program, words, sizeof(words)), -EINVAL);
	assert_string_equal(words, "output 0 is val");
}

/* A number that is often right, and else anything. */
static int32_t number(uint64_t *seed, uint64_t most)
{
	if (one_in(seed, 40))
		return (int32_t)next_random(seed);
	return (int32_t)random_below(seed, most) - one_in(seed, 60);
}

static bool try_program(uint64_t *seed)
{
	static float memory[2 * UPDATE_ARRAYS_MAX][40], numbers[UPDATE_VALUES_MAX];
	struct update_array inputs[UPDATE_ARRAYS_MAX], outputs[UPDATE_ARRAYS_MAX];
	struct update_operation random[FUZZ_MOST];
	int32_t results[UPDATE_ARRAYS_MAX];
	struct update_program program = {
		.input_count = 1 + (uint32_t)number(seed, 3),
		.scalar_count = (uint32_t)number(seed, 2),
		.constant_count = (uint32_t)number(seed, 2),
		.output_count = 1 + (uint32_t)number(seed, 2),
		.operation_count = (uint32_t)random_below(seed, FUZZ_MOST + 1),
		.constants = numbers, .operations = random, .outputs = results,
	};
	uint32_t i, first = program.input_count + program.scalar_count + program.constant_count;
	char words[128];

	for (i = 0; i < FUZZ_MOST; i++)
		random[i] = (struct update_operation){
			number(seed, UPDATE_CODES), number(seed, 3) + (int32_t)(first % 1000),
			number(seed, 4), number(seed, 4), one_in(seed, 4) ? number(seed, 4) : 0,
		};
	for (i = 0; i < UPDATE_ARRAYS_MAX; i++) {
		results[i] = number(seed, 5);
		inputs[i] = (struct update_array){ one_in(seed, 5) ? NULL : memory[i],
						   one_in(seed, 2) ? UPDATE_BF16 : UPDATE_F32 };
		outputs[i] = (struct update_array){ memory[UPDATE_ARRAYS_MAX + i],
						    one_in(seed, 2) ? UPDATE_BF16 : UPDATE_F32 };
	}
	if (update_check(&program, words, sizeof(words)))
		return false;
	assert_int_equal(update_run(&program, inputs, numbers, outputs, 1 + random_below(seed, 40),
				    -1, words, sizeof(words)), 0);
	return true;
}

static void test_random(void **state)
{
	uint64_t seed = seed_given(), steps = number_given("STEPS", FUZZ_STEPS), i, accepted = 0;

	for (i = 0; i < steps; i++)
		accepted += try_program(&seed);
	printf("# %llu of %llu programs were accepted\n", (unsigned long long)accepted,
	       (unsigned long long)steps);
	assert_in_range(accepted, steps / 100, steps - steps / 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_accepted),
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_operations),
		cmocka_unit_test(test_outputs),
		cmocka_unit_test(test_short_words),
		cmocka_unit_test(test_random),
	};

	return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
