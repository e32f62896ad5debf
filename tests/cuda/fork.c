/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A forked child has no use of its parent's runtime, nor of CUDA if the parent used
 * it: it is told so, and CUDA is not called. One that was forked before has.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cuda_test.h"

struct parent {
	struct cuda cuda;
	struct actmem *am;
	struct actmem_region *region;
	struct actmem_runtime *runtime;
	char *memory;
};

static bool handles_are_refused(void *context)
{
	struct parent *p = context;
	struct actmem_registration registration = { .size = sizeof(registration) };
	struct actmem_runtime_info info = { .size = sizeof(info) };
	struct actmem_nodes nodes;
	uint64_t before = counts_of(&p->cuda).calls, pointer;

	return refused(actmem_runtime_get_info(p->runtime, &info)) &&
	       refused(actmem_runtime_nodes(p->runtime, &nodes)) &&
	       refused(actmem_region_register(p->region, p->runtime, 0)) &&
	       refused(actmem_region_get_registration(p->region, &registration)) &&
	       refused(actmem_runtime_pointer(p->runtime, p->memory, &pointer, NULL)) &&
	       refused(actmem_region_unregister(p->region)) &&
	       refused(actmem_runtime_close(p->runtime)) && counts_of(&p->cuda).calls == before;
}

static bool opens(enum actmem_runtime_kind kind, int wanted)
{
	struct actmem_runtime_options options = { .size = sizeof(options), .kind = kind };
	struct actmem_runtime *runtime;
	struct actmem *am;
	int error;

	if (actmem_open(&am, NULL))
		return false;
	error = actmem_runtime_open(am, &options, &runtime);
	if (error != wanted)
		return false;
	if (!error && actmem_runtime_close(runtime))
		return false;
	if (error && !strstr(actmem_error(), "forked"))
		return false;
	return !actmem_close(am);
}

static bool child_has_no_cuda(void *context)
{
	struct parent *p = context;
	uint64_t before = counts_of(&p->cuda).calls;

	return opens(ACTMEM_RUNTIME_CUDA, -EOWNERDEAD) && opens(ACTMEM_RUNTIME_AUTO, -EOWNERDEAD) &&
	       opens(ACTMEM_RUNTIME_NULL, 0) && counts_of(&p->cuda).calls == before;
}

static bool child_registers(void *context)
{
	struct actmem *am = open_or_bail();
	struct actmem_region *region = region_or_bail(am, "of the child");
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);

	return !actmem_region_register(region, runtime, 0) && !actmem_region_unregister(region) &&
	       !actmem_runtime_close(runtime) && !actmem_region_close(region) &&
	       !actmem_close(am);
}

/* Forked from one that used CUDA by itself, of which the library knows nothing. */
static bool child_of_a_user(void *context)
{
	return opens(ACTMEM_RUNTIME_CUDA, -EOWNERDEAD) && strstr(actmem_error(), "spawn");
}

static bool uses_cuda_and_forks(void *context)
{
	struct parent *p = context;

	return !p->cuda.cuInit(0) && in_child(child_of_a_user, NULL);
}

int main(void)
{
	struct parent p;

	p.cuda = cuda_or_skip();
	p.am = open_or_bail();
	p.region = region_or_bail(p.am, "of the parent");
	p.memory = memory_or_bail(p.region);
	ok(in_child(child_registers, NULL), "a child that is forked before CUDA is used can use it");
	ok(in_child(uses_cuda_and_forks, &p), "one of a program that has used it is told why not");

	p.runtime = runtime_or_bail(p.am, ACTMEM_RUNTIME_CUDA);
	returns(actmem_region_register(p.region, p.runtime, 0), 0);
	ok(in_child(handles_are_refused, &p), "a child has no use of its parent's runtime");
	ok(in_child(child_has_no_cuda, &p), "nor of CUDA, which is not called");
	ok(!registration_of(p.region).lost_chunks, "the parent has all that it had");
	returns(actmem_region_unregister(p.region), 0);
	ok(!runtime_info(p.runtime).lost_total, "nothing was lost");
	returns(actmem_runtime_close(p.runtime), 0);
	returns(actmem_region_close(p.region), 0);
	counters_are_zero(p.am);
	returns(actmem_close(p.am), 0);
	nothing_is_retained(&p.cuda);
	return tap_end();
}
