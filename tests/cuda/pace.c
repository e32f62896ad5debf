/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Long regions of heaps are registered in pieces, in which blocks lie whole, and others
 * come to the driver's lock between two of them.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "cuda_test.h"
#include "../heap/heap_test.h"
#include "runtime/inside.h"

#define BLOCK		(5 * MIB)
#define PIECES		24
#define PINNED		(PIECES * CHUNK)
#define RATE		"100"		/* bytes a microsecond: 21 ms for a chunk */

static struct cuda cuda;

/*
 * A thread that asks for what the driver answers with its lock held, and then sees how many
 * pieces are registered: if some, but not all are, it has come between two.
 */
static struct {
	pthread_t thread;
	CUcontext context;
	atomic_bool is_ending;
	atomic_uint calls, between;
} neighbour;

static unsigned int pauses;

/* In the place of the C library's: what the library pauses by. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
		    struct timespec *left)
{
	pauses++;
	return nanosleep(time, left);
}

static void *ask(void *unused)
{
	size_t left, total;
	uint64_t registered;

	cuda.cuCtxSetCurrent(neighbour.context);
	while (!neighbour.is_ending) {
		if (cuda.cuMemGetInfo_v2(&left, &total))
			continue;
		registered = counts_of(&cuda).registered;
		neighbour.between += registered && registered < PIECES;
		neighbour.calls++;
	}
	return unused;
}

/* The length of pieces follows the driver's speed, up to PIECE_MOST. */
static void test_lengths(struct actmem *am)
{
	struct actmem_runtime *runtime = whole_runtime_or_bail(am);
	unsigned int i;

	ok(runtime_piece_bytes(runtime) == PIECE_LEAST, "the first piece is short");
	for (i = 0; i < 20; i++)
		pace_learn(runtime, PIECE_LEAST, 1);
	ok(runtime_piece_bytes(runtime) > PIECE_LEAST && runtime_piece_bytes(runtime) <= PIECE_MOST,
	   "a fast driver gets pieces of %llu bytes",
	   (unsigned long long)runtime_piece_bytes(runtime));
	pace_learn(runtime, PIECE_LEAST, 10 * NS_PER_SECOND);
	ok(runtime_piece_bytes(runtime) == PIECE_LEAST, "a slow one gets short ones at once");
	returns(actmem_runtime_close(runtime), 0);
}

static struct actmem_heap *heap_or_bail(struct actmem *am, struct actmem_runtime *runtime,
					uint64_t grow_bytes, uint64_t limit_bytes)
{
	struct actmem_heap *heap = make_heap(am, grow_bytes, limit_bytes);

	if (actmem_heap_register(heap, runtime, ACTMEM_REGISTER_DEVICEMAP))
		tap_bail("actmem_heap_register");
	return heap;
}

static void end_heap(struct actmem_heap *heap)
{
	returns(actmem_heap_destroy(heap), 0);
	nothing_is_registered(&cuda);
}

/* No time is looked at, but whether there are answers at all, and pauses for them. */
static void test_neighbour(struct actmem *am)
{
	struct actmem_runtime *runtime = runtime_or_bail(am, ACTMEM_RUNTIME_CUDA);
	struct actmem_heap *heap = heap_or_bail(am, runtime, PINNED, 0);
	void *block;

	neighbour.context = current_context(&cuda);
	neighbour.thread = start_thread(ask, NULL);
	while (!neighbour.calls)
		;
	setenv("STANDIN_CUDA_PIN_RATE", RATE, 1);
	returns(actmem_heap_alloc(heap, CHUNK, 0, &block), 0);
	unsetenv("STANDIN_CUDA_PIN_RATE");
	neighbour.is_ending = true;
	pthread_join(neighbour.thread, NULL);
	ok(runtime_info(runtime).chunks == PIECES, "%d pieces are registered", PIECES);
	ok(neighbour.between >= PIECES / 2 || !cuda.standin_counts,
	   "between them a neighbour had %u answers", neighbour.between);
	ok(pauses >= PIECES - 1 || !cuda.standin_counts, "in %u pauses", pauses);
	returns(actmem_heap_free(heap, block), 0);
	end_heap(heap);
	returns(actmem_runtime_close(runtime), 0);
}

/* The driver refuses copies of what lies in two ranges. */
static bool is_whole(struct actmem_runtime *runtime, void *block, uint64_t length)
{
	uint64_t pointer, bytes;

	return !actmem_runtime_pointer(runtime, block, &pointer, &bytes) && bytes >= length;
}

static void test_pieces(struct actmem *am)
{
	struct actmem_runtime *runtime = whole_runtime_or_bail(am);
	struct actmem_heap *heap = heap_or_bail(am, runtime, 3 * PIECE_LEAST, 0);
	struct actmem_heap_stats stats;
	void *blocks[24], *longer;
	unsigned int i, whole = 0;

	for (i = 0; i < 24; i++) {
		if (actmem_heap_alloc(heap, BLOCK, 0, &blocks[i]))
			tap_bail("actmem_heap_alloc");
		whole += is_whole(runtime, blocks[i], BLOCK);
	}
	stats = stats_of(heap);
	ok(stats.regions == 1 && runtime_info(runtime).regions == 1 &&
	   runtime_info(runtime).chunks == 3, "a region of %llu bytes is in %llu pieces",
	   (unsigned long long)stats.region_bytes,
	   (unsigned long long)runtime_info(runtime).chunks);
	ok(counts_of(&cuda).registered == 3 || !cuda.standin_counts, "as the driver has it");
	ok(whole == 24, "%u blocks of 24 lie in one each", whole);
	returns(actmem_heap_alloc(heap, 2 * PIECE_LEAST, 0, &longer), 0);
	ok(is_whole(runtime, longer, 2 * PIECE_LEAST), "so does a block that is longer");
	for (i = 0; i < 24; i++)
		actmem_heap_free(heap, blocks[i]);
	returns(actmem_heap_free(heap, longer), 0);
	end_heap(heap);
	returns(actmem_runtime_close(runtime), 0);
}

/* All that the limit permits is in one region: a longer block can be in no other. */
static void test_limit(struct actmem *am)
{
	struct actmem_runtime *runtime = whole_runtime_or_bail(am);
	struct actmem_heap *heap = heap_or_bail(am, runtime, 3 * PIECE_LEAST, 3 * PIECE_LEAST);
	void *block, *longer;

	returns(actmem_heap_alloc(heap, BLOCK, 0, &block), 0);
	ok(runtime_info(runtime).chunks == 1, "a region that is all of a heap is one piece");
	returns(actmem_heap_alloc(heap, 2 * PIECE_LEAST, 0, &longer), 0);
	returns(actmem_heap_free(heap, block), 0);
	returns(actmem_heap_free(heap, longer), 0);
	end_heap(heap);
	returns(actmem_runtime_close(runtime), 0);
}

int main(void)
{
	struct usage before;
	struct actmem *am;

	am = cuda_begin(&cuda, &before);
	push_primary(&cuda);
	test_lengths(am);
	test_neighbour(am);
	test_pieces(am);
	test_limit(am);
	pop_primary(&cuda);
	return cuda_end(&cuda, am, before);
}
