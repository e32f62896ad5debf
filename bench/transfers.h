/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Measures disks: writes a temporary file ("spill") and reads it ("fill"), through the library's
 * queue, with requests of given lengths.
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
	uint32_t flags;				/* 0 or ACTMEM_FILE_ALLOW_BUFFERED */
	uint64_t file_bytes;			/* rounded up to a multiple of @sizes' sum */
	uint64_t page_bytes;			/* page size of regions */
	uint64_t sizes[TRANSFERS_SIZES];	/* lengths of requests, used in turn; rounded up */
	uint32_t size_count;
	struct actmem_queue_options queue;	/* .size 0: default options */
	void (*begins)(void *data, uint64_t bytes);	/* called before each request; or NULL */
	void *data;
};

/*
 * Creates the file at its final length, and writes it once. On failure, returns NULL and an error
 * message in @words.
 */
struct transfers *transfers_open(struct actmem *am, const struct transfers_options *options,
				 char words[TRANSFERS_WORDS]);

void transfers_close(struct transfers *transfers);

/*
 * Spills or fills the file, repeatedly if necessary, until at least @bytes have been requested and
 * @ns have passed. Waits for all requests. Checks that fills return the data that was spilled.
 * Stores bytes per second in *@bandwidth. Returns 0, or a negative errno and an error message in
 * @words.
 */
int transfers_run(struct transfers *transfers, bool spills, uint64_t bytes, uint64_t ns,
		  double *bandwidth, char words[TRANSFERS_WORDS]);

/*
 * Return the file's properties, or a description of the queue's engine. The results are valid until
 * transfers_close().
 */
const struct actmem_file_info *transfers_file(const struct transfers *transfers);
const char *transfers_engine(const struct transfers *transfers);

#endif
