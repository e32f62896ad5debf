/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#include <actmem_store.h>
#include <inttypes.h>
#include <stdio.h>

static void observe(const struct actmem_store_event *event, void *data)
{
	uint64_t *spills = data;

	if (event->kind == ACTMEM_STORE_SPILL_END && !event->result)
		++*spills;
}

int main(void)
{
	static char data[1 << 20];
	const char *folder = ".";
	struct actmem_store_options options;
	struct actmem_store_stats stats;
	struct actmem_store *store;
	struct actmem_key key = { 0 };
	uint64_t spills = 0;
	struct actmem *am;

	ACTMEM_INIT(&options);
	options.budget_bytes = 4 << 20;
	options.spill_paths = &folder;
	options.spill_path_count = 1;
	options.flags = ACTMEM_STORE_ALLOW_BUFFERED;
	ACTMEM_INIT(&stats);
	if (actmem_open(&am, NULL) ||
	    actmem_store_create(am, &options, &store))
		goto fail;
	actmem_store_observe(store, observe, &spills);
	for (; key.name < 8; key.name++)
		if (actmem_store_put(store, key, data, sizeof(data)))
			goto fail;
	actmem_store_observe(store, NULL, NULL);
	if (actmem_store_get_stats(store, &stats))
		goto fail;
	printf("%" PRIu64 " blocks, %" PRIu64 " spills, %" PRIu64 " bytes in files\n",
	       stats.blocks, spills, stats.spilled_bytes);
	actmem_store_destroy(store);
	return actmem_close(am) != 0;
fail:
	fprintf(stderr, "%s\n", actmem_error());
	return 1;
}
