/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * What a test asks of the stand-in for libcuda.so.1 besides CUDA's own calls. The
 * real one has none of these: a test finds them by dlsym(), or not.
 *
 * A program that is no test of ours gets the same by the environment, which is read
 * by cuInit():
 *   STANDIN_CUDA_DEVICES=2              default 1; 0: CUDA_ERROR_NO_DEVICE
 *   STANDIN_CUDA_BUS_IDS=0000:17:00.0,… default 0000:17:00.0, 0000:18:00.0, …
 *   STANDIN_CUDA_READ_ONLY=0            devices know no CU_MEMHOSTREGISTER_READ_ONLY
 *   STANDIN_CUDA_ADDRESSES=apart        devices have other addresses than the host
 *   STANDIN_CUDA_FAIL=FUNCTION:N:CODE   the N-th call of it from now on fails so, and with
 *                                       :COUNT as many
 *   STANDIN_CUDA_MEMORY=1073741824      bytes of each device, the default
 *   STANDIN_CUDA_QUEUES=8               hardware queues that the streams of a context share in
 *                                       turn; default: each stream has its own. Read by each
 *                                       cuStreamCreate(), not by cuInit()
 *   STANDIN_CUDA_PIN_RATE=1000          bytes a microsecond that are registered, while all
 *                                       other calls wait. Read by each call, not by
 *                                       cuInit(); no page is faulted in
 *   STANDIN_CUDA_REGISTER_MOST=1048576  bytes that a call registers at most; 0: as in confidential
 *                                       computing, none. Read by each call, not by cuInit()
 */
#ifndef STANDIN_CONTROL_H
#define STANDIN_CONTROL_H

#include <stdint.h>

struct standin_counts {
	uint64_t calls;			/* of CUDA, by this process and those it was forked from */
	uint64_t registered;		/* ranges */
	uint64_t registered_bytes;
	uint64_t allocated;		/* by cuMemHostAlloc() and its like */
	uint64_t allocated_bytes;
	uint64_t contexts;		/* alive, primary ones included */
	uint64_t retained;		/* times that primary contexts are */
	uint64_t device_allocations;
	uint64_t device_bytes;
	uint64_t streams;		/* destroyed ones too that have still something to do */
	uint64_t events;
	uint64_t operations;		/* that streams have still to do */
	uint64_t unpinned_copies;	/* of a stream, that waited for it: a total */
	uint64_t own_waits;		/* calls of this thread that wait for a device: a total */
	uint64_t own_registrations;	/* and that register memory */
	uint64_t wrong_frees;		/* cuMemFreeHost() of memory that is not allocated: a total */
};

typedef void standin_counts_function(struct standin_counts *counts);

/*
 * From the @first call of a function on (1: the next) @count calls fail, besides what
 * else was to fail. @count 0: nothing is to any more.
 */
typedef void standin_fail_function(const char *function, unsigned int first, unsigned int count,
				   unsigned int result);

/*
 * What streams are to do by a function from now on takes that much longer each,
 * beginning with the time before it; and cuMemHostRegister_v2() does. 0: no longer.
 */
typedef void standin_slow_function(const char *function, unsigned int microseconds);

/*
 * What streams are to do by a function fails when it is due, once: the @first from
 * now on. It is then as after a fault of the device: all calls of its context fail.
 */
typedef void standin_poison_function(const char *function, unsigned int first,
				     unsigned int result);

#endif /* STANDIN_CONTROL_H */
