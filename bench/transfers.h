/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Measures a disk with requests of some lengths: spills to a file of its own and fills
 * from it, through the library's queue.
 */
#ifndef ACTMEM_TRANSFERS_H
#define ACTMEM_TRANSFERS_H

#include <stdbool.h>
#include <stdint.h>
#include "actmem_queue.h"

#define TRANSFERS_WORDS	1024
#define TRANSFERS_SIZES	4

struct transfers;

struct transfers_options {
	const char *const *paths;		/* directories; the file is striped over them */
	uint32_t path_count;
	uint32_t flags;				/* ACTMEM_FILE_ALLOW_BUFFERED */
	uint64_t file_bytes;			/* rounded up to requests */
	uint64_t page_bytes;			/* of regions */
	uint64_t sizes[TRANSFERS_SIZES];	/* of requests, in turn; padded as the file needs */
	uint32_t size_count;
	struct actmem_queue_options queue;	/* size 0: defaults */
	void (*begins)(void *data, uint64_t bytes);	/* with each request; NULL: nothing */
	void *data;
};

/* NULL: @words tell why. The file is as long as it will be, and written once. */
struct transfers *transfers_open(struct actmem *am, const struct transfers_options *options,
				 char words[TRANSFERS_WORDS]);

void transfers_close(struct transfers *transfers);

/*
 * Goes through the file, again and again if need be, until so many bytes and so
 * much time have gone, and waits for all of it. It compares what is filled with what
 * was spilled there. *@bandwidth: bytes a second. 0 or a negative errno, with words.
 */
int transfers_run(struct transfers *transfers, bool spills, uint64_t bytes, uint64_t ns,
		  double *bandwidth, char words[TRANSFERS_WORDS]);

/* The file as it was opened, and the queue's engine; valid until transfers_close(). */
const struct actmem_file_info *transfers_file(const struct transfers *transfers);
const char *transfers_engine(const struct transfers *transfers);

#endif
