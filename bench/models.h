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

/* Short names of the tensors: Q, K, V. */
extern const char *const model_tensors[MODEL_TENSORS];

/*
 * Finds a model in the file @path, or in the installed file if @path is NULL. Returns false after
 * printing the error message with warnx().
 */
bool model_find(const char *path, const char *name, struct model *model);

/* Returns the bytes of a bfloat16 tensor in one layer. The result may exceed any integer type. */
double model_tensor_bytes(const struct model *model, unsigned int tensor, uint64_t tokens);

#endif
