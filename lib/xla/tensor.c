/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Passes arrays to XLA with DLPack. XLA calls end_tensor() on the thread that used the array last.
 * This can be a thread that Python does not know, so end_tensor() must not call Python.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "xla/arrays.h"
#include "xla/dlpack.h"

/* One allocation, which includes the shape. */
struct tensor {
	struct dlpack_managed managed;
	struct actmem_xla_array *array;
	int64_t shape[];
};

static void end_tensor(struct dlpack_managed *managed)
{
	struct tensor *tensor = managed->context;
	struct actmem_xla_array *array = tensor->array;

	free(tensor);
	arrays_let_go(array);
}

int actmem_xla_tensor_new(struct actmem_xla_array *array,
			  const struct actmem_xla_tensor_options *options, void **result)
{
	struct tensor *tensor;
	size_t shape_bytes;

	if (options->size < sizeof(*options))
		return -EINVAL;
	shape_bytes = options->rank * sizeof(options->shape[0]);
	tensor = calloc(1, sizeof(*tensor) + shape_bytes);
	if (!tensor)
		return -ENOMEM;
	memcpy(tensor->shape, options->shape, shape_bytes);
	tensor->array = array;
	tensor->managed.tensor.data = options->address;
	tensor->managed.tensor.device.type = options->device_type;
	tensor->managed.tensor.device.id = options->device;
	tensor->managed.tensor.rank = (int32_t)options->rank;
	tensor->managed.tensor.type.code = options->code;
	tensor->managed.tensor.type.bits = options->bits;
	tensor->managed.tensor.type.width = 1;
	tensor->managed.tensor.shape = tensor->shape;
	tensor->managed.context = tensor;
	tensor->managed.deleter = end_tensor;
	arrays_hold(array);
	*result = &tensor->managed;
	return 0;
}

void actmem_xla_tensor_drop(void *tensor)
{
	struct dlpack_managed *managed = tensor;

	managed->deleter(managed);
}
