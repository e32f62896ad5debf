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

char *memory_of(CUdeviceptr address, size_t bytes, const char **host)
{
	char *memory = device_memory(address, bytes);

	if (memory || !bytes || device_address((char *)(uintptr_t)address) != address ||
	    !memory_is_pinned((char *)(uintptr_t)address, bytes))
		return memory;
	*host = (char *)(uintptr_t)address;
	return (char *)(uintptr_t)address;
}

static CUresult start(CUstream stream, struct operation *operation, const char *host)
{
	bool is_pinned = !host || memory_is_pinned(host, operation->bytes);
	CUresult result = usable_context(NULL);

	if (!result)
		result = stream_check(stream);
	if (result || !operation->bytes)
		return result;
	if (host && memory_is_partly_pinned(host, operation->bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (is_pinned)
		operation->pinned = host;
	result = stream_do(stream, operation);
	if (result || is_pinned)
		return result;
	unpinned++;
	return stream_wait_idle(stream);
}

/* Between memory of the host and of the current device, one way or the other. */
static CUresult copy_async(const char *name, CUdeviceptr device, char *host, bool to_device,
			   size_t bytes, CUstream stream)
{
	struct operation operation = {
		.kind = OPERATION_COPY,
		.name = name,
		.bytes = bytes,
		.to_device = to_device,
		.from_device = !to_device,
	};
	char *memory;

	ENTER_AS(name);
	memory = device_memory(device, bytes);
	operation.to = to_device ? memory : host;
	operation.from = to_device ? host : memory;
	if (bytes && (!memory || !host))
		return CUDA_ERROR_INVALID_VALUE;
	return start(stream, &operation, host);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount,
			      CUstream hStream)
{
	return copy_async("cuMemcpyHtoDAsync_v2", dstDevice, (char *)(uintptr_t)srcHost, true,
			  ByteCount, hStream);
}

CUresult cuMemcpyDtoHAsync_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount,
			      CUstream hStream)
{
	return copy_async("cuMemcpyDtoHAsync_v2", srcDevice, dstHost, false, ByteCount, hStream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
			      CUstream hStream)
{
	struct operation operation = {
		.kind = OPERATION_COPY,
		.name = "cuMemcpyDtoDAsync_v2",
		.bytes = ByteCount,
	};
	const char *host = NULL;

	ENTER_AS(operation.name);
	operation.to = memory_of(dstDevice, ByteCount, &host);
	operation.to_device = operation.to != host;
	operation.from = memory_of(srcDevice, ByteCount, &host);
	operation.from_device = operation.from != host;
	if (ByteCount && (!operation.from || !operation.to))
		return CUDA_ERROR_INVALID_VALUE;
	return start(hStream, &operation, host);
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

	ENTER_AS(name);
	operation.to = device_memory(address, operation.bytes);
	if (count && (!operation.to || address % width))
		return CUDA_ERROR_INVALID_VALUE;
	return start(stream, &operation, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream)
{
	return fill("cuMemsetD8Async", dstDevice, uc, 1, N, hStream);
}

CUresult cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream)
{
	return fill("cuMemsetD32Async", dstDevice, ui, 4, N, hStream);
}

static CUresult copy(const char *name, CUdeviceptr device, char *host, bool to_device, size_t bytes)
{
	CUcontext context = NULL;
	char *memory;

	ENTER_AS(name);
	TRY(usable_context(&context));
	streams_wait_idle(context, true);
	memory = device_memory(device, bytes);
	if (!bytes)
		return CUDA_SUCCESS;
	if (!host || !memory || memory_is_partly_pinned(host, bytes))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(to_device ? memory : host, to_device ? host : memory, bytes);
	return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount)
{
	return copy("cuMemcpyHtoD_v2", dstDevice, (char *)(uintptr_t)srcHost, true, ByteCount);
}

CUresult cuMemcpyDtoH_v2(void *dstHost, CUdeviceptr srcDevice, size_t ByteCount)
{
	return copy("cuMemcpyDtoH_v2", srcDevice, dstHost, false, ByteCount);
}
