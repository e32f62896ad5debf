// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * Makes PyTorch pin only as much memory as a program requests. By default, PyTorch rounds each
 * block up to a power of two, and keeps it for the next request.
 *
 * If PyTorch does not know an option, it ends the program. This code therefore first checks the
 * installed versions: the headers of each version name the options that the version knows.
 *
 * Without rounding, a PyTorch from before August 2026 can serve a longer request with a shorter
 * block that it kept. PyTorch therefore must not keep these blocks. The preload library keeps the
 * blocks instead.
 */
#include <err.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "run.h"
#include "tool.h"

#define ROUNDS		"pinned_max_round_threshold"
#define KEEPS		"pinned_max_cached_size"
/*
 * PyTorch still rounds and keeps blocks up to this length. A program frees such blocks often, and
 * without the cache PyTorch would wait for the GPU each time.
 */
#define FROM_MB		"1024"
#define HEADER		"include/c10/core/AllocatorConfig.h"

struct torches {
	unsigned int found, knowing;
};

static bool says_both(const char *path)
{
	bool rounds = false, keeps = false;
	FILE *file = fopen(path, "re");
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		rounds |= strstr(line, ROUNDS) != NULL;
		keeps |= strstr(line, KEEPS) != NULL;
	}
	if (file)
		fclose(file);
	return rounds && keeps;
}

/*
 * Checks the PyTorch in each folder that matches a pattern of glob(3): @folder, followed by @below.
 */
static void look_in(struct torches *torches, const char *folder, const char *below)
{
	char path[2 * PATH_MAX];
	glob_t all;
	size_t i;

	snprintf(path, sizeof(path), "%s%s/torch", folder, below);
	if (glob(path, GLOB_BRACE, NULL, &all))
		return;
	for (i = 0; i < all.gl_pathc; i++) {
		snprintf(path, sizeof(path), "%s/" HEADER, all.gl_pathv[i]);
		torches->found++;
		torches->knowing += says_both(path);
	}
	globfree(&all);
}

static void look_under(struct torches *torches, const char *prefix)
{
	look_in(torches, prefix, "/lib/python3*/{site,dist}-packages");
}

/* Checks the Python environment whose bin/ contains the program. */
static void look_beside(struct torches *torches, const char *program)
{
	const char *paths = getenv("PATH");
	char *copy = strchr(program, '/') ? strdup("") : strdup(paths ? paths : "");
	char *rest = copy, *folder, path[PATH_MAX];

	while (copy && (folder = strsep(&rest, ":"))) {
		snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", program);
		if (access(path, X_OK) || !strchr(path, '/'))
			continue;
		*strrchr(path, '/') = '\0';
		strncat(path, "/..", sizeof(path) - strlen(path) - 1);
		look_under(torches, path);
		break;
	}
	free(copy);
}

static void look_in_each(struct torches *torches, const char *folders)
{
	char *copy = strdup(folders), *rest = copy, *folder;

	while (copy && (folder = strsep(&rest, ":")))
		if (*folder)
			look_in(torches, folder, "");
	free(copy);
}

static bool all_know(const char *program)
{
	const char *own = getenv("VIRTUAL_ENV"), *home = getenv("HOME");
	const char *folders = getenv("PYTHONPATH");
	struct torches torches = { 0, 0 };
	char user[PATH_MAX];

	look_beside(&torches, program);
	look_beside(&torches, "python3");
	look_under(&torches, "/usr/local");
	if (own && *own)
		look_under(&torches, own);
	if (folders)
		look_in_each(&torches, folders);
	if (home && snprintf(user, sizeof(user), "%s/.local", home) < (int)sizeof(user))
		look_under(&torches, user);
	return torches.found && torches.found == torches.knowing;
}

static bool says_either(const char *text)
{
	return text && (strstr(text, ROUNDS) || strstr(text, KEEPS));
}

/*
 * Sets the options ROUNDS and KEEPS in one of PyTorch's two environment variables. Each version
 * that knows these options reads PYTORCH_CUDA_ALLOC_CONF only if PYTORCH_ALLOC_CONF is not set.
 */
int torch_mode_set(const char *program)
{
	const char *newer = getenv("PYTORCH_ALLOC_CONF"), *older = getenv("PYTORCH_CUDA_ALLOC_CONF");
	const char *name = newer || !older ? "PYTORCH_ALLOC_CONF" : "PYTORCH_CUDA_ALLOC_CONF";
	const char *others = newer ? newer : older ? older : "";
	int status;
	char *all;

	if (says_either(newer) || says_either(older) || !all_know(program))
		return STATUS_OK;
	if (asprintf(&all, "%s%s" ROUNDS "_mb:" FROM_MB "," KEEPS "_mb:" FROM_MB, others,
		     *others ? "," : "") < 0)
		err(STATUS_FAILED, "cannot set the environment");
	status = variable_set(name, all);
	if (!status)
		warnx("PyTorch pins blocks over %s MiB at the requested length: %s=%s", FROM_MB,
		      name, all);
	free(all);
	return status;
}
