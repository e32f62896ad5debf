/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Transfers go on while a long region is registered, and those in it find their bytes
 * wherever the pieces of it end.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "actmem_queue.h"
#include "faults.h"

#define MIB		(1ULL << 20)
#define LONG		(64 * MIB)
#define SHORT		(2 * MIB)
#define BLOCK		(64ULL << 10)
#define PIECE		(16 * MIB)
#define MS		1000000ULL	/* in nanoseconds */
#define RING_THREAD	"actmem-queue"

struct rig {
	struct actmem *am;
	struct actmem_queue *queue;
	struct actmem_file *file;
	struct actmem_region *region;	/* the long one */
	struct actmem_region *other;
};

static struct actmem_region *make_region(struct actmem *am, uint64_t length)
{
	struct actmem_region *region;

	assert_int_equal(create_region(am, length, 0, &region), 0);
	return region;
}

/* False: io_uring is refused here. */
static bool set_up(struct rig *rig)
{
	struct actmem_queue_options queue_options;

	assert_int_equal(open_small(&rig->am), 0);
	ACTMEM_INIT(&queue_options);
	queue_options.engine = ACTMEM_ENGINE_URING;
	if (actmem_queue_create(rig->am, &queue_options, &rig->queue)) {
		assert_int_equal(actmem_close(rig->am), 0);
		return false;
	}
	assert_int_equal(open_file_at(rig->queue, "build/tests", ACTMEM_FILE_TEMPORARY,
				      LONG, &rig->file), 0);
	rig->region = make_region(rig->am, LONG);
	rig->other = make_region(rig->am, SHORT);
	return true;
}

static void tear_down(struct rig *rig)
{
	fail_nothing();
	assert_int_equal(actmem_queue_detach(rig->queue, rig->region), 0);
	assert_int_equal(actmem_queue_detach(rig->queue, rig->other), 0);
	assert_int_equal(actmem_file_close(rig->file), 0);
	assert_int_equal(actmem_queue_destroy(rig->queue), 0);
	assert_int_equal(actmem_region_close(rig->region), 0);
	assert_int_equal(actmem_region_close(rig->other), 0);
	assert_int_equal(actmem_close(rig->am), 0);
}

static bool completes(struct rig *rig, uint64_t timeout_ns)
{
	struct actmem_completion completion;
	int count = actmem_queue_wait(rig->queue, &completion, 1, timeout_ns);

	if (count == -ETIMEDOUT)
		return false;
	assert_int_equal(count, 1);
	assert_int_equal(completion.result, 0);
	return true;
}

static void await(struct rig *rig)
{
	assert_true(completes(rig, ACTMEM_WAIT_FOREVER));
}

static void *attach(void *data)
{
	struct rig *rig = data;

	return actmem_queue_attach(rig->queue, rig->region, 0) ? data : NULL;
}

/*
 * The thread of the ring is held before each piece, so it can start the transfer after the first
 * piece, and see its end after the second. If the disk is slow, it sees that after the third.
 */
static void test_meanwhile(void **state)
{
	static const uint64_t timeouts[LONG / PIECE - 1] = { 10 * MS, 3000 * MS, 10000 * MS };
	unsigned int piece, pieces;
	bool completed = false;
	pthread_t thread;
	struct rig rig;
	void *failed;

	if (!set_up(&rig))
		skip();
	assert_int_equal(actmem_queue_attach(rig.queue, rig.other, 0), 0);
	slow_call("register_buffer", SLOW_HELD);
	assert_int_equal(pthread_create(&thread, NULL, attach, &rig), 0);
	while (!slow_calls_of(RING_THREAD))
		usleep(1000);
	assert_int_equal(actmem_queue_fill(rig.queue, rig.file, 0, rig.other, 0, BLOCK, NULL), 0);
	for (piece = 0; !completed && piece < LONG / PIECE - 1; piece++) {
		let_slow_call();
		completed = completes(&rig, timeouts[piece]);
	}
	for (piece = 0; piece < LONG / PIECE; piece++)
		let_slow_call();
	if (!completed)
		await(&rig);
	assert_int_equal(pthread_join(thread, &failed), 0);
	pieces = slow_calls_of(RING_THREAD);
	fail_nothing();
	assert_null(failed);
	assert_int_equal(pieces, LONG / PIECE);
	assert_true(completed);
	tear_down(&rig);
}

static void test_across_pieces(void **state)
{
	uint64_t from = PIECE - BLOCK - 4096, length = PIECE + 3 * BLOCK, i;
	unsigned char *memory;
	struct rig rig;
	void *address;

	if (!set_up(&rig))
		skip();
	assert_int_equal(actmem_queue_attach(rig.queue, rig.other, 0), 0);
	assert_int_equal(actmem_queue_attach(rig.queue, rig.region, 0), 0);
	assert_int_equal(actmem_region_map(rig.region, &address), 0);
	memory = (unsigned char *)address + from;
	for (i = 0; i < length; i++)
		memory[i] = (unsigned char)(i * 31 + i / 4096);
	assert_int_equal(actmem_queue_spill(rig.queue, rig.file, 4096, rig.region, from, length,
					    NULL), 0);
	await(&rig);
	memset(memory, 0, length);
	assert_int_equal(actmem_queue_fill(rig.queue, rig.file, 4096, rig.region, from, length,
					   NULL), 0);
	await(&rig);
	for (i = 0; i < length; i++)
		if (memory[i] != (unsigned char)(i * 31 + i / 4096))
			fail_msg("byte %u is wrong", (unsigned int)i);
	assert_int_equal(actmem_region_unmap(rig.region), 0);
	tear_down(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_meanwhile),
		cmocka_unit_test(test_across_pieces),
	};

	return cmocka_run_group_tests_name("queue_register", tests, NULL, NULL);
}
