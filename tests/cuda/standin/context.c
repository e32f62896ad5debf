/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Devices and contexts: those that a program creates, the primary one of each
 * device, and the stack of each thread. What a handle was of is remembered after
 * its end, so that using it is an error and no more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin.h"

#define STACK_MAX	32

int device_count;

static char bus_ids[DEVICES_MAX][32];
static struct CUctx_st primaries[DEVICES_MAX];
static struct CUctx_st *contexts;	/* that were created, ended ones too */
static unsigned long long next_id;
static __thread CUcontext stack[STACK_MAX];
static __thread unsigned int depth;

CUresult context_configure(void)
{
	const char *count = getenv("STANDIN_CUDA_DEVICES"), *ids = getenv("STANDIN_CUDA_BUS_IDS");
	int i;

	device_count = count ? atoi(count) : 1;
	if (device_count < 0 || device_count > DEVICES_MAX)
		return CUDA_ERROR_UNKNOWN;
	if (!device_count)
		return CUDA_ERROR_NO_DEVICE;
	for (i = 0; i < device_count; i++) {
		snprintf(bus_ids[i], sizeof(bus_ids[i]), "0000:%02X:00.0", 0x17 + i);
		if (ids && *ids) {
			snprintf(bus_ids[i], sizeof(bus_ids[i]), "%.*s",
				 (int)strcspn(ids, ","), ids);
			ids += strcspn(ids, ",");
			ids += *ids == ',';
		}
		primaries[i].primary = true;
		primaries[i].device = i;
	}
	return CUDA_SUCCESS;
}

void context_count(struct standin_counts *counts)
{
	const struct CUctx_st *context;
	int i;

	for (context = contexts; context; context = context->next)
		counts->contexts += context->alive;
	for (i = 0; i < device_count; i++) {
		counts->contexts += primaries[i].alive;
		counts->retained += primaries[i].retained;
	}
}

CUcontext primary_context(CUdevice device)
{
	return &primaries[device];
}

bool is_device(CUdevice device)
{
	return device >= 0 && device < device_count;
}

static bool is_known(CUcontext wanted)
{
	const struct CUctx_st *context = contexts;

	while (context && context != wanted)
		context = context->next;
	return context || (wanted >= primaries && wanted < primaries + device_count);
}

