/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * A memory cgroup that is too small refuses a region in words, and nobody is
 * killed. The cgroup is made for the test, in whichever version is there.
 */
#include "memory_group.h"

#define LIMIT		(32 * MIB)
#define TOO_LONG	(64 * MIB)

static bool refused_within(void *context)
{
	const struct group *group = context;
	struct actmem_region_options options = { .size = sizeof(options), .length = TOO_LONG };
	struct actmem_region *region;
	struct actmem *am;
	int error;

	if (!enter_group(group) || actmem_open(&am, NULL))
		return false;
	error = actmem_region_create(am, &options, &region);
	/* Hugetlb pages are counted by another controller. */
	if (!memlock_counts(am))
		return !error && !actmem_region_close(region) && !actmem_close(am);
	printf("# %s\n", actmem_error());
	if (error != -ENOMEM || !strstr(actmem_error(), "memory cgroup") ||
	    !strstr(actmem_error(), "64.0 MiB wanted") ||
	    !strstr(actmem_error(), strrchr(group->folder, '/')) ||
	    !strstr(actmem_error(), group->limit_file))
		return false;
	options.length = LENGTH;
	return !actmem_region_create(am, &options, &region) && !actmem_region_close(region) &&
	       !actmem_close(am);
}

int main(void)
{
	struct group group = { 0 };

	if (make_group(&group, LIMIT))
		ok(in_child(refused_within, &group),
		   "a memory cgroup refuses: bytes and knob are named, and less can be had");
	else
		tap_skip("no memory cgroup can be made here (%s)", strerror(errno));
	remove_group(&group);
	return tap_end();
}
