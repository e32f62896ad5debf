/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This program puts blocks into a store whose budget holds a third of them, and takes the blocks in
 * reverse order.
 */
#include <actmem_store.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LENGTH (1 << 20)
#define LAYERS 24

static int forward(struct actmem_store *store)
{
	uint64_t layer;

	for (layer = 0; layer < LAYERS; layer++) {
		struct actmem_key key = { .name = layer };
		void *memory;
		int error = actmem_store_reserve(store, key, LENGTH, &memory,
						 ACTMEM_WAIT_FOREVER);

		if (error)
			return error;
		memset(memory, (int)layer, LENGTH);
		error = actmem_store_commit(store, key);
		if (error)
			return error;
	}
	return 0;
}

static int backward(struct actmem_store *store)
{
	uint64_t layer;

	for (layer = LAYERS; layer-- > 0;) {
		struct actmem_key key = { .name = layer };
		const void *memory;
		int error = actmem_store_hold(store, key, &memory, NULL,
					      ACTMEM_WAIT_FOREVER);

		if (error)
			return error;
		printf("%u ", *(const unsigned char *)memory);
		error = actmem_store_release(store, key);
		if (error)
			return error;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : ".";
	struct actmem_store_options options;
	struct actmem_store *store;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.budget_bytes = 8 << 20;
	options.grow_bytes = 2 << 20;
	options.spill_paths = &folder;
	options.spill_path_count = 1;
	options.flags = ACTMEM_STORE_ALLOW_BUFFERED | ACTMEM_STORE_CHECKSUM;
	if (actmem_open(&am, NULL) ||
	    actmem_store_create(am, &options, &store) ||
	    forward(store) || backward(store)) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	printf("\n%s\n", actmem_store_describe(store));
	actmem_store_destroy(store);
	return actmem_close(am) != 0;
}
