// SPDX-License-Identifier: LGPL-2.1-or-later OR MIT
/* Runs a thread that fills and verifies its own memory. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include "pattern.h"
#include "work.h"

/* The thread fills or verifies this many bytes at a time. */
#define PIECE_BYTES	(1ULL << 20)

struct work {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t change;
	char *memory;
	uint64_t pieces, next;
	bool fills, is_doing, is_ending;
	double part;
	uint64_t owed, done;		/* bytes to do and bytes done, since work_begin() */
};

static void do_piece(struct work *work)
{
	uint64_t piece = work->next++ % work->pieces;
	char *memory = work->memory + piece * PIECE_BYTES;
	bool fills = work->fills;
	struct pattern_fault fault;

	work->is_doing = true;
	pthread_mutex_unlock(&work->lock);
	if (fills)
		pattern_fill(memory, PIECE_BYTES, piece);
	else
		pattern_verify(memory, PIECE_BYTES, piece, &fault);
	pthread_mutex_lock(&work->lock);
	work->is_doing = false;
	work->done += PIECE_BYTES;
	pthread_cond_broadcast(&work->change);
}

static void *work_thread(void *data)
{
	struct work *work = data;

	pthread_mutex_lock(&work->lock);
	while (!work->is_ending) {
		if (work->done + PIECE_BYTES <= work->owed)
			do_piece(work);
		else
			pthread_cond_wait(&work->change, &work->lock);
	}
	pthread_mutex_unlock(&work->lock);
	return NULL;
}

static void free_work(struct work *work)
{
	pthread_mutex_destroy(&work->lock);
	pthread_cond_destroy(&work->change);
	free(work->memory);
	free(work);
}

struct work *work_open(uint64_t bytes)
{
	struct work *work = calloc(1, sizeof(*work));
	int error = ENOMEM;
	uint64_t i;

	if (!work)
		return NULL;
	pthread_mutex_init(&work->lock, NULL);
	pthread_cond_init(&work->change, NULL);
	work->pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
	work->memory = aligned_alloc(PIECE_BYTES, work->pieces * PIECE_BYTES);
	if (!work->memory)
		goto fail;
	for (i = 0; i < work->pieces; i++)
		pattern_fill(work->memory + i * PIECE_BYTES, PIECE_BYTES, i);
	error = pthread_create(&work->thread, NULL, work_thread, work);
	if (!error)
		return work;
fail:
	free_work(work);
	errno = error;
	return NULL;
}

void work_close(struct work *work)
{
	if (!work)
		return;
	pthread_mutex_lock(&work->lock);
	work->is_ending = true;
	pthread_cond_broadcast(&work->change);
	pthread_mutex_unlock(&work->lock);
	pthread_join(work->thread, NULL);
	free_work(work);
}

void work_begin(struct work *work, bool fills, double part)
{
	pthread_mutex_lock(&work->lock);
	work->fills = fills;
	work->part = part;
	work->owed = 0;
	work->done = 0;
	pthread_mutex_unlock(&work->lock);
}

void work_owe(struct work *work, uint64_t bytes)
{
	pthread_mutex_lock(&work->lock);
	work->owed += (uint64_t)((double)bytes * work->part);
	pthread_cond_broadcast(&work->change);
	pthread_mutex_unlock(&work->lock);
}

uint64_t work_end(struct work *work)
{
	uint64_t done;

	pthread_mutex_lock(&work->lock);
	work->owed = 0;
	while (work->is_doing)
		pthread_cond_wait(&work->change, &work->lock);
	done = work->done;
	pthread_mutex_unlock(&work->lock);
	return done;
}
