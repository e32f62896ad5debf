/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Puts and takes of the handlers for CUDA: that they keep their order with what XLA's
 * stream does before and after, whatever is slow; what they copy ahead; errors; two
 * streams; a context that ends.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "xla_play.h"

#define BLOCK	(256 * 1024UL)
#define VALUES	12
#define SLOW	1000		/* microseconds */
#define TABLE_VALUES	1100	/* more than the table holds at first */

static struct xla *const xla = &its.xla;

/*
 * A step: each value is computed where the last one was, and put. Then each is taken to
 * where the last one was, in the order that a backward pass wants or another, and used
 * before that is written to again. Returns how many came back as they were.
 */
static unsigned int step(unsigned int first_taken, int direction)
{
	unsigned int i, value;

	xla->run++;
	if (!xla_put_step(&its, "step", VALUES, BLOCK, (uint32_t)xla->run * VALUES)) {
		printf("# %s\n", xla->words);
		return 0;
	}
	for (i = 0; i < VALUES; i++) {
		value = (first_taken + VALUES + (unsigned int)(direction * (int)i)) % VALUES;
		if (!xla_take(xla, xla_token(&its, value), its.work, BLOCK)) {
			printf("# %s\n", xla->words);
			return 0;
		}
		gpu.cuMemcpyDtoDAsync_v2(its.results + value * BLOCK, its.work, BLOCK,
					  xla->stream);
		xla_compute(xla, its.work, BLOCK, 0);
	}
	return xla_good(&its, VALUES, BLOCK, (uint32_t)xla->run * VALUES);
}

/* Each has a copy that would be its.seen if an event for it were missing. */
static const char *const slow_functions[] = {
	"", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2",
};

static void test_order(uint64_t ring_bytes, unsigned int microseconds)
{
	struct memory memory = { .ring_bytes = ring_bytes };
	struct actmem *am = xla_open(&memory);
	struct actmem_xla_transfer_stats before = xla_transfers(), after;
	unsigned int i, good;

	for (i = 0; i < 4; i++) {
		slow(&gpu, slow_functions[i], microseconds);
		good = step(VALUES - 1, -1);
		ok(good == VALUES, "a ring of %llu KiB, slow %s: %u of %u come back as they were",
		   (unsigned long long)(ring_bytes >> 10), slow_functions[i], good, VALUES);
		good = step(0, 1);
		ok(good == VALUES, "and %u in the order of their puts", good);
		slow(&gpu, slow_functions[i], 0);
	}
	after = xla_transfers();
	ok(after.to_host_bytes_total - before.to_host_bytes_total == 8 * VALUES * BLOCK &&
	   after.to_device_bytes_total - before.to_device_bytes_total >= 8 * VALUES * BLOCK,
	   "what was copied is counted");
	ok(after.ahead_total - before.ahead_total + after.late_total - before.late_total ==
	   8 * VALUES, "each take was ahead or late (%llu ahead, %llu bytes in vain)",
	   (unsigned long long)(after.ahead_total - before.ahead_total),
	   (unsigned long long)(after.wasted_bytes_total - before.wasted_bytes_total));
	ok(after.ring_bytes && after.ring_bytes <= ring_bytes, "the ring has %llu bytes",
	   (unsigned long long)after.ring_bytes);
	xla_close(am);
}

