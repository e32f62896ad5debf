// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Puts libactmem_preload.so in front of a program. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/base.h"
#include "malloc_mode.h"
#include "preload/preload.h"
#include "preload_mode.h"
#include "tool.h"

#define PRELOAD_NAME	"libactmem_preload.so"

/* Where only CUDA's calls want it, the program can do without. */
static const char *advice(void)
{
	return malloc_mode_is_wanted() ? "" : "; --no-cuda does without it";
}

/* The entry of an outer `actmem run` is enough. */
static bool is_first(const char *others, const char *path)
{
	size_t length = strlen(path);

	return others && !strncmp(others, path, length) &&
	       (!others[length] || strchr(" :", others[length]));
}

/* The loader takes spaces and colons as the ends of names. */
static int set_preload(const char *folder)
{
	const char *others = getenv("LD_PRELOAD");
	char *path, *all = NULL;
	int status = STATUS_FAILED;

	if (asprintf(&path, "%s/" PRELOAD_NAME, folder) < 0)
		return STATUS_FAILED;
	if (access(path, R_OK))
		warn("cannot preload '%s'%s", path, advice());
	else if (strpbrk(path, " :"))
		warnx("cannot preload '%s': its path has a space or a colon%s", path, advice());
	else if (is_first(others, path))
		status = STATUS_OK;
	else if (asprintf(&all, others && *others ? "%s:%s" : "%s", path, others) < 0 ||
		 setenv("LD_PRELOAD", all, 1))
		warn("cannot set the environment");
	else
		status = STATUS_OK;
	free(all);
	free(path);
	return status;
}

static int refuse(const char *variable, const char *text, const char *choice)
{
	warnx("%s is '%s'; it may be %s", knob_name_of(variable, ACTMEM_NAMES_RUN), text, choice);
	return STATUS_USAGE;
}

/* Sets ACTMEM_CUDA to what it is to be. */
static int choose_cuda(bool *wanted)
{
	const char *text = getenv("ACTMEM_CUDA");
	struct cuda_settings settings;
	struct malloc_wrong wrong;
	struct cuda_wrong other;

	if (!cuda_settings_read(&wrong))
		return refuse(wrong.variable, wrong.text, wrong.choice);
	*wanted = !text || strcmp(text, "0") != 0;
	if (*wanted && !cuda_memory_settings_read(&settings, &other))
		return refuse(other.variable, other.text, other.choice);
#ifndef __x86_64__
	if (*wanted)
		warnx("the program's calls of CUDA are left alone: that they are not is for x86-64 alone (--no-cuda says so itself)");
	*wanted = false;
#endif
	if (!setenv("ACTMEM_CUDA", *wanted ? "1" : "0", 1))
		return STATUS_OK;
	warn("cannot set the environment");
	return STATUS_FAILED;
}

int preload_mode_set(const char *library_folder, bool verbose)
{
	bool cuda_wanted;
	int status = choose_cuda(&cuda_wanted);

	if (!status && (cuda_wanted || malloc_mode_is_wanted()))
		status = set_preload(library_folder);
	if (!status && verbose && setenv("ACTMEM_VERBOSE", "1", 1)) {
		warn("cannot set the environment");
		status = STATUS_FAILED;
	}
	if (!status && verbose)
		warnx(cuda_wanted ? "cuda: calls of libcuda.so.1 for memory of the host come here first" :
		      "cuda: calls of libcuda.so.1 are left alone");
	return status;
}
