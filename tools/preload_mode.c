// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Adds libactmem_preload.so to a program's LD_PRELOAD. */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/base.h"
#include "config/config.h"
#include "preload/preload.h"
#include "run.h"
#include "tool.h"

#define PRELOAD_NAME	"libactmem_preload.so"

/* Suggests --no-cuda if only the CUDA mode needs the preload library. */
static const char *no_cuda_hint(void)
{
	return malloc_mode_is_wanted() ? "" : "; --no-cuda runs without it";
}

/* Returns true if @others begins with @path. An outer `actmem run` may have put the path there. */
static bool is_first(const char *others, const char *path)
{
	size_t length = strlen(path);

	return others && !strncmp(others, path, length) &&
	       (!others[length] || strchr(" :", others[length]));
}

/* Rejects a path with a space or a colon, because the loader takes these as separators. */
static int set_preload(const char *folder)
{
	int status = STATUS_FAILED;
	char *path;

	if (asprintf(&path, "%s/" PRELOAD_NAME, folder) < 0)
		return STATUS_FAILED;
	if (access(path, R_OK))
		warn("cannot preload '%s'%s", path, no_cuda_hint());
	else if (strpbrk(path, " :"))
		warnx("cannot preload '%s': its path has a space or a colon%s", path, no_cuda_hint());
	else if (is_first(getenv("LD_PRELOAD"), path))
		status = STATUS_OK;
	else
		status = variable_prepend("LD_PRELOAD", path);
	free(path);
	return status;
}

/* Decides whether the CUDA mode is wanted, and sets ACTMEM_CUDA accordingly. */
static int choose_cuda(bool *wanted)
{
	struct reader reader = READER(ACTMEM_NAMES_RUN);
	struct cuda_settings settings;

	*wanted = reader_value(&reader, KNOB_CUDA) || !knob_is_set(KNOB_CUDA);
	if (*wanted)
		cuda_settings_read(&settings, &reader);
	if (*reader.error) {
		warnx("%s", reader.error);
		return STATUS_USAGE;
	}
#ifndef __x86_64__
	if (*wanted)
		warnx("the preload supports CUDA only on x86-64, so the CUDA driver serves all requests; --no-cuda omits this warning");
	*wanted = false;
#endif
	return variable_set("ACTMEM_CUDA", *wanted ? "1" : "0");
}

bool preload_mode_has_cuda(void)
{
	return knob_is_on(KNOB_CUDA);
}

int preload_mode_set(const char *library_folder, bool verbose)
{
	bool cuda_wanted;
	int status = choose_cuda(&cuda_wanted);

	if (!status && (cuda_wanted || malloc_mode_is_wanted()))
		status = set_preload(library_folder);
	if (!status && verbose)
		status = variable_set("ACTMEM_VERBOSE", "1");
	if (!status && verbose)
		warnx(cuda_wanted ? "cuda: the preload handles calls of libcuda.so.1 for host memory" :
		      "cuda: the preload handles no calls of libcuda.so.1");
	return status;
}
