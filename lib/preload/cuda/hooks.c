/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A program's lookups in libcuda.so.1 find the preload's functions instead of CUDA's. Lookups take
 * no lock of the preload, so a child that is forked during a lookup does not inherit a lock that
 * another thread holds.
 *
 * The preload uses the first libcuda.so.1 in which the program looks up a function that the preload
 * replaces. That libcuda.so.1 stays loaded, even if the program closes it, because only this
 * library can free the memory that it has allocated.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "config/config.h"
#include "preload/cuda/cuda.h"
#include "preload/cuda/hooks.h"
#include "preload/cuda/kept.h"
#include "preload/say.h"
#include "preload/symbols.h"

#define LIBRARY_INSIDE	"libcuda.so."	/* also of the library that libcuda.so.1 loads on WSL */
#define SUFFIX		"_v2"

static struct link_map *_Atomic chosen_library;		/* cuda_driver will get its functions */
static struct link_map *_Atomic reached_library;	/* cuda_driver has its functions */

static void *_Atomic driver_get_proc_address;
static void *_Atomic driver_get_proc_address_v2;

/*
 * A function that lookups return instead of the driver's. @since is the first CUDA version that has
 * the function, in the format of cuGetProcAddress().
 */
struct hook {
	const char *name;
	int since;
	void *ours;
	void *_Atomic *driver;		/* where the original is stored; NULL: in cuda_driver */
};

#define HOST(name, ours, since)		{ #name, since, (void *)(ours), NULL }

/* If a function has several versions, the newest version is first, because the first match wins. */
static const struct hook hooks[] = {
	HOST(cuMemHostAlloc, cuda_mem_host_alloc, 2020),
	HOST(cuMemAllocHost_v2, cuda_mem_alloc_host, 3020),
	HOST(cuMemFreeHost, cuda_mem_free_host, 2000),
	HOST(cuMemHostRegister_v2, cuda_mem_host_register, 6050),
	HOST(cuMemHostUnregister, cuda_mem_host_unregister, 4000),
	HOST(cuMemHostGetDevicePointer_v2, cuda_mem_host_get_device_pointer, 3020),
	HOST(cuMemHostGetFlags, cuda_mem_host_get_flags, 2030),
	{ "cuGetProcAddress_v2", 12000, (void *)cuda_get_proc_address_v2,
	  &driver_get_proc_address_v2 },
	{ "cuGetProcAddress", 11030, (void *)cuda_get_proc_address, &driver_get_proc_address },
};

#define HOOKS	(sizeof(hooks) / sizeof(hooks[0]))

static const struct hook *find_hook(const char *name)
{
	size_t i;

	for (i = 0; i < HOOKS; i++)
		if (!strcmp(hooks[i].name, name))
			return &hooks[i];
	return NULL;
}

/* Finds the hook for the function @name in @version of CUDA. @name has no suffix _v2. */
static const struct hook *find_hook_since(const char *name, int version)
{
	size_t i, length;

	for (i = 0; i < HOOKS; i++) {
		length = strlen(hooks[i].name) - strlen(SUFFIX);
		if (strcmp(hooks[i].name + length, SUFFIX) != 0)
			length += strlen(SUFFIX);
		if (!strncmp(hooks[i].name, name, length) && !name[length] &&
		    hooks[i].since <= version)
			return &hooks[i];
	}
	return NULL;
}

/* Returns the replacement, or NULL if the driver lacks the function that the replacement calls. */
static void *ours_for(const struct hook *hook)
{
	return hook->driver && !atomic_load(hook->driver) ? NULL : hook->ours;
}

/*
 * Returns 1 if CUDA mode is on, 0 if it is off, and -1 if the mode is not known yet, because the C
 * library has not set environ.
 */
static int read_wanted(void)
{
	struct reader reader = { cuda_variables(), .names = ACTMEM_NAMES_VARIABLES };

	if (!reader_text(&reader, KNOB_CUDA) && !environ)
		return -1;
	return reader_value(&reader, KNOB_CUDA) && !getauxval(AT_SECURE) && is_glibc();
}

bool cuda_is_wanted(void)
{
	static atomic_int wanted = -1;
	int known = atomic_load_explicit(&wanted, memory_order_relaxed);

	if (known < 0) {
		known = read_wanted();
		atomic_store_explicit(&wanted, known, memory_order_relaxed);
	}
	return known > 0;
}

