/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The constructor of the preload does nothing unless the environment asks for a mode.
 * Blocks that were allocated before are the program's own malloc's, and stay so.
 *
 * It runs before the constructors of other libraries (-z initfirst), so that fork() takes
 * their locks before the preload's: a thread that has one of theirs may allocate. The C
 * library has not set environ by then.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "preload/cuda/kept.h"
#include "preload/malloc/large.h"
#include "preload/say.h"
#include "preload/settings.h"
#include "preload/symbols.h"

/*
 * A program with a malloc of its own calls that one, and would free with it what
 * came from here by a name that it has not.
 */
static bool others_call_ours(void)
{
	return symbols_come_first("malloc") && symbols_come_first("realloc") &&
	       symbols_come_first("free");
}

static void tell_wrong(const struct setting_wrong *wrong, const char *what)
{
	say("%s is '%.200s'; it may be %s. %s is off.", wrong->variable, wrong->text,
	    wrong->choice, what);
}

__attribute__((constructor)) static void start(int argc, char **argv, char **environment)
{
	struct malloc_settings settings;
	struct setting_wrong wrong;

	if (!environ)
		environ = environment;
	symbols_find_next();
	if (getauxval(AT_SECURE))
		return;
	if (getenv("ACTMEM_CUDA") && !cuda_keep_variables(environ))
		say("no memory to keep the variables ACTMEM_*: if this program clears its environment, its calls of CUDA are left alone.");
	if (!cuda_settings_read(&wrong))
		tell_wrong(&wrong, "The CUDA mode");
	if (!getenv("ACTMEM_MALLOC"))
		return;
	if (!malloc_settings_read(&settings, &wrong) ||
	    (settings.wanted && others_call_ours() && !large_start(&settings, &wrong)))
		tell_wrong(&wrong, "Malloc mode");
}
