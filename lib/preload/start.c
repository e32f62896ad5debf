/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The constructor of the preload starts malloc mode and CUDA mode if the environment selects them.
 * Blocks that were allocated before the constructor ran belong to the program's own malloc.
 *
 * The constructor runs before the constructors of other libraries (-z initfirst). So fork() calls
 * the preload's handler (pthread_atfork()) after the handlers of other libraries, and these
 * libraries' locks are taken before the preload's. A thread that allocates memory while it holds a
 * lock of another library also takes the locks in this order. When the constructor runs, the C
 * library has not set environ yet.
 */
#include <stdbool.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "preload/cuda/kept.h"
#include "preload/malloc/large.h"
#include "preload/say.h"
#include "preload/settings.h"
#include "preload/symbols.h"

/*
 * Returns true if the program and its libraries call the preload's malloc functions. Malloc mode
 * stays off if the program has its own malloc, because this malloc can lack a function such as
 * memalign(). The program would then allocate a block with the preload's memalign(), and free the
 * block with its own free().
 */
static bool others_call_ours(void)
{
	return symbols_come_first("realloc") && symbols_come_first("free");
}

static void say_if_wrong(const struct reader *reader, const char *what)
{
	if (*reader->error)
		say("%s. %s is off.", reader->error, what);
}

__attribute__((constructor)) static void start_modes(int argc, char **argv, char **environment)
{
	struct reader cuda = { .names = ACTMEM_NAMES_VARIABLES }, large = cuda;
	struct malloc_settings settings;

	if (!environ)
		environ = environment;
	symbols_find_next();
	if (getauxval(AT_SECURE))
		return;
	if (knob_is_set(KNOB_CUDA) && !cuda_keep_variables(environ))
		say("no memory for a copy of the variables ACTMEM_*: if this program clears its environment before it first uses CUDA, its host memory for CUDA does not come from regions.");
	cuda.variables = (const char *const *)environ;
	reader_value(&cuda, KNOB_CUDA);
	say_if_wrong(&cuda, "The CUDA mode");
	large.variables = cuda.variables;
	malloc_settings_read(&settings, &large);
	if (!*large.error && settings.is_wanted && others_call_ours())
		large_start(&settings, &large);
	say_if_wrong(&large, "Malloc mode");
}