/* In the time that is spent after each take, the next ones come. */
static void test_ahead(void)
{
	struct actmem_xla_transfer_stats before = xla_transfers(), after;
	unsigned int i;

	xla->run++;
	ok(xla_put_step(&its, "ahead", VALUES, BLOCK, 0), "put");
	for (i = VALUES; i-- > 0; ) {
		ok(xla_take(xla, xla_token(&its, i), its.work, BLOCK), "take %u", i);
		/* As many as there is room for, or are left. */
		do {
			usleep(1000);
			after = xla_transfers();
		} while (after.unfinished || (after.staged_bytes < 4 * BLOCK &&
					      after.staged_bytes < i * BLOCK));
		actmem_xla_trim_devices();
		ok(!i || xla_transfers().ring_bytes, "a ring stays while blocks are in it");
	}
	cuda_ok(gpu.cuStreamSynchronize(xla->stream));
	after = xla_transfers();
	ok(after.ahead_total - before.ahead_total == VALUES - 1 &&
	   after.late_total - before.late_total == 1, "all but the first take found their block there");
	ok(after.wasted_bytes_total == before.wasted_bytes_total && !after.staged_bytes &&
	   after.to_device_bytes_total - before.to_device_bytes_total == VALUES * BLOCK,
	   "and nothing was copied in vain, or counted twice");
}

/* What was copied ahead and is not wanted any more goes. */
static void test_reset(void)
{
	struct actmem_xla_transfer_stats before = xla_transfers(), after;
	unsigned int i;

	xla->run++;
	for (i = 0; i < 4; i++)
		ok(xla_put(xla, "reset", its.work, BLOCK, xla_token(&its, i)),
		   "put %u", i);
	ok(xla_take(xla, xla_token(&its, 3), its.work, BLOCK), "take one");
	do {
		usleep(1000);
		after = xla_transfers();
	} while (after.unfinished || after.staged_bytes < 3 * BLOCK);
	ok(actmem_xla_reset(NULL, 0) == 3, "three blocks are reset");
	/* The fetcher may be about to tell of the last one, and then lets it go. */
	do {
		usleep(1000);
		after = xla_transfers();
	} while (after.staged_bytes);
	ok(after.wasted_bytes_total - before.wasted_bytes_total == 3 * BLOCK,
	   "they are not on the device either");
	ok(!xla_take(xla, its.tokens, its.work, BLOCK) && strstr(xla->words, "reset()"),
	   "to take one fails: %s", xla->words);
	/* While it is being copied. */
	slow(&gpu, "cuMemcpyDtoHAsync_v2", SLOW);
	ok(xla_put(xla, "reset", its.work, BLOCK, its.tokens), "put");
	ok(actmem_xla_reset(NULL, 0) == 1, "one that is still being copied is reset");
	slow(&gpu, "cuMemcpyDtoHAsync_v2", 0);
}

static const char *seen(void)
{
	gpu.cuMemcpyDtoHAsync_v2(its.seen, its.work, BLOCK, xla->stream);
	if (gpu.cuStreamSynchronize(xla->stream))
		tap_bail("cuStreamSynchronize");
	return its.seen;
}

static bool is_there(uint32_t content)
{
	return xla_is_content(seen(), BLOCK, content);
}

/* What may be taken several times is not copied ahead, and goes when it is dropped. */
static void test_many(void)
{
	struct actmem_xla_transfer_stats before = xla_transfers(), after;
	unsigned int i, good = 0;

	xla->run++;
	for (i = 0; i < 4; i++) {
		xla_compute(xla, its.work, BLOCK, i);
		good += xla_put_for_many(xla, "many", its.work, BLOCK,
					 xla_token(&its, i));
	}
	for (i = 0; i < 8; i++)
		good += xla_take_again(xla, xla_token(&its, i % 4), its.work,
				       BLOCK) && is_there(i % 4);
	ok(good == 12, "four values are put once and taken twice (%u)", good);
	after = xla_transfers();
	ok(!after.staged_bytes && after.ahead_total == before.ahead_total, "and not ahead");
	ok(xla_hold(xla, its.tokens, 4, xla_token(&its, 4)) &&
	   xla_drop(xla, its.tokens, 4, its.work) &&
	   xla_take_again(xla, xla_token(&its, 5), its.work, BLOCK) && is_there(1),
	   "what was held and dropped once is there");
	ok(xla_drop(xla, xla_token(&its, 4), 4, its.work), "drop");
	ok(!xla_stats().live_blocks &&
	   !xla_take_again(xla, its.tokens, its.work, BLOCK), "and it is gone");
	xla_compute(xla, its.work, BLOCK, 7);
	gpu.cuMemsetD32Async(its.tokens, 0, 2, xla->stream);
	ok(xla_take(xla, its.tokens, its.work, BLOCK) && all_bytes(seen(), BLOCK, 0),
	   "of no token there are zeros");
}

