/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The handlers' table and its store under many threads that put, take, abandon,
 * reset and read statistics, built with a sanitizer. Prints TAP. The environment
 * says what the store is to be like: with ACTMEM_BUDGET and ACTMEM_SPILL most
 * blocks go through files.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla/actmem_xla.h"
#include "xla/saved.h"

#define THREADS		6
#define ROUNDS		400
#define VALUES		8
#define EXAMPLES_MOST	4
#define BYTES_MOST	(120000 / EXAMPLES_MOST)	/* of an example */
#define PAIRS		100
#define PAIR_ROUNDS	60
#define PAIR_BYTES	30000			/* PAIRS of two are more than the budget */

static atomic_long wrong;

static void check(int good)
{
	if (!good)
		atomic_fetch_add(&wrong, 1);
}

static void fill(void *data, const struct rows *rows, uint64_t row_bytes)
{
	uint64_t i;

	for (i = 0; i < rows->count; i++)
		memset((char *)data + i * row_bytes, (unsigned char)(rows->id + rows->first + i),
		       row_bytes);
}

static int is_filled(const void *data, const struct rows *rows, uint64_t row_bytes)
{
	const unsigned char *at = data;
	uint64_t i;

	for (i = 0; i < rows->count; i++, at += row_bytes)
		if (at[0] != (unsigned char)(rows->id + rows->first + i) ||
		    memcmp(at, at + 1, row_bytes - 1))
			return 0;
	return 1;
}

/* The id of a block of some thread, which another thread ends. */
static uint64_t shared;
static uint64_t ended_by_takes;

static void put(const struct origin *origin, struct rows *rows, uint64_t row_bytes)
{
	char words[SAVED_WORDS];
	struct saved *saved;

	if (saved_begin(origin, rows->count * row_bytes, &saved, words)) {
		fprintf(stderr, "# %s\n", words);
		check(0);
		return;
	}
	rows->id = saved->token;
	fill(saved->fill, rows, row_bytes);
	saved_filled(saved);
}

/* Another thread may have had the block reclaimed; what is found must be right. */
static void take(const struct origin *origin, const struct rows *rows, uint64_t row_bytes)
{
	char words[SAVED_WORDS];
	struct claim *claim;
	int ret, is_last;

	ret = saved_claim(rows, rows->count * row_bytes, origin, &claim, words);
	if (ret) {
		if (ret != -ESTALE && ret != -ENOENT)
			fprintf(stderr, "# %s\n", words);
		check(ret == -ESTALE || ret == -ENOENT);
		return;
	}
	check(is_filled(claim->memory, rows, row_bytes));
	is_last = claim->ends;
	saved_release(claim);
	if (is_last)
		__atomic_add_fetch(&ended_by_takes, 1, __ATOMIC_RELAXED);
}

/* Takes the examples of a block one by one, in another order than they were put in. */
static void take_each(const struct origin *origin, const struct rows *rows, uint64_t row_bytes)
{
	struct rows row = { .id = rows->id, .count = 1 };
	uint64_t i;

	for (i = 0; i < rows->count; i++) {
		row.first = (i + 1) % rows->count;
		take(origin, &row, row_bytes);
	}
}

/* A take of more examples than there are, and one of another shape, are refused. */
static void take_wrongly(const struct origin *origin, const struct rows *rows,
			 uint64_t row_bytes)
{
	struct rows more = { .id = rows->id, .first = 1, .count = rows->count };
	struct origin other = *origin;
	char words[SAVED_WORDS];
	struct claim *claim;

	check(saved_claim(&more, rows->count * row_bytes, origin, &claim, words) < 0);
	check(saved_claim(rows, rows->count * row_bytes + 1, origin, &claim, words) < 0);
	other.shape.hash++;
	check(saved_claim(rows, rows->count * row_bytes, &other, &claim, words) < 0);
}

