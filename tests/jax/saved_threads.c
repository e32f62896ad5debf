// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/*
 * The handlers' table under many threads that put, take, abandon and reset,
 * built with a sanitizer. Prints TAP. Memory comes from malloc() here, so that
 * the sanitizer sees each block.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actmem_xla.h"
#include "memory.h"
#include "saved.h"

#define THREADS		8
#define ROUNDS		2000
#define VALUES		8
#define BYTES_MOST	300

static atomic_long allocated;
static atomic_long wrong;

int memory_alloc(uint64_t bytes, void **block, char *words, size_t words_size)
{
	*block = malloc(bytes);
	atomic_fetch_add(&allocated, 1);
	return 0;
}

void memory_free(void *block)
{
	free(block);
	atomic_fetch_sub(&allocated, 1);
}

static void check(int good)
{
	if (!good)
		atomic_fetch_add(&wrong, 1);
}

static void put(const struct origin *origin, uint64_t *token, uint64_t bytes)
{
	char words[SAVED_WORDS];
	struct saved *saved;

	if (saved_begin(origin, bytes, &saved, words)) {
		check(0);
		return;
	}
	*token = saved->token;
	memset(saved->data, (unsigned char)*token, bytes);
	saved_filled(saved);
}

/* Another thread may have had it reclaimed; what is found must be right. */
static void take(const struct origin *origin, uint64_t token, uint64_t bytes)
{
	char words[SAVED_WORDS];
	struct saved *saved;
	uint64_t i;

	if (saved_claim(token, bytes, origin->device, origin->run, &saved, words))
		return;
	for (i = 0; i < bytes; i++)
		check(((unsigned char *)saved->data)[i] == (unsigned char)token);
	saved_release(saved);
}

static void *rounds(void *argument)
{
	unsigned int thread = *(unsigned int *)argument, seed = thread, round, i, count;
	uint64_t tokens[VALUES], bytes[VALUES];
	struct origin origin;
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
			put(&origin, &tokens[i], bytes[i]);
		}
		if (rand_r(&seed) % 3)
			for (i = count; i-- > 0; )
				take(&origin, tokens[i], bytes[i]);
		if (rand_r(&seed) % 500 == 0)
			actmem_xla_reset();
	}
	return NULL;
}

static int result(int number, int good, const char *what)
{
	printf("%s %d - %s\n", good ? "ok" : "not ok", number, what);
	return !good;
}

int main(void)
{
	unsigned int numbers[THREADS], i;
	struct actmem_xla_stats stats;
	pthread_t threads[THREADS];
	int failed = 0;

	for (i = 0; i < THREADS; i++) {
		numbers[i] = i;
		if (pthread_create(&threads[i], NULL, rounds, &numbers[i]))
			return 1;
	}
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	actmem_xla_reset();
	ACTMEM_INIT(&stats);
	actmem_xla_stats(&stats);

	printf("1..4\n");
	failed |= result(1, !wrong, "every value came back as it was put");
	failed |= result(2, !allocated, "every block was freed once");
	failed |= result(3, !stats.live_blocks && !stats.live_bytes &&
			 !stats.generations, "nothing is left");
	failed |= result(4, stats.takes_total && stats.reclaimed_blocks_total &&
			 stats.reset_blocks_total &&
			 stats.puts_total == stats.takes_total +
			 stats.reclaimed_blocks_total + stats.reset_blocks_total,
			 "what was put was taken, reclaimed or reset");
	return failed;
}
