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
#include "xla/ffi/api/c_api.h"

XLA_FFI_Error *actmem_xla_put_cuda(XLA_FFI_CallFrame *frame);
XLA_FFI_Error *actmem_xla_take_cuda(XLA_FFI_CallFrame *frame);

/* An execution. */
struct xla {
	const struct cuda *cuda;
	CUstream stream;
	int32_t device;
	int64_t run;
	char words[1024];		/* of the last error */
};

/* A stream as XLA has them; bails out. */
CUstream xla_stream_or_bail(const struct cuda *cuda);

/* As XLA answers for the call: true, or false with words. */
bool xla_put(struct xla *xla, const char *site, CUdeviceptr value, uint64_t bytes,
	     CUdeviceptr token);
bool xla_take(struct xla *xla, CUdeviceptr token, CUdeviceptr value, uint64_t bytes);

/* Errors that were made and not destroyed. */
unsigned int xla_errors(void);

/* On the stream: a content that tells each 4 KiB of it from all others. */
void xla_compute(struct xla *xla, CUdeviceptr value, uint64_t bytes, uint32_t content);
/* Whether memory of the host has it. */
bool xla_is_content(const void *memory, uint64_t bytes, uint32_t content);

/* The memory is ours, and its store and rings as by these; bails out. */
struct memory {
	uint64_t ring_bytes, budget_bytes, limit_bytes, grow_bytes;
	const char *spill;		/* NULL: none */
};
struct actmem *xla_open(const struct memory *memory);
/* Ends all of it, and asserts that nothing is left. */
void xla_close(struct actmem *am, const struct cuda *cuda);

struct actmem_xla_stats xla_stats(void);
struct actmem_xla_transfer_stats xla_transfers(void);

#endif /* XLA_PLAY_H */