static void test_errors(void)
{
	CUdeviceptr large;

	xla->run++;
	xla_compute(xla, its.tokens, XLA_TOKEN_BYTES, 1);
	ok(!xla_take(xla, its.tokens, its.work, BLOCK) &&
	   strstr(xla->words, "was not made by this process"),
	   "a token of somebody else's: %s", xla->words);
	ok(xla_put(xla, "errors", its.work, 0, its.tokens) &&
	   xla_take(xla, its.tokens, its.work, 0),
	   "nothing is put and taken");
	ok(xla_put(xla, "errors", its.work, BLOCK, its.tokens), "put");
	ok(!xla_take(xla, its.tokens, its.work, BLOCK - 4) && strstr(xla->words, "errors"),
	   "another size: %s", xla->words);
	ok(xla_take(xla, its.tokens, its.work, BLOCK), "take");
	ok(!xla_take(xla, its.tokens, its.work, BLOCK) && strstr(xla->words, "after its last use"),
	   "a second take: %s", xla->words);
	if (gpu.cuMemAlloc_v2(&large, 3 * MIB))
		tap_bail("cuMemAlloc_v2");
	ok(!xla_put(xla, "errors", large, 3 * MIB, its.tokens) && strstr(xla->words, "heap_limit="),
	   "more than the limit: %s", xla->words);
	cuda_ok(gpu.cuMemFree_v2(large));
}

static void test_no_room_for_ring(void)
{
	ok(!xla_put(xla, "ring", its.work, BLOCK, its.tokens) &&
	   strstr(xla->words, "MEM_FRACTION") &&
	   strstr(xla->words, "ACTMEM_DEVICE_RING"), "a ring that is too large: %s", xla->words);
}

/* Two streams put and take each other's values; events are all the order there is. */
static void test_two_streams(void)
{
	struct xla other = { .stream = xla_stream_or_bail() };
	unsigned int i, good = 0;
	CUevent event;

	if (gpu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING))
		tap_bail("cuEventCreate");
	slow(&gpu, "cuMemcpyDtoDAsync_v2", SLOW);
	other.run = ++xla->run;
	ok(xla_put_step(&its, "two", VALUES, BLOCK, 100), "put");
	/* As a program has to, where it hands on tokens between its streams. */
	gpu.cuEventRecord(event, xla->stream);
	gpu.cuStreamWaitEvent(other.stream, event, 0);
	for (i = VALUES; i-- > 0; )
		ok(xla_take(&other, xla_token(&its, i), its.results + i * BLOCK, BLOCK), "take %u",
		   i);
	gpu.cuMemcpyDtoHAsync_v2(its.seen, its.results, VALUES * BLOCK, other.stream);
	cuda_ok(gpu.cuStreamSynchronize(other.stream));
	slow(&gpu, "cuMemcpyDtoDAsync_v2", 0);
	for (i = 0; i < VALUES; i++)
		good += xla_is_content(its.seen + i * BLOCK, BLOCK, i + 100);
	ok(good == VALUES, "%u of %u came from one stream to the other", good, VALUES);
	cuda_ok(gpu.cuEventDestroy_v2(event));
	cuda_ok(gpu.cuStreamDestroy_v2(other.stream));
}

/* The take of a block fails if the copy of the block from the GPU failed. */
static void test_failed_copy(void)
{
	if (!gpu.standin_fail)
		return;
	xla->run++;
	gpu.standin_fail("cuEventSynchronize", 1, 1, CUDA_ERROR_UNKNOWN);
	ok(xla_put(xla, "failed", its.work, BLOCK, its.tokens), "put");
	while (xla_transfers().unfinished)
		usleep(1000);
	ok(!xla_take(xla, its.tokens, its.work, BLOCK) &&
	   strstr(xla->words, "put at failed could not be copied"), "a failed copy: %s", xla->words);
}

