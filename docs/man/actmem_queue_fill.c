/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* This program spills half of a region to a file, and fills the other half from that file. */
#include <actmem_queue.h>
#include <stdio.h>
#include <string.h>

#define HALF (1 << 20)

/* Waits for the only request, and returns its result. */
static int finish(struct actmem_queue *queue)
{
	struct actmem_completion completion;
	int taken = actmem_queue_wait(queue, &completion, 1, ACTMEM_WAIT_FOREVER);

	return taken < 0 ? taken : completion.result;
}

int main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : ".";
	struct actmem_region_options options;
	struct actmem_file_options files;
	struct actmem_region *region;
	struct actmem_queue *queue;
	struct actmem_file *file;
	struct actmem *am;
	void *address;
	char *memory;

	ACTMEM_INIT(&options);
	options.length = 2 * HALF;
	ACTMEM_INIT(&files);
	files.paths = &folder;
	files.path_count = 1;
	files.flags = ACTMEM_FILE_TEMPORARY | ACTMEM_FILE_ALLOW_BUFFERED;
	files.length = HALF;
	if (actmem_open(&am, NULL) ||
	    actmem_region_create(am, &options, &region) ||
	    actmem_region_map(region, &address) ||
	    actmem_queue_create(am, NULL, &queue) ||
	    actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN) ||
	    actmem_file_open(queue, &files, &file))
		goto fail;
	memory = address;
	memset(memory, 7, HALF);
	if (actmem_queue_spill(queue, file, 0, region, 0, HALF, NULL) ||
	    finish(queue) ||
	    actmem_queue_fill(queue, file, 0, region, HALF, HALF, NULL) ||
	    finish(queue))
		goto fail;
	if (memcmp(memory, memory + HALF, HALF))
		return 1;
	actmem_file_close(file);
	actmem_queue_detach(queue, region);
	actmem_queue_destroy(queue);
	actmem_region_close(region);
	return actmem_close(am) != 0;
fail:
	fprintf(stderr, "%s\n", actmem_error());
	return 1;
}
