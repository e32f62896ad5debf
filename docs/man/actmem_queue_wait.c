/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem_queue.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#define LENGTH (4 << 20)

int main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : ".";
	struct actmem_region_options options;
	struct actmem_file_options files;
	struct actmem_completion completion;
	struct pollfd event = { .events = POLLIN };
	struct actmem_region *region;
	struct actmem_queue *queue;
	struct actmem_file *file;
	struct actmem *am;
	uint64_t count;

	ACTMEM_INIT(&options);
	options.length = LENGTH;
	ACTMEM_INIT(&files);
	files.paths = &folder;
	files.path_count = 1;
	files.flags = ACTMEM_FILE_TEMPORARY | ACTMEM_FILE_ALLOW_BUFFERED;
	if (actmem_open(&am, NULL) ||
	    actmem_region_create(am, &options, &region) ||
	    actmem_queue_create(am, NULL, &queue) ||
	    (event.fd = actmem_queue_eventfd(queue)) < 0 ||
	    actmem_queue_attach(queue, region, ACTMEM_ATTACH_PLAIN) ||
	    actmem_file_open(queue, &files, &file) ||
	    actmem_queue_spill(queue, file, 0, region, 0, LENGTH, NULL)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	/* A larger program would also poll other descriptors here. */
	while (poll(&event, 1, -1) < 0)
		;
	if (read(event.fd, &count, sizeof(count)) < 0)
		perror("read");
	while (actmem_queue_wait(queue, &completion, 1, 0) == 1)
		if (completion.result)
			fprintf(stderr, "%s\n", actmem_error());
	actmem_file_close(file);
	actmem_queue_detach(queue, region);
	actmem_queue_destroy(queue);
	actmem_region_close(region);
	return actmem_close(am) != 0;
}
