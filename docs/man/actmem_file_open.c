/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem_queue.h>
#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : ".";
	struct actmem_file_options options;
	struct actmem_file_info info;
	struct actmem_queue *queue;
	struct actmem_file *file;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.paths = &path;
	options.path_count = 1;
	options.flags = ACTMEM_FILE_TEMPORARY | ACTMEM_FILE_ALLOW_BUFFERED;
	options.length = 1 << 20;
	ACTMEM_INIT(&info);
	if (actmem_open(&am, NULL) ||
	    actmem_queue_create(am, NULL, &queue) ||
	    actmem_file_open(queue, &options, &file) ||
	    actmem_file_get_info(file, &info)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	printf("%s, alignment %" PRIu64 ", blocks of %" PRIu64 "\n",
	       info.direct ? "direct" : "buffered", info.alignment,
	       info.block_bytes);
	actmem_file_close(file);
	actmem_queue_destroy(queue);
	return actmem_close(am) != 0;
}
