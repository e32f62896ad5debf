/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Copies and fills. Those that end by Async are a stream's to do. Of host memory that
 * is not registered they wait until they are done, as staging has to, and are counted.
 * Those without a stream wait for the streams that the default one blocks.
 */
#include <string.h>

#include "standin.h"

static uint64_t unpinned;

void copy_count(struct standin_counts *counts)
{
	counts->unpinned_copies = unpinned;
}

CUresult operation_failure(const struct operation *operation)
{
	CUresult wanted = wanted_execution_failure(operation->name);

	if (wanted)
		return wanted;
	if ((operation->to_device && !device_has_shadow(operation->to)) ||
	    (operation->from_device && !device_has_shadow(operation->from)) ||
	    (operation->pinned && !memory_is_pinned(operation->pinned, operation->bytes)))
		return CUDA_ERROR_ILLEGAL_ADDRESS;
	return CUDA_SUCCESS;
}

static CUresult start(CUstream stream, struct operation *operation, const char *host)
{
	bool is_pinned = !host || memory_is_pinned(host, operation->bytes);
	CUresult result = usable_context(NULL);

	if (!result)
		result = stream_check(stream);
	if (result || !operation->bytes)
		return result;
	if (is_pinned)
		operation->pinned = host;
	result = stream_do(stream, operation);
	if (result || is_pinned)
		return result;
	unpinned++;
	return stream_wait_idle(stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
			      CUstream hStream)
{
	struct operation operation = {
		.kind = OPERATION_COPY,
		.name = "cuMemcpyHtoDAsync_v2",
		.from = srcHost,
		.bytes = ByteCount,
		.to_device = true,
	};
	CUresult result = enter(operation.name);

	if (result)
		return result;
	operation.to = device_memory(dstDevice, ByteCount);
	if (ByteCount && (!operation.to || !srcHost))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(start(hStream, &operation, srcHost));
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
			      CUstream hStream)
{
	struct operation operation = {
		.kind = OPERATION_COPY,
		.name = "cuMemcpyDtoHAsync_v2",
		.to = dstHost,
		.bytes = ByteCount,
		.from_device = true,
	};
	CUresult result = enter(operation.name);

	if (result)
		return result;
	operation.from = device_memory(srcDevice, ByteCount);
	if (ByteCount && (!operation.from || !dstHost))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(start(hStream, &operation, dstHost));
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
			      CUstream hStream)
{
	struct operation operation = {
		.kind = OPERATION_COPY,
		.name = "cuMemcpyDtoDAsync_v2",
		.bytes = ByteCount,
		.to_device = true,
		.from_device = true,
	};
	CUresult result = enter(operation.name);

	if (result)
		return result;
	operation.to = device_memory(dstDevice, ByteCount);
	operation.from = device_memory(srcDevice, ByteCount);
	if (ByteCount && (!operation.from || !operation.to))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(start(hStream, &operation, NULL));
}

static CUresult fill(const char *name, CUdeviceptr address, unsigned int value, size_t width,
		     size_t count, CUstream stream)
{
	struct operation operation = {
		.kind = OPERATION_FILL,
		.name = name,
		.value = value,
		.width = width,
		.bytes = width * count,
		.to_device = true,
	};
	CUresult result = enter(name);

	if (result)
		return result;
	operation.to = device_memory(address, operation.bytes);
	if (count && (!operation.to || address % width))
		return leave(CUDA_ERROR_INVALID_VALUE);
	return leave(start(stream, &operation, NULL));
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return fill("cuMemsetD8Async", dstDevice, uc, 1, N, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return fill("cuMemsetD32Async", dstDevice, ui, 4, N, hStream);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	CUresult result = enter("cuMemcpyHtoD_v2");
	CUcontext context = NULL;

	if (result)
		return result;
	result = usable_context(&context);
	if (!result)
		streams_wait_idle(context, true);
	if (!result && ByteCount && (!srcHost || !device_memory(dstDevice, ByteCount)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && ByteCount)
		memcpy(device_memory(dstDevice, ByteCount), srcHost, ByteCount);
	return leave(result);
}

CUresult cuMemcpyHtoD(CUdeviceptr_v1 dstDevice, const void *srcHost, unsigned int ByteCount)
{
	return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	CUresult result = enter("cuMemcpyDtoH_v2");
	CUcontext context = NULL;

	if (result)
		return result;
	result = usable_context(&context);
	if (!result)
		streams_wait_idle(context, true);
	if (!result && ByteCount && (!dstHost || !device_memory(srcDevice, ByteCount)))
		result = CUDA_ERROR_INVALID_VALUE;
	if (!result && ByteCount)
		memcpy(dstHost, device_memory(srcDevice, ByteCount), ByteCount);
	return leave(result);
}

CUresult cuMemcpyDtoH(void *dstHost, CUdeviceptr_v1 srcDevice, unsigned int ByteCount)
{
	return CUDA_ERROR_INVALID_VALUE;
}
