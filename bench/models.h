/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Dimensions of language models, from a file of comma-separated values. */
#ifndef ACTMEM_MODELS_H
#define ACTMEM_MODELS_H

#include <stdbool.h>
#include <stdint.h>

#define MODEL_NAME_MAX	64
#define MODEL_TENSORS	3		/* query, key, value */

struct model {
	char name[MODEL_NAME_MAX];
	uint32_t layers;
	uint32_t hidden;
	uint32_t d_ff;
	uint32_t q_heads;
	uint32_t kv_heads;
	uint32_t head_dim;
};

/* A short name of a tensor: Q, K, V. */
extern const char *const model_tensors[MODEL_TENSORS];

/*
 * Finds a model in a file, in that which is installed with the command if @path
 * is NULL. False: told by warnx() why not.
 */
bool model_find(const char *path, const char *name, struct model *model);

/* Bytes of a tensor of bfloat16 in one layer, which may be more than any number holds. */
double model_tensor_bytes(const struct model *model, unsigned int tensor, uint64_t tokens);

#endif
