/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * XLA's part, played: call frames by which the handlers for CUDA are called, on streams
 * of ours, and what a program computes before and after, which writes to an operand
 * as soon as the handler has returned.
 */
#ifndef XLA_PLAY_H
#define XLA_PLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "cuda_test.h"
#include "xla/actmem_xla.h"
#include "xla/block.h"
#include "xla/ffi/api/c_api.h"

XLA_FFI_Error *actmem_xla_put_cuda(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *actmem_xla_take_cuda(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *actmem_xla_tie_cuda(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *actmem_xla_hold_cuda(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *actmem_xla_drop_cuda(XLA_FFI_CallFrame *frame);

/* That of xla_devices_or_skip(). */
extern struct cuda gpu;

/* An execution. */
struct xla {
	CUstream stream;
	int32_t device;
	int64_t run;
	char words[1024];		/* of the last error */
};

/* A stream as XLA has them; bails out. */
CUstream xla_stream_or_bail(void);

/* Errors that were made and not destroyed. */
extern unsigned int xla_errors;

/* As XLA answers for the call: true, or false with words. */
bool xla_put(struct xla *xla, const char *site, CUdeviceptr value, uint64_t bytes,
	     CUdeviceptr token);
bool xla_take(struct xla *xla, CUdeviceptr token, CUdeviceptr value, uint64_t bytes);

/* Takes one value, as an array of two dimensions. */
bool xla_take_as_rows(struct xla *xla, CUdeviceptr token, CUdeviceptr value, int64_t rows,
		      int64_t row_bytes);

/* A token of a program, in memory of the device. */
#define XLA_TOKEN_BYTES	sizeof(struct token)

/*
 * Puts a value of so many examples, one behind the other, and takes one for each of @count
 * tokens. The put writes the token of example 0, as in a program.
 */
bool xla_put_batch(struct xla *xla, const char *site, CUdeviceptr value, int64_t examples,
		   uint64_t example_bytes, CUdeviceptr token);
bool xla_take_batch(struct xla *xla, CUdeviceptr tokens, int64_t count, CUdeviceptr value,
		    uint64_t example_bytes, bool ends);

/* Of what may be taken several times: until it is dropped as often as it was put and held. */
bool xla_put_for_many(struct xla *xla, const char *site, CUdeviceptr value, uint64_t bytes,
		      CUdeviceptr token);
bool xla_take_again(struct xla *xla, CUdeviceptr token, CUdeviceptr value, uint64_t bytes);
bool xla_hold(struct xla *xla, CUdeviceptr tokens, int64_t count, CUdeviceptr to);
bool xla_drop(struct xla *xla, CUdeviceptr tokens, int64_t count, CUdeviceptr unused);

/* So many tokens that lie one after the other, by their numbers from 0 on; some; a take. */
#define XLA_ANNOUNCED_MAX	320
bool xla_tie(struct xla *xla, CUdeviceptr tokens, unsigned int count);
bool xla_tie_these(struct xla *xla, CUdeviceptr tokens, const unsigned int *which,
			unsigned int count);
bool xla_take_announced(struct xla *xla, const char *site, int32_t number, CUdeviceptr token,
			CUdeviceptr value, uint64_t bytes);

/* On the stream: a content that tells each 4 KiB of it from all others. */
void xla_compute(struct xla *xla, CUdeviceptr value, uint64_t bytes, uint32_t content);
/* Whether memory of the host has it. */
bool xla_is_content(const void *memory, uint64_t bytes, uint32_t content);

/* A device of a thread's: its context, which is current, a stream, and memory. */
struct xla_device {
	struct xla xla;
	CUcontext context;
	CUdeviceptr tokens, work, results;
	char *seen;			/* of the host, for the results */
};

/* Initialises CUDA; ends the program, all skipped, where there are fewer devices. */
void xla_devices_or_skip(int wanted);
/* Ends it so, too, where CUDA is no stand-in. */
void xla_standin_or_skip(void);

/* For @values of @bytes each, one to work on, all results; both bail out. */
void xla_begin(struct xla_device *device, int ordinal, unsigned int values, uint64_t bytes);
void xla_end(struct xla_device *device);

/* All that a program returns; each of its devices was begun so many times. */
int xla_finish(int devices, unsigned int times);

/* The device of a program with one: its begin, and its end with all that the program returns. */
extern struct xla_device its;
void xla_start(unsigned int values, uint64_t bytes);
int xla_stop(void);

static inline CUdeviceptr xla_token(const struct xla_device *device, unsigned int value)
{
	return device->tokens + XLA_TOKEN_BYTES * value;
}

/* Computes a value where there is one to work on, and puts it. */
bool xla_put_value(struct xla_device *device, const char *site, unsigned int value, uint64_t bytes,
		   uint32_t content);

/* Begins a step that puts so many, numbered from @content on, and works on what they were in. */
bool xla_put_step(struct xla_device *device, const char *site, unsigned int values, uint64_t bytes,
		  uint32_t content);

/* Takes its results, the last one first; @site: as announced ones. Prints the words of a failure. */
bool xla_take_step(struct xla_device *device, const char *site, unsigned int values, uint64_t bytes);

/* Waits for the stream, and has so many bytes of the results where they can be seen. */
void xla_see(struct xla_device *device, uint64_t bytes);

/* How many results are the values that begin with this content. */
unsigned int xla_good(struct xla_device *device, unsigned int values, uint64_t bytes,
		      uint32_t content);

/* The memory is ours, and its store and rings as by these; bails out. */
struct memory {
	uint64_t ring_bytes, budget_bytes, limit_bytes, grow_bytes;
	const char *spill;		/* NULL: none */
};
struct actmem *xla_open(const struct memory *memory);
/* Ends all of it, and asserts that nothing is left. */
void xla_close(struct actmem *am);

/* Runs a test with memory by these. */
#define XLA_RUN(test, ...)	xla_run(test, (struct memory){ __VA_ARGS__ })
void xla_run(void (*test)(void), struct memory memory);

struct actmem_xla_stats xla_stats(void);
struct actmem_xla_transfer_stats xla_transfers(void);
struct actmem_store_stats xla_store_stats(void);

#endif /* XLA_PLAY_H */
