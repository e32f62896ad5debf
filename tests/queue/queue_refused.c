/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * If io_uring is refused, as by seccomp in many containers or by a low RLIMIT_MEMLOCK, a queue that
 * may choose works with threads and says so. A queue that must have io_uring is an error.
 */
#include "queue_test.h"
#include "refuse.h"

static bool fills(struct actmem *am, struct actmem_queue *queue)
{
	struct set set = set_or_bail(queue, 2, 64 * KIB, LENGTH);
	struct actmem_region *region = region_or_bail(am, "refused");
	char *memory = memory_or_bail(region), *wanted = malloc(LENGTH);
	bool same;
	unsigned int i;

	pattern(wanted, LENGTH, 1);
	same = set_transfer(&set, wanted, 0, LENGTH, true) &&
	       !actmem_queue_attach(queue, region, 0) &&
	       !fill_result(queue, set.file, 0, region, 0, LENGTH) &&
	       !memcmp(memory, wanted, LENGTH) && !actmem_queue_detach(queue, region);
	free(wanted);
	for (i = 0; i < set.count; i++)
		unlink(set.paths[i]);
	return same && !actmem_file_close(set.file) && !actmem_region_close(region);
}

static bool works_without(void *context)
{
	int error = *(int *)context;
	struct actmem_queue_options options;
	struct actmem_queue *queue;
	struct actmem *am = open_or_bail();

	ACTMEM_INIT(&options);
	options.engine = ACTMEM_ENGINE_URING;
	if (!refuse_uring(error) || actmem_queue_create(am, &options, &queue) != -error ||
	    !strstr(actmem_error(), "unavailable"))
		return false;
	if (actmem_queue_create(am, NULL, &queue))
		return false;
	printf("# %s\n", actmem_queue_describe(queue));
	return strstr(actmem_queue_describe(queue), "workers: io_uring is unavailable") &&
	       fills(am, queue) && !actmem_queue_destroy(queue) && !actmem_close(am);
}

static const struct {
	struct actmem_queue_options options;
	const char *words;		/* NULL: the options are good */
} cases[] = {
	{ { .depth = ACTMEM_QUEUE_DEPTH_MAX + 1 }, "depth is 257" },
	{ { .block_bytes = 4095 }, "block_bytes is 4095" },
	{ { .block_bytes = ACTMEM_BLOCK_BYTES_MAX + 4096 }, "up to 1 GiB" },
	{ { .block_bytes = ACTMEM_BLOCK_BYTES_MAX }, NULL },
	{ { .workers = ACTMEM_QUEUE_WORKERS_MAX + 1 }, "workers is 65" },
	{ { .engine = ACTMEM_ENGINE_WORKERS + 1 }, "queue engine 3" },
	{ { .reserved = 1 }, "reserved is not 0" },
};

static void test_options(void)
{
	struct actmem *am = open_or_bail();
	struct actmem_queue_options options;
	struct actmem_queue *queue;
	unsigned int i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		options = cases[i].options;
		options.size = sizeof(options);
		returns(actmem_queue_create(am, &options, &queue), cases[i].words ? -EINVAL : 0);
		if (cases[i].words)
			says(cases[i].words);
		else
			destroy_idle(queue);
	}
	returns(actmem_queue_create(NULL, NULL, &queue), -EINVAL);
	returns(actmem_queue_create(am, NULL, NULL), -EINVAL);
	returns(actmem_queue_create(am, NULL, &queue), 0);
	ok(!strncmp(actmem_queue_describe(queue), "io_uring", 8) == uring_is_there(am),
	   "left to choose, it has io_uring where that is permitted");
	destroy_idle(queue);
	returns(actmem_close(am), 0);
}

int main(void)
{
	struct usage before = usage_now();
	int errors[] = { EPERM, ENOSYS, ENOMEM };

	test_options();
	ok(in_child(works_without, &errors[0]), "refused with EPERM");
	ok(in_child(works_without, &errors[1]), "refused with ENOSYS");
	ok(in_child(works_without, &errors[2]), "refused with ENOMEM");
	same_usage(before);
	return tap_end();
}
