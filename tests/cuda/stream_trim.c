/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Rings are given back while another thread puts and takes.
 */
#include <pthread.h>

#include "xla_play.h"

#define BLOCK	(32 * 1024UL)
#define VALUES	4
#define STEPS	150

static struct cuda cuda;
static struct xla_device its;
static unsigned int good, failed;
static int is_over;

static void step(void)
{
	struct xla *xla = &its.xla;
	unsigned int i;

	xla->run++;
	for (i = 0; i < VALUES; i++)
		failed += !xla_put_value(&its, "trim", i, BLOCK, (uint32_t)xla->run * VALUES + i);
	for (i = VALUES; i-- > 0; )
		failed += !xla_take(xla, its.tokens + 8 * i, its.results + i * BLOCK, BLOCK);
	good += xla_good(&its, VALUES, BLOCK, (uint32_t)xla->run * VALUES);
}

static void *run_steps(void *data)
{
	unsigned int i;

	if (cuda.cuCtxPushCurrent_v2(its.context))
		tap_bail("cuCtxPushCurrent_v2");
	for (i = 0; i < STEPS; i++)
		step();
	__atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Each value that is put comes back, whichever lane it went through. */
static void test_beside_steps(void)
{
	struct memory memory = { .ring_bytes = 32 * BLOCK };
	struct actmem *am = xla_open(&memory);
	unsigned int trims = 0;
	pthread_t thread;

	thread = start_thread(run_steps, NULL);
	for (; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); trims++)
		actmem_xla_trim_devices();
	pthread_join(thread, NULL);
	ok(good == STEPS * VALUES && !failed, "%u of %u values come back, and rings went %u times",
	   good, STEPS * VALUES, trims);
	xla_close(am, &cuda);
}

int main(void)
{
	cuda = xla_devices_or_skip(1);
	xla_begin(&its, &cuda, 0, VALUES, BLOCK);
	test_beside_steps();
	xla_end(&its);
	return xla_finish(&cuda, 1, 1);
}
