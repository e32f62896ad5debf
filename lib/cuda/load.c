/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Loads libcuda.so.1, which then stays loaded, and finds its functions. Threads that load the
 * library at the same time find the same functions.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "cuda/cuda.h"

struct cuda_functions cuda;

static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint loaded_uses;		/* enum cuda_use: flags whose functions are loaded */

#define CUDA_ROW(name, parameters, uses)	\
	{ #name, offsetof(struct cuda_functions, name), uses },

static const struct {
	const char *name;
	size_t slot;
	unsigned int uses;
} rows[] = { CUDA_FUNCTIONS(CUDA_ROW) };

#define ROWS	(sizeof(rows) / sizeof(rows[0]))

/*
 * Looks up only functions that @uses (enum cuda_use) needs, because other libraries can intercept
 * the lookup of a function.
 */
static int find_functions(struct cuda_functions *found, void *library, unsigned int uses,
			  char *words, size_t size)
{
	unsigned int i;

	for (i = 0; i < ROWS; i++) {
		void *function = rows[i].uses & uses ? dlsym(library, rows[i].name) : NULL;

		memcpy((char *)found + rows[i].slot, &function, sizeof(function));
		if (function || !(rows[i].uses & uses) || rows[i].uses & CUDA_OPTIONAL)
			continue;
		snprintf(words, size, CUDA_LIBRARY " has no %s, because it is older than CUDA %d",
			 rows[i].name, uses & (CUDA_COPIES | CUDA_SERVES) ? 12 : 11);
		return -EOPNOTSUPP;
	}
	return 0;
}

static void publish_functions(const struct cuda_functions *found, unsigned int uses)
{
	unsigned int i;

	pthread_mutex_lock(&publish_lock);
	for (i = 0; i < ROWS; i++)
		if (rows[i].uses & uses && !(rows[i].uses & loaded_uses))
			memcpy((char *)&cuda + rows[i].slot, (const char *)found + rows[i].slot,
			       sizeof(void *));
	loaded_uses |= uses;
	pthread_mutex_unlock(&publish_lock);
}

int cuda_load(unsigned int uses, char *words, size_t size)
{
	void *(*open_library)(const char *name, int flags);
	struct cuda_functions found;
	void *library;
	int error;

	if ((loaded_uses & uses) == uses)
		return 0;
	/*
	 * Look dlopen() up by name. Otherwise the linker prints a warning for each static program.
	 */
	*(void **)&open_library = dlsym(RTLD_DEFAULT, "dlopen");
	if (!open_library) {
		snprintf(words, size, "a static program cannot load " CUDA_LIBRARY
			 "; link it dynamically");
		return -ENOENT;
	}
	library = open_library(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		snprintf(words, size, CUDA_LIBRARY " cannot be loaded (%s)", dlerror());
		return -ENOENT;
	}
	error = find_functions(&found, library, uses, words, size);
	if (error)
		dlclose(library);
	else
		publish_functions(&found, uses);
	return error;
}

bool cuda_is_free(void)
{
	if (pthread_mutex_trylock(&publish_lock))
		return false;
	pthread_mutex_unlock(&publish_lock);
	return true;
}
