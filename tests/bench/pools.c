// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Pools that are reckoned; see pools.h. Pieces are few, so lists do. */
#include <stdio.h>
#include <stdlib.h>

#include "pools.h"

#define UNIT		256ULL
#define FIRST_REGION	(2ULL << 20)
#define TAKEN_WHOLE	(128ULL << 20)

struct piece {
	struct piece *before, *after;	/* neighbours in the region */
	struct piece *next;		/* of all pieces */
	uint64_t length;
	bool taken, gone;
};

struct pool {
	struct piece *pieces;
	uint64_t next_region;
	uint64_t bytes;
};

static struct piece *new_piece(struct pool *pool, uint64_t length)
{
	struct piece *piece;

	for (piece = pool->pieces; piece && !piece->gone; piece = piece->next)
		;
	if (!piece) {
		piece = malloc(sizeof(*piece));
		if (!piece) {
			perror("no memory for a pool");
			exit(1);
		}
		piece->next = pool->pieces;
		pool->pieces = piece;
	}
	piece->before = NULL;
	piece->after = NULL;
	piece->length = length;
	piece->taken = false;
	piece->gone = false;
	return piece;
}

static struct piece *extend(struct pool *pool, uint64_t length)
{
	bool doubled = false;
	struct piece *piece;

	while (pool->next_region < length) {
		pool->next_region *= 2;
		doubled = true;
	}
	piece = new_piece(pool, pool->next_region);
	pool->bytes += pool->next_region;
	if (!doubled)
		pool->next_region *= 2;
	return piece;
}

static struct piece *take(struct pool *pool, uint64_t length)
{
	struct piece *piece, *best = NULL, *rest;

	for (piece = pool->pieces; piece; piece = piece->next)
		if (!piece->gone && !piece->taken && piece->length >= length &&
		    (!best || piece->length < best->length))
			best = piece;
	if (!best)
		best = extend(pool, length);
	if (best->length >= 2 * length || best->length - length >= TAKEN_WHOLE) {
		rest = new_piece(pool, best->length - length);
		rest->before = best;
		rest->after = best->after;
		if (rest->after)
			rest->after->before = rest;
		best->after = rest;
		best->length = length;
	}
	best->taken = true;
	return best;
}

static void join(struct piece *piece)
{
	struct piece *after = piece->after;

	piece->length += after->length;
	piece->after = after->after;
	if (piece->after)
		piece->after->before = piece;
	after->gone = true;
}

static void give(struct piece *piece)
{
	piece->taken = false;
	if (piece->after && !piece->after->taken)
		join(piece);
	if (piece->before && !piece->before->taken)
		join(piece->before);
}

uint64_t pool_doubling(const struct trace *trace, unsigned int steps)
{
	struct piece **blocks = calloc(trace->blocks, sizeof(*blocks)), *piece;
	struct pool pool = { NULL, FIRST_REGION, 0 };
	size_t i;

	while (steps--) {
		for (i = 0; i < trace->events; i++) {
			uint32_t block = trace->event[i].block;

			if (trace->event[i].gives)
				give(blocks[block]);
			else
				blocks[block] = take(&pool, (trace->bytes[block] + UNIT - 1) /
						     UNIT * UNIT);
		}
	}
	while ((piece = pool.pieces)) {
		pool.pieces = piece->next;
		free(piece);
	}
	free(blocks);
	return pool.bytes;
}

uint64_t pool_powers_of_two(const struct trace *trace, unsigned int steps)
{
	uint64_t bytes = 0, free_blocks[64] = { 0 };
	size_t i;

	while (steps--) {
		for (i = 0; i < trace->events; i++) {
			unsigned int power = 0;

			while (1ULL << power < trace->bytes[trace->event[i].block])
				power++;
			if (trace->event[i].gives)
				free_blocks[power]++;
			else if (free_blocks[power])
				free_blocks[power]--;
			else
				bytes += 1ULL << power;
		}
	}
	return bytes;
}
