/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Loads libactmem from the folder of the preload or, if that folder has no libactmem, by the
 * soname. Finds the functions that the preload needs. libactmem then stays loaded.
 *
 * No thread holds a lock of the preload while it calls the loader. Otherwise two threads could
 * deadlock: the loader holds its own lock while it runs a library's constructor, and the
 * constructor may allocate memory, which may need a lock of the preload. Several threads may load
 * libactmem at the same time; they find the same functions.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "preload/cuda/cuda.h"
#include "preload/cuda/library.h"

struct cuda_library cuda_library;
struct cuda_host_calls cuda_driver;
__thread unsigned int cuda_inside;

static pthread_mutex_t publish_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_loaded;

/* The thread's cancellation state before the outermost cuda_library_enter(). */
static __thread int cancellation;

/*
 * CUDA's own functions are not cancellation points. The preload's replacements call functions that
 * are cancellation points, so the replacements disable cancellation.
 */
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

/* Sets @path to the path of libactmem in the preload's folder. Returns false if there is none. */
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

static bool find_functions(struct cuda_library *found, struct cuda_failure *failure)
{
#define LIBRARY_ROW(name)	{ #name, offsetof(struct cuda_library, name) },
	static const struct {
		const char *name;
		size_t slot;
	} rows[] = { LIBRARY_CALLS(LIBRARY_ROW) };
#undef LIBRARY_ROW
	char path[PATH_MAX];
	void *library = dlopen(find_beside(path) ? path : LIB_SONAME, RTLD_NOW | RTLD_LOCAL);
	size_t i;

	if (!library)
		return cuda_failure_set(failure, TALE_LIBRARY, "cannot load " LIB_SONAME " (%s); it must be in the folder of libactmem_preload.so",
					dlerror());
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *function = dlsym(library, rows[i].name);

		if (!function)
			return cuda_failure_set(failure, TALE_LIBRARY, LIB_SONAME " is too old: it has no %s",
						rows[i].name);
		memcpy((char *)found + rows[i].slot, &function, sizeof(function));
	}
	return true;
}

bool cuda_library_load(struct cuda_failure *failure)
{
	struct cuda_library found;
	bool is_found;

	if (__atomic_load_n(&is_loaded, __ATOMIC_ACQUIRE))
		return true;
	cuda_library_enter();
	/*
	 * The program has called a function of libcuda.so.1, so libcuda.so.1 is loaded already.
	 * cuda_load() makes libcuda.so.1 stay loaded.
	 */
	failure->tale = TALE_LIBRARY;
	is_found = !cuda_load(CUDA_SERVES, failure->words, sizeof(failure->words)) &&
		   find_functions(&found, failure);
	cuda_library_leave();
	if (!is_found)
		return false;
	pthread_mutex_lock(&publish_lock);
	if (!is_loaded)
		cuda_library = found;
	__atomic_store_n(&is_loaded, true, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&publish_lock);
	return true;
}

bool cuda_failure_set(struct cuda_failure *failure, enum tale tale, const char *format, ...)
{
	va_list arguments;

	failure->tale = tale;
	va_start(arguments, format);
	vsnprintf(failure->words, sizeof(failure->words), format, arguments);
	va_end(arguments);
	return false;
}

bool cuda_failure_set_last(struct cuda_failure *failure, enum tale tale)
{
	return cuda_failure_set(failure, tale, "%s",
				cuda_library.actmem_error_in(ACTMEM_NAMES_VARIABLES));
}