/* Of a handle that is given. */
static CUresult check_handle(CUcontext context)
{
	if (!context || !is_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context->alive)
		return CUDA_SUCCESS;
	return context->primary ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult usable_context(CUcontext *context)
{
	if (!depth || !stack[depth - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!stack[depth - 1]->alive)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (context)
		*context = stack[depth - 1];
	return stack[depth - 1]->poison;
}

static void end_context(CUcontext context)
{
	context->alive = false;
	captures_end_context(context);
	streams_end_context(context);
	memory_end_context(context);
	device_end_context(context);
	context->poison = CUDA_SUCCESS;
}

/* Begins a call about a device, as enter() does. @is_given: what else it needs. */
static CUresult enter_about(const char *function, CUdevice device, bool is_given)
{
	CUresult result = enter(function);

	if (result)
		return result;
	if (!is_given)
		return leave(CUDA_ERROR_INVALID_VALUE);
	return is_device(device) ? CUDA_SUCCESS : leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGetCount(int *count)
{
	CUresult result = enter("cuDeviceGetCount");

	if (result)
		return result;
	if (!count)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*count = device_count;
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	CUresult result = enter_about("cuDeviceGet", ordinal, device);

	if (result)
		return result;
	*device = ordinal;
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	CUresult result = enter_about("cuDeviceGetName", dev, name && len > 0);

	if (result)
		return result;
	snprintf(name, (size_t)len, "Stand-in GPU");	/* one model, as XLA wants it */
	return leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	CUresult result = enter_about("cuDeviceGetPCIBusId", dev,
				      pciBusId && len >= (int)sizeof("0000:00:00.0"));

	if (result)
		return result;
	snprintf(pciBusId, (size_t)len, "%s", bus_ids[dev]);
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	CUresult result = enter_about("cuDevicePrimaryCtxRetain", dev, pctx);

	if (result)
		return result;
	if (!primaries[dev].alive)
		primaries[dev].id = ++next_id;
	primaries[dev].alive = true;
	primaries[dev].retained++;
	*pctx = &primaries[dev];
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	CUresult result = enter_about("cuDevicePrimaryCtxRelease_v2", dev, true);

	if (result)
		return result;
	if (!primaries[dev].retained)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	if (!--primaries[dev].retained)
		end_context(&primaries[dev]);
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return cuDevicePrimaryCtxRelease_v2(dev);
}

/* It stays retained as often as it was. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	CUresult result = enter_about("cuDevicePrimaryCtxReset_v2", dev, true);

	if (result)
		return result;
	end_context(&primaries[dev]);
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	CUresult result = enter_about("cuDevicePrimaryCtxGetState", dev, flags && active);

	if (result)
		return result;
	*flags = primaries[dev].flags;
	*active = primaries[dev].alive;
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	CUresult result = enter_about("cuDevicePrimaryCtxSetFlags_v2", dev, true);

	if (result)
		return result;
	primaries[dev].flags = flags;
	return leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

static CUresult create(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	struct CUctx_st *context;

	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_device(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	context = depth < STACK_MAX ? calloc(1, sizeof(*context)) : NULL;
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->id = ++next_id;
	context->device = dev;
	context->flags = flags;
	context->alive = true;
	context->next = contexts;
	contexts = context;
	stack[depth++] = context;
	*pctx = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
			CUdevice dev)
{
	CUresult result = enter("cuCtxCreate_v4");

	return result ? result : leave(create(pctx, flags, dev));
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams,
			unsigned int flags, CUdevice dev)
{
	return cuCtxCreate_v4(pctx, NULL, flags, dev);
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return cuCtxCreate_v4(pctx, NULL, flags, dev);
}

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
	return cuCtxCreate_v4(pctx, NULL, flags, dev);
}

/* Current to this thread, it is popped; to others, it stays so and is of no use. */
CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	CUresult result = enter("cuCtxDestroy_v2");

	if (result)
		return result;
	result = check_handle(ctx);
	if (!result && ctx->primary)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result)
		return leave(result);
	end_context(ctx);
	if (depth && stack[depth - 1] == ctx)
		depth--;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxDestroy(CUcontext ctx)
{
	return cuCtxDestroy_v2(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	CUresult result = enter("cuCtxPushCurrent_v2");

	if (result)
		return result;
	result = check_handle(ctx);
	if (!result && depth == STACK_MAX)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (!result)
		stack[depth++] = ctx;
	return leave(result);
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
	return cuCtxPushCurrent_v2(ctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	CUresult result = enter("cuCtxPopCurrent_v2");

	if (result)
		return result;
	if (!depth)
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	depth--;
	if (pctx)
		*pctx = stack[depth];
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
	return cuCtxPopCurrent_v2(pctx);
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	CUresult result = enter("cuCtxSetCurrent");

	if (result)
		return result;
	if (ctx)
		result = check_handle(ctx);
	if (result)
		return leave(result);
	if (depth)
		depth--;
	if (ctx)
		stack[depth++] = ctx;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	CUresult result = enter("cuCtxGetCurrent");

	if (result)
		return result;
	if (!pctx)
		return leave(CUDA_ERROR_INVALID_VALUE);
	*pctx = depth ? stack[depth - 1] : NULL;
	return leave(CUDA_SUCCESS);
}

/* That of a context which has ended, too: whoever asks is not to take it for alive. */
CUresult cuCtxGetDevice(CUdevice *device)
{
	CUresult result = enter("cuCtxGetDevice");

	if (result)
		return result;
	if (!device)
		return leave(CUDA_ERROR_INVALID_VALUE);
	if (!depth || !stack[depth - 1])
		return leave(CUDA_ERROR_INVALID_CONTEXT);
	*device = stack[depth - 1]->device;
	return leave(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	CUresult result = enter("cuCtxGetId");

	if (result)
		return result;
	if (!ctxId)
		return leave(CUDA_ERROR_INVALID_VALUE);
	result = ctx ? check_handle(ctx) : usable_context(&ctx);
	if (!result)
		*ctxId = ctx->id;
	return leave(result);
}

CUresult cuCtxSynchronize(void)
{
	CUresult result = enter("cuCtxSynchronize");
	CUcontext context = NULL;

	if (result)
		return result;
	result = usable_context(&context);
	if (!result)
		result = capture_forbids_waiting(context, NULL);
	if (!result) {
		streams_wait_idle(context, false);
		result = context->poison;
	}
	return leave(result);
}
