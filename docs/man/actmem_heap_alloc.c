/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* This program fills a block from a file. */
#include <actmem.h>
#include <actmem_queue.h>
#include <stdio.h>

#define LENGTH (1 << 20)

int main(int argc, char **argv)
{
	const char *path = argv[argc > 1];
	struct actmem_completion completion = { .result = -1 };
	struct actmem_file_options options;
	struct actmem_region *region;
	struct actmem_queue *queue;
	struct actmem_file *file;
	struct actmem_heap *heap;
	struct actmem *am;
	uint64_t offset;
	void *block;

	ACTMEM_INIT(&options);
	options.paths = &path;
	options.path_count = 1;
	options.flags = ACTMEM_FILE_READ_ONLY | ACTMEM_FILE_ALLOW_BUFFERED;
	if (actmem_open(&am, NULL) ||
	    actmem_heap_create(am, NULL, &heap) ||
	    actmem_heap_alloc(heap, LENGTH, 4096, &block) ||
	    actmem_heap_locate(heap, block, &region, &offset) ||
	    actmem_queue_create(am, NULL, &queue) ||
	    actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN) ||
	    actmem_file_open(queue, &options, &file) ||
	    actmem_queue_fill(queue, file, 0, region, offset, 4096, NULL) ||
	    actmem_queue_wait(queue, &completion, 1, ACTMEM_WAIT_FOREVER) < 0 ||
	    completion.result) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	printf("The first byte is %u\n", *(unsigned char *)block);
	actmem_file_close(file);
	actmem_queue_detach(queue, region);
	actmem_queue_destroy(queue);
	actmem_heap_free(heap, block);
	actmem_heap_destroy(heap);
	return actmem_close(am) != 0;
}