/* The table of live blocks grows, and keeps each of them. */
static void test_growing_table(void)
{
	struct xla_device device;
	unsigned int i, done = 0;

	xla_begin(&device, 0, TABLE_VALUES, 64);
	device.xla.run = ++xla->run;
	for (i = 0; i < TABLE_VALUES; i++)
		done += xla_put(&device.xla, "table", device.work, 64, xla_token(&device, i));
	for (i = 0; i < TABLE_VALUES; i++)
		done += xla_take(&device.xla, xla_token(&device, i), device.results, 64);
	ok(done == 2 * TABLE_VALUES, "%u values are put and taken: %s", TABLE_VALUES,
	   device.xla.words);
	cuda_ok(gpu.cuStreamSynchronize(device.xla.stream));
	xla_end(&device);
	cuda_ok(gpu.cuDevicePrimaryCtxRelease_v2(0));
}

/* After a fault nothing works in that context, and all does in the next one. */
static void test_fault(void)
{
	CUcontext popped;
	unsigned int good;

	if (!gpu.standin_poison)
		return;
	xla->run++;
	/* Not before the put has returned. */
	slow(&gpu, "cuMemcpyDtoDAsync_v2", 20 * SLOW);
	gpu.standin_poison("cuMemcpyDtoHAsync_v2", 1, CUDA_ERROR_ECC_UNCORRECTABLE);
	ok(xla_put(xla, "fault", its.work, BLOCK, its.tokens), "put");
	ok(!xla_take(xla, its.tokens, its.work, BLOCK) && strstr(xla->words, "ECC_UNCORRECTABLE"),
	   "a take after a fault: %s", xla->words);
	slow(&gpu, "cuMemcpyDtoDAsync_v2", 0);
	ok(!xla_put(xla, "fault", its.work, BLOCK, its.tokens) &&
	   strstr(xla->words, "ECC_UNCORRECTABLE"),
	   "a put after it: %s", xla->words);
	cuda_ok(gpu.cuCtxPopCurrent_v2(&popped));
	cuda_ok(gpu.cuDevicePrimaryCtxReset_v2(0));
	cuda_ok(gpu.cuDevicePrimaryCtxRelease_v2(0));
	ok(!xla_put(xla, "fault", its.work, BLOCK, its.tokens), "a stream that is gone: %s",
	   xla->words);
	actmem_xla_reset(NULL, 0);
	xla_begin(&its, 0, VALUES, BLOCK);
	good = step(VALUES - 1, -1);
	ok(good == VALUES, "%u of %u come back in the next context", good, VALUES);
}

int main(void)
{
	xla_start(VALUES, BLOCK);
	/* A block in one slot; in several; and of more bytes than the whole ring has. */
	test_order(32 * BLOCK, SLOW);
	test_order(8 * BLOCK, SLOW / 4);
	test_order(BLOCK / 2, 20);
	XLA_RUN(test_ahead, .ring_bytes = 32 * BLOCK);
	XLA_RUN(test_reset, .ring_bytes = 32 * BLOCK);
	XLA_RUN(test_many, .ring_bytes = 32 * BLOCK);
	XLA_RUN(test_errors, .ring_bytes = 2 * MIB, .limit_bytes = 2 * MIB);
	XLA_RUN(test_no_room_for_ring, .ring_bytes = 1ULL << 50);
	XLA_RUN(test_two_streams, .ring_bytes = MIB);
	XLA_RUN(test_failed_copy, .ring_bytes = MIB);
	XLA_RUN(test_growing_table, .ring_bytes = MIB);
	if (gpu.standin_counts)
		ok(!counts_of(&gpu).unpinned_copies, "all copies were of memory that CUDA knows");
	XLA_RUN(test_fault, .ring_bytes = 2 * MIB);
	return xla_stop();
}
