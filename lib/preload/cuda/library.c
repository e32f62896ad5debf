/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Loads libactmem from the folder of this library, or else by its name. Finds the functions that
 * the preload needs in libactmem and in libcuda.so.1. Both then stay loaded.
 *
 * No thread holds a lock over calls of the loader: the constructor of a library that is being
 * loaded may ask for memory, with the loader's lock held. Threads that come here at the same time
 * find the same functions.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "preload/cuda/cuda.h"
#include "preload/cuda/library.h"

struct cuda_library cuda_library;

static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded;

/* The thread's cancellation state before the outermost cuda_library_enter(). */
static __thread int cancellation;

/* CUDA's functions are not cancellation points, so a thread must not be cancelled inside one. */
void cuda_library_enter(void)
{
	if (!cuda_inside++)
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
}

void cuda_library_leave(void)
{
	if (!--cuda_inside)
		pthread_setcancelstate(cancellation, NULL);
}

struct wanted_call {
	const char *name;
	size_t slot;
};

static bool find_functions(struct cuda_library *found, void *library, const char *file,
			   const struct wanted_call *wanted, size_t count, char words[CUDA_WORDS_MAX])
{
	size_t i;

	for (i = 0; i < count; i++) {
		void *function = dlsym(library, wanted[i].name);

		if (!function) {
			snprintf(words, CUDA_WORDS_MAX, "%s has no %s; it is too old", file,
				 wanted[i].name);
			return false;
		}
		memcpy((char *)found + wanted[i].slot, &function, sizeof(function));
	}
	return true;
}

/* Finds libactmem in the folder of this library. Returns false if it is not there. */
static bool find_beside(char path[PATH_MAX])
{
	const char *slash;
	Dl_info own;

	if (!dladdr((void *)&cuda_library, &own))
		return false;
	slash = strrchr(own.dli_fname, '/');
	if (!slash || snprintf(path, PATH_MAX, "%.*s/" LIB_SONAME, (int)(slash - own.dli_fname),
			       own.dli_fname) >= PATH_MAX)
		return false;
	return !access(path, R_OK);
}

static void *open_library(char words[CUDA_WORDS_MAX])
{
	char path[PATH_MAX];
	void *library = dlopen(find_beside(path) ? path : LIB_SONAME, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		snprintf(words, CUDA_WORDS_MAX, LIB_SONAME " cannot be loaded (%s); it belongs beside libactmem_preload.so",
			 dlerror());
	return library;
}

static bool load_both(struct cuda_library *found, char words[CUDA_WORDS_MAX])
{
#define LIBRARY_WANTED(name)		{ #name, offsetof(struct cuda_library, name) },
#define CONTEXT_WANTED(name, parameters)	LIBRARY_WANTED(name)
	static const struct wanted_call of_library[] = { LIBRARY_CALLS(LIBRARY_WANTED) };
	static const struct wanted_call of_cuda[] = { CONTEXT_CALLS(CONTEXT_WANTED) };
#undef LIBRARY_WANTED
#undef CONTEXT_WANTED
	void *cuda, *library;

	/* The program has called libcuda.so.1 already, so it is loaded. This keeps it loaded. */
	cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!cuda) {
		snprintf(words, CUDA_WORDS_MAX, "libcuda.so.1 cannot be loaded (%s)", dlerror());
		return false;
	}
	library = open_library(words);
	return library && find_functions(found, cuda, "libcuda.so.1", of_cuda,
					 sizeof(of_cuda) / sizeof(of_cuda[0]), words) &&
	       find_functions(found, library, LIB_SONAME, of_library,
			      sizeof(of_library) / sizeof(of_library[0]), words);
}

bool cuda_library_load(char words[CUDA_WORDS_MAX])
{
	struct cuda_library found;
	bool loaded;

	if (__atomic_load_n(&is_loaded, __ATOMIC_ACQUIRE))
		return true;
	cuda_library_enter();
	loaded = load_both(&found, words);
	cuda_library_leave();
	if (!loaded)
		return false;
	pthread_mutex_lock(&publish_lock);
	if (!is_loaded)
		cuda_library = found;
	__atomic_store_n(&is_loaded, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&publish_lock);
	return true;
}