static void *rounds(void *argument)
{
	unsigned int thread = *(unsigned int *)argument, seed = thread, round, i, count;
	uint64_t bytes[VALUES], others;
	struct rows values[VALUES] = { 0 };
	struct actmem_store_stats stats;
	struct origin origin = { .is_gpu = 0 };
	char site[32];

	for (round = 0; round < ROUNDS; round++) {
		snprintf(site, sizeof(site), "site %d", rand_r(&seed) % 5);
		origin.site = site;
		origin.site_length = strlen(site);
		origin.bounded = rand_r(&seed) % 4 != 0;
		origin.run = (int64_t)thread * ROUNDS + round;
		origin.device = (uint32_t)rand_r(&seed) % 3;
		count = 1 + (unsigned int)rand_r(&seed) % VALUES;
		for (i = 0; i < count; i++) {
			bytes[i] = 1 + (uint64_t)rand_r(&seed) % BYTES_MOST;
			values[i].first = 0;
			values[i].count = 1 + (uint64_t)rand_r(&seed) % EXAMPLES_MOST;
			origin.examples = values[i].count;
			origin.shape.hash = bytes[i];
			put(&origin, &values[i], bytes[i]);
		}
		/* Other threads hold some of the blocks, and end them later. */
		origin.ends = 0;
		for (i = 0; i < count; i += 1 + (unsigned int)rand_r(&seed) % 8) {
			others = __atomic_exchange_n(&shared, values[i].id, __ATOMIC_RELAXED);
			origin.shape.hash = bytes[i];
			saved_reference(values[i].id, 2);
			take_wrongly(&origin, &values[i], bytes[i]);
			take(&origin, &values[i], bytes[i]);
			saved_unreference(values[i].id, 1);
			saved_unreference(others, 1);
		}
		origin.ends = rand_r(&seed) % 2;
		if (rand_r(&seed) % 3)
			for (i = count; i-- > 0; ) {
				origin.shape.hash = bytes[i];
				if (rand_r(&seed) % 2)
					take(&origin, &values[i], bytes[i]);
				else
					take_each(&origin, &values[i], bytes[i]);
				if (!origin.ends)
					saved_unreference(values[i].id, values[i].count);
			}
		if (rand_r(&seed) % 50 == 0) {
			actmem_xla_reset(NULL, 0);
			check(!actmem_xla_trim());
		}
		ACTMEM_INIT(&stats);
		check(!actmem_xla_store_stats(&stats));
	}
	return NULL;
}

static struct rows pairs[PAIRS];
static pthread_barrier_t both;

/* Takes one of the two examples of each block, while another thread takes the other one. */
static void *take_halves(void *argument)
{
	struct origin origin = {
		.site = "pairs", .site_length = 5, .examples = 2, .ends = true,
		.shape.hash = PAIR_BYTES,
	};
	struct rows row = { .first = *(unsigned int *)argument, .count = 1 };
	char words[SAVED_WORDS];
	struct claim *claim;
	unsigned int i;

	for (i = 0; i < PAIRS; i++) {
		row.id = pairs[i].id;
		pthread_barrier_wait(&both);
		if (saved_claim(&row, PAIR_BYTES, &origin, &claim, words)) {
			fprintf(stderr, "# %s\n", words);
			check(0);
			continue;
		}
		check(is_filled(claim->memory, &row, PAIR_BYTES));
		if (claim->ends)
			__atomic_add_fetch(&ended_by_takes, 1, __ATOMIC_RELAXED);
		saved_release(claim);
	}
	return NULL;
}

static void take_pairs(void)
{
	struct origin origin = {
		.site = "pairs", .site_length = 5, .examples = 2, .shape.hash = PAIR_BYTES,
	};
	unsigned int numbers[2] = { 0, 1 }, i;
	pthread_t threads[2];

	pthread_barrier_init(&both, NULL, 2);
	for (i = 0; i < PAIRS; i++) {
		pairs[i] = (struct rows){ .count = 2 };
		put(&origin, &pairs[i], PAIR_BYTES);
	}
	for (i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, take_halves, &numbers[i]);
	for (i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	pthread_barrier_destroy(&both);
}

static int result(int number, int good, const char *what)
{
	printf("%s %d - %s\n", good ? "ok" : "not ok", number, what);
	return !good;
}

int main(void)
{
	unsigned int numbers[THREADS], i;
	struct actmem_store_stats store;
	struct actmem_xla_stats stats;
	struct actmem_counters memory;
	pthread_t threads[THREADS];
	int failed = 0, trimmed;

	for (i = 0; i < THREADS; i++) {
		numbers[i] = i;
		if (pthread_create(&threads[i], NULL, rounds, &numbers[i]))
			return 1;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (i = 0; i < PAIR_ROUNDS; i++)
		take_pairs();
	actmem_xla_reset(NULL, 0);
	ACTMEM_INIT(&stats);
	actmem_xla_stats(&stats);
	ACTMEM_INIT(&store);
	actmem_xla_store_stats(&store);
	trimmed = actmem_xla_trim();
	ACTMEM_INIT(&memory);
	actmem_get_counters(actmem_xla_attached(), &memory);

	printf("1..5\n");
	failed |= result(1, !wrong, "every value came back as it was put");
	failed |= result(2, !stats.live_blocks && !stats.live_bytes &&
			 !stats.generations && !store.blocks, "nothing is left");
	failed |= result(3, stats.takes_total && stats.reclaimed_blocks_total &&
			 stats.reset_blocks_total && !stats.lost_blocks_total &&
			 stats.dropped_blocks_total &&
			 stats.puts_total == ended_by_takes + stats.dropped_blocks_total +
			 stats.reclaimed_blocks_total + stats.reset_blocks_total &&
			 store.puts_total == stats.puts_total,
			 "what was put was taken, dropped, reclaimed or reset");
	failed |= result(4, !trimmed && !memory.regions && !memory.blocks,
			 "its memory went back");
	failed |= result(5, !getenv("ACTMEM_BUDGET") == !store.spilled_bytes_total &&
			 !getenv("ACTMEM_BUDGET") == !store.filled_bytes_total,
			 getenv("ACTMEM_BUDGET") ? "blocks went through files" :
			 "no block went through a file");
	return failed;
}