bool is_libcuda(const struct link_map *library)
{
	return library &&
	       !strncmp(library_soname(library), LIBRARY_INSIDE, strlen(LIBRARY_INSIDE));
}

bool cuda_is_reached(void)
{
	return atomic_load_explicit(&reached_library, memory_order_acquire);
}

/*
 * Prints why the preload does not use a library. Prints each reason once, because each lookup calls
 * this function again.
 */
static void tell_left_alone(enum tale tale, const char *path, const char *why)
{
	if (cuda_is_wanted())
		say_once(tale, "the preload does not handle %.700s, so its memory is the CUDA driver's own: %s",
			 path, why);
}

/*
 * Makes the library stay loaded, and returns a new handle. The program may have no handle, because
 * it may have loaded the library only as a dependency.
 */
static void *hold_library(struct link_map *library)
{
	void *handle = dlopen(library->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
	struct link_map *held;

	if (!handle || dlinfo(handle, RTLD_DI_LINKMAP, &held))
		return NULL;
	if (held == library)
		return handle;
	dlclose(handle);
	return NULL;
}

struct driver {
	struct cuda_host_calls host;
	void *get_proc_address, *get_proc_address_v2;	/* NULL: the library is too old */
};

/*
 * Finds the driver's functions with the next dlsym(), which may be that of another preload. Looks
 * up the optional functions first, so that successful lookups follow failed ones, and dlerror()
 * reports no failure.
 */
static bool find_driver(struct driver *found, void *handle, const char **missing)
{
	found->get_proc_address = next_dlsym(handle, "cuGetProcAddress");
	found->get_proc_address_v2 = next_dlsym(handle, "cuGetProcAddress_v2");
#define FIND(name, ours, parameters, arguments)				\
	*missing = #name;						\
	*(void **)&found->host.name = next_dlsym(handle, #name);	\
	if (!found->host.name)						\
		return false;
	CUDA_HOST_CALLS(FIND)
#undef FIND
	return true;
}

/* Fills cuda_driver. If several threads do so at the same time, they write the same values. */
static void publish_driver(const struct driver *found)
{
#define PUBLISH(name, ours, parameters, arguments)				\
	__atomic_store_n((void **)&cuda_driver.name, (void *)found->host.name, __ATOMIC_RELAXED);
	CUDA_HOST_CALLS(PUBLISH)
#undef PUBLISH
	atomic_store(&driver_get_proc_address, found->get_proc_address);
	atomic_store(&driver_get_proc_address_v2, found->get_proc_address_v2);
}

bool cuda_reach(struct link_map *library)
{
	struct link_map *known = atomic_load_explicit(&reached_library, memory_order_acquire);
	struct link_map *none = NULL;
	const char *missing;
	struct driver found;
	char why[160];
	void *handle;

	if (known == library)
		return true;
	handle = known ? NULL : hold_library(library);
	if (!known && !handle) {
		tell_left_alone(TALE_NAMESPACE, library->l_name,
				"the library is in its own namespace (dlmopen)");
		return false;
	}
	if (handle && !find_driver(&found, handle, &missing)) {
		snprintf(why, sizeof(why), "it has no %s, because it is older than CUDA 6.5", missing);
		tell_left_alone(TALE_OLD, library->l_name, why);
		return false;
	}
	if (known || (!atomic_compare_exchange_strong(&chosen_library, &none, library) &&
		      none != library)) {
		tell_left_alone(TALE_ANOTHER, library->l_name,
				"this process uses another " CUDA_LIBRARY);
		return false;
	}
	publish_driver(&found);
	atomic_store_explicit(&reached_library, library, memory_order_release);
	return true;
}

/*
 * Returns the libcuda.so.1 that a lookup searched: the one of @handle, or the one that contains
 * @found. Returns NULL if the lookup searched another library.
 */
static struct link_map *library_asked(void *handle, const void *found)
{
	struct link_map *library = NULL;

	if (handle != RTLD_DEFAULT && !dlinfo(handle, RTLD_DI_LINKMAP, &library) &&
	    !strcmp(library_soname(library), CUDA_LIBRARY))
		return library;
	library = library_of(found);
	return library && !strcmp(library_soname(library), CUDA_LIBRARY) ? library : NULL;
}

/*
 * Returns true if @asking is a library that this preload calls: libcuda.so.1, or the library with
 * the next dlsym(). Such a library must get the original functions, not the replacements.
 */
static bool is_behind_us(const struct link_map *asking)
{
	return is_libcuda(asking) || (asking && asking == library_of((void *)next_dlsym));
}

static void *find_symbol(void *handle, const char *name, const char *version)
{
	return version ? next_dlvsym(handle, name, version) : next_dlsym(handle, name);
}

/*
 * Searches the libraries that @asking is linked with. The C library would search them for @asking,
 * even if @asking was loaded with RTLD_LOCAL. The loader makes the list of these libraries only
 * when a program opens @asking with dlopen(), so this function opens @asking.
 */
static void *find_linked_by(struct link_map *asking, const char *name, const char *version)
{
	void *handle = *asking->l_name ? dlopen(asking->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	void *found;

	if (!handle)
		return NULL;
	found = find_symbol(handle, name, version);
	dlclose(handle);
	return found;
}

/*
 * Returns NULL if the C library must answer, also if no library has the function. The C library
 * then repeats the lookup, so that dlerror() returns the right error message.
 */
void *cuda_lookup(void *handle, const char *name, const char *version, const void *caller)
{
	const struct hook *hook = find_hook(name);
	struct link_map *library, *asking;
	void *found;

	if (!hook || handle == RTLD_NEXT || cuda_inside || !cuda_is_wanted())
		return NULL;
	asking = library_of(caller);
	if (is_behind_us(asking))
		return NULL;
	found = find_symbol(handle, name, version);
	if (!found && handle == RTLD_DEFAULT && asking)
		found = find_linked_by(asking, name, version);
	library = found ? library_asked(handle, found) : NULL;
	if (!library || !cuda_reach(library))
		return NULL;
	return ours_for(hook);
}

#ifdef __x86_64__

/*
 * Returns this preload's dlsym() or dlvsym() if another preload, which comes before this one, looks
 * up the next function of that name. The C library would skip this preload's functions, because the
 * lookup names a version, and this preload's functions have no version.
 */
static void *lookup_of_next(const char *name, const char *version, const void *caller)
{
	const struct link_map *ours, *asking;
	void *found = !strcmp(name, "dlsym") ? (void *)dlsym :
		      !strcmp(name, "dlvsym") ? (void *)dlvsym : NULL;

	if (!found || !next_dlvsym(RTLD_NEXT, name, version))
		return NULL;
	asking = library_of(caller);
	ours = library_of(found);
	while (ours && ours != asking)
		ours = ours->l_prev;
	return ours && ours != library_of(found) ? found : NULL;
}

void *cuda_lookup_versioned(void *handle, const char *name, const char *version,
			    const void *caller)
{
	if (!name || !version)
		return NULL;
	return handle == RTLD_NEXT ? lookup_of_next(name, version, caller) :
				     cuda_lookup(handle, name, version, caller);
}

#endif

/* Changes *@function, which the driver returned, to the replacement of @name if there is one. */
static void replace_answer(const char *name, void **function, int version)
{
	const struct hook *hook;

	if (cuda_inside || !cuda_is_wanted() || !name || !function || !*function)
		return;
	hook = find_hook_since(name, version);
	if (hook && ours_for(hook))
		*function = hook->ours;
}

cuda_result cuda_get_proc_address(const char *name, void **function, int version, uint64_t flags)
{
	cuda_result (*driver)(const char *, void **, int, uint64_t);
	cuda_result result;

	*(void **)&driver = atomic_load(&driver_get_proc_address);
	if (!driver)
		return CUDA_SYMBOL_NOT_FOUND;
	result = driver(name, function, version, flags);
	if (!result)
		replace_answer(name, function, version);
	return result;
}

cuda_result cuda_get_proc_address_v2(const char *name, void **function, int version,
				     uint64_t flags, unsigned int *status)
{
	cuda_result (*driver)(const char *, void **, int, uint64_t, unsigned int *);
	cuda_result result;

	*(void **)&driver = atomic_load(&driver_get_proc_address_v2);
	if (!driver)
		return CUDA_SYMBOL_NOT_FOUND;
	result = driver(name, function, version, flags, status);
	if (!result)
		replace_answer(name, function, version);
	return result;
}
