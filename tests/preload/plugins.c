/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Lookups by libraries that a program loads: they find the same, and the C library
 * knows who asks.
 *
 * Started with: ACTMEM_CUDA_KEEP=0
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "parts/linked_plugin.h"
#include "parts/plugin.h"
#include "preload_test.h"

#define CALL(library, name)	((__typeof__(&(name)))symbol(library, #name))

static void test_plugin(int flags, const char *how)
{
	void *plugin = part("plugin.so", RTLD_NOW | flags);
	int (*found)(void);
	unsigned int i;

	for (i = 0; hooked_names[i]; i++)
		is_hook(CALL(plugin, plugin_find)(hooked_names[i]), "%s in a plugin %s",
			hooked_names[i], how);
	ok(!CALL(plugin, plugin_default)("cuMemHostAlloc") && dlerror(),
	   "it has none where it has not linked CUDA");

	*(void **)&found = CALL(plugin, plugin_next)("who");
	ok(found && found() == 2, "RTLD_NEXT is what is next to the plugin");
	*(void **)&found = CALL(plugin, plugin_next)("cuWho");
	ok(found && found() == 2, "of names like CUDA's, too");
	*(void **)&found = CALL(plugin, plugin_default)("cuWho");
	ok(found && found() == 1, "and RTLD_DEFAULT what it has itself");
	ok(CALL(plugin, plugin_open_behind)(), "its RUNPATH leads to what it opens");
	dlclose(plugin);
}

/* Whose own libraries come before any other: it calls the C library's dlsym(). */
static void test_deep(void)
{
	void *plugin = part("plugin.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);

	is_of_driver(CALL(plugin, plugin_find)("cuMemHostAlloc"),
		     "a plugin that is loaded RTLD_DEEPBIND has the driver's own");
	dlclose(plugin);
}

static void test_linked(const struct cuda *cuda)
{
	void *plugin = part("linked_plugin.so", RTLD_NOW | RTLD_LOCAL), *memory;
	unsigned int flags;

	is_hook(CALL(plugin, linked_default)("cuMemHostAlloc"),
		"what a plugin alone is linked with, by RTLD_DEFAULT");
	ok(!CALL(plugin, linked_default)("cuNoSuch"), "what is not there is not found");
	is_hook(CALL(plugin, linked_function)(), "and what it calls without a lookup");
	cuda_returns(cuda->cuInit(0), CUDA_SUCCESS);
	push_primary(cuda);
	cuda_returns(cuda->cuMemHostAlloc(&memory, MIB, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
	cuda_returns(CALL(plugin, linked_flags)(&flags, memory), CUDA_SUCCESS);
	ok(flags & CU_MEMHOSTALLOC_PORTABLE, "it is told the flags (0x%x)", flags);
	cuda_returns(cuda->cuMemFreeHost(memory), CUDA_SUCCESS);
	pop_primary(cuda);
}

int main(void)
{
	struct cuda cuda = cuda_or_skip();

	test_plugin(RTLD_LOCAL, "loaded RTLD_LOCAL");
	test_plugin(RTLD_GLOBAL, "loaded RTLD_GLOBAL");
	test_deep();
	test_linked(&cuda);
	nothing_is_registered(&cuda);
	return tap_end();
}
