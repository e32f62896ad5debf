/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This program takes blocks from a store and reads its standard input at the same time. The store's
 * budget holds a third of the blocks, so most of them are in a file.
 */
#include <actmem_store.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LENGTH (1 << 20)
#define LAYERS 24

static struct pollfd events[2] = { { .events = POLLIN }, { .events = POLLIN } };

static int put(struct actmem_store *store, uint64_t layer)
{
	static char data[LENGTH];

	memset(data, (int)layer, LENGTH);
	return actmem_store_put(store, (struct actmem_key){ .name = layer }, data, LENGTH);
}

static void wait_for_events(void)
{
	char line[80];
	uint64_t count;
	ssize_t bytes;

	poll(events, 2, -1);
	if (events[0].revents && read(events[0].fd, &count, sizeof(count)) < 0)
		perror("read");
	if (!events[1].revents)
		return;
	bytes = read(events[1].fd, line, sizeof(line));
	printf("input: %.*s\n", bytes > 0 ? (int)bytes : 0, line);
	if (bytes <= 0)
		events[1].fd = -1;	/* poll(2) ignores this entry */
}

static int take(struct actmem_store *store, uint64_t layer)
{
	struct actmem_key key = { .name = layer };
	const void *memory;
	int error = actmem_store_prefetch(store, key);

	while (!error && (error = actmem_store_hold(store, key, &memory, NULL, 0)) == -ETIMEDOUT) {
		wait_for_events();
		error = 0;
	}
	if (error)
		return error;
	printf("%u ", *(const unsigned char *)memory);
	return actmem_store_release(store, key);
}

int main(int argc, char **argv)
{
	const char *folder = argc > 1 ? argv[1] : ".";
	struct actmem_store_options options;
	struct actmem_store *store;
	struct actmem *am;
	uint64_t layer;
	int error;

	ACTMEM_INIT(&options);
	options.budget_bytes = 8 << 20;
	options.grow_bytes = 2 << 20;
	options.spill_paths = &folder;
	options.spill_path_count = 1;
	options.flags = ACTMEM_STORE_ALLOW_BUFFERED | ACTMEM_STORE_CHECKSUM;
	error = actmem_open(&am, NULL) || actmem_store_create(am, &options, &store);
	if (!error) {
		events[0].fd = actmem_store_eventfd(store);
		error = events[0].fd < 0;
	}
	for (layer = 0; layer < LAYERS && !error; layer++)
		error = put(store, layer);
	for (layer = 0; layer < LAYERS && !error; layer++)
		error = take(store, layer);
	if (error) {
		fprintf(stderr, "%s\n", actmem_error());
		return 1;
	}
	printf("\n");
	actmem_store_destroy(store);
	return actmem_close(am) != 0;
}
