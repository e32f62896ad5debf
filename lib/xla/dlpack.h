/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The part of DLPack's unversioned interface that the library needs. A capsule named "dltensor"
 * contains a struct dlpack_managed. Its consumer calls @deleter once, from any thread.
 */
#ifndef LIB_XLA_DLPACK_H
#define LIB_XLA_DLPACK_H

#include <stdint.h>

struct dlpack_device {
	int32_t type;		/* 1: CPU, 3: host memory that CUDA has registered */
	int32_t id;
};

struct dlpack_type {
	uint8_t code;
	uint8_t bits;		/* bits of an element */
	uint16_t width;		/* elements of a vector; "lanes" in DLPack */
};

struct dlpack_tensor {
	void *data;
	struct dlpack_device device;
	int32_t rank;
	struct dlpack_type type;
	int64_t *shape;
	int64_t *strides;	/* in elements; NULL: row-major order, without gaps */
	uint64_t byte_offset;
};

struct dlpack_managed {
	struct dlpack_tensor tensor;
	void *context;
	void (*deleter)(struct dlpack_managed *managed);
};

#endif /* LIB_XLA_DLPACK_H */
