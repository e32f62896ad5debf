/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Keeps a copy of the variables that `actmem run` set. The preload reads these variables when the
 * program first uses CUDA; by then, the program may have cleared its environment.
 */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/config.h"
#include "preload/cuda/kept.h"

#define PREFIX		"ACTMEM_"

static const char *const none[] = { NULL };
static const char *const *kept = none;

static bool is_ours(const char *variable)
{
	return !strncmp(variable, PREFIX, strlen(PREFIX));
}

/* Copies the variables ACTMEM_* to @variables: an array of pointers, followed by the text. */
static void copy_to(const char **variables, size_t count, char *const *environment)
{
	char *text = (char *)&variables[count + 1];
	size_t length;

	for (; *environment; environment++) {
		if (!is_ours(*environment))
			continue;
		length = strlen(*environment) + 1;
		*variables++ = memcpy(text, *environment, length);
		text += length;
	}
	*variables = NULL;
	kept = variables - count;
}

bool cuda_keep_variables(char *const *environment)
{
	size_t count = 0, bytes = 0;
	char *const *variable;
	void *memory;

	for (variable = environment; *variable; variable++) {
		if (!is_ours(*variable))
			continue;
		count++;
		bytes += strlen(*variable) + 1;
	}
	if (!count)
		return true;
	memory = mmap(NULL, (count + 1) * sizeof(*kept) + bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	copy_to(memory, count, environment);
	return true;
}

const char *const *cuda_variables(void)
{
	if (*kept && !knob_is_set(KNOB_CUDA))
		return kept;
	return environ ? (const char *const *)environ : none;
}
