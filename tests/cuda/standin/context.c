/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Devices and contexts: those that a program creates, the primary one of each
 * device, and the stack of each thread. What a handle was of is remembered after
 * its end, so that using it is an error and no more.
 *
 * Memory, events and streams that are made in a green context are the primary context's.
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

static bool is_alive(CUcontext context)
{
	return context->alive && (!context->green_of || context->green_of->alive);
}

/* Of a handle that is given. */
static CUresult check_handle(CUcontext context)
{
	if (!context || !is_known(context))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (is_alive(context))
		return CUDA_SUCCESS;
	return context->primary ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult usable_context(CUcontext *context)
{
	CUcontext current;

	if (!depth || !stack[depth - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	current = stack[depth - 1];
	if (!is_alive(current))
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (current->green_of)
		current = current->green_of;
	if (context)
		*context = current;
	return current->poison;
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

/* @is_given: what else a call needs. */
static CUresult check_device(CUdevice device, bool is_given)
{
	if (!is_given)
		return CUDA_ERROR_INVALID_VALUE;
	return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *count)
{
	ENTER();
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = device_count;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	ENTER();
	TRY(check_device(ordinal, device));
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	ENTER();
	TRY(check_device(dev, name && len > 0));
	snprintf(name, (size_t)len, "Stand-in GPU");	/* one model, as XLA wants it */
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	ENTER();
	TRY(check_device(dev, pciBusId && len >= (int)sizeof("0000:00:00.0")));
	snprintf(pciBusId, (size_t)len, "%s", bus_ids[dev]);
	return CUDA_SUCCESS;
}

static CUcontext retain_primary(CUdevice dev)
{
	if (!primaries[dev].alive)
		primaries[dev].id = ++next_id;
	primaries[dev].alive = true;
	primaries[dev].retained++;
	return &primaries[dev];
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	ENTER();
	TRY(check_device(dev, pctx));
	*pctx = retain_primary(dev);
	return CUDA_SUCCESS;
}

static CUresult release_primary(CUdevice dev)
{
	if (!primaries[dev].retained)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!--primaries[dev].retained)
		end_context(&primaries[dev]);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	ENTER();
	TRY(check_device(dev, true));
	return release_primary(dev);
}

/* It stays retained as often as it was. */
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	ENTER();
	TRY(check_device(dev, true));
	end_context(&primaries[dev]);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	ENTER();
	TRY(check_device(dev, flags && active));
	*flags = primaries[dev].flags;
	*active = primaries[dev].alive;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	ENTER();
	TRY(check_device(dev, true));
	primaries[dev].flags = flags;
	return CUDA_SUCCESS;
}

static CUcontext new_context(CUdevice dev, unsigned int flags)
{
	struct CUctx_st *context = calloc(1, sizeof(*context));

	if (!context)
		return NULL;
	context->id = ++next_id;
	context->device = dev;
	context->flags = flags;
	context->alive = true;
	context->next = contexts;
	contexts = context;
	return context;
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags,
			CUdevice dev)
{
	CUcontext context;

	ENTER();
	TRY(check_device(dev, pctx));
	context = depth < STACK_MAX ? new_context(dev, flags) : NULL;
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = context;
	*pctx = context;
	return CUDA_SUCCESS;
}

/* Current to this thread, it is popped; to others, it stays so and is of no use. */
CUresult cuCtxDestroy_v2(CUcontext ctx)
{
	ENTER();
	TRY(check_handle(ctx));
	if (ctx->primary || ctx->green_of)
		return CUDA_ERROR_INVALID_CONTEXT;
	end_context(ctx);
	if (depth && stack[depth - 1] == ctx)
		depth--;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx)
{
	ENTER();
	TRY(check_handle(ctx));
	if (depth == STACK_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx)
{
	ENTER();
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (pctx)
		*pctx = stack[depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
	ENTER();
	TRY(ctx ? check_handle(ctx) : CUDA_SUCCESS);
	if (depth)
		depth--;
	if (ctx)
		stack[depth++] = ctx;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	ENTER();
	if (!pctx)
		return CUDA_ERROR_INVALID_VALUE;
	*pctx = depth ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

/* That of a context which has ended, too: whoever asks is not to take it for alive. */
CUresult cuCtxGetDevice(CUdevice *device)
{
	ENTER();
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (!depth || !stack[depth - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = stack[depth - 1]->device;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
	ENTER();
	if (!ctxId)
		return CUDA_ERROR_INVALID_VALUE;
	TRY(ctx ? check_handle(ctx) : usable_context(&ctx));
	*ctxId = ctx->id;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	CUcontext context = NULL;

	ENTER();
	TRY(usable_context(&context));
	TRY(capture_forbids_waiting(context, NULL));
	streams_wait_idle(context, false);
	return context->poison;
}

/* All of a device is one resource: nothing runs here that could be given a part of it. */
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	ENTER();
	TRY(check_device(device, resource && type == CU_DEV_RESOURCE_TYPE_SM));
	memset(resource, 0, sizeof(*resource));
	resource->type = type;
	resource->sm.smCount = 8;
	return CUDA_SUCCESS;
}

CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources,
				   unsigned int nbResources)
{
	static char described;

	ENTER();
	if (!phDesc || !resources || nbResources != 1)
		return CUDA_ERROR_INVALID_VALUE;
	*phDesc = (CUdevResourceDesc)&described;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			  unsigned int flags)
{
	CUcontext context;

	ENTER();
	TRY(check_device(dev, phCtx && desc && flags == CU_GREEN_CTX_DEFAULT_STREAM));
	context = new_context(dev, flags);
	if (!context)
		return CUDA_ERROR_OUT_OF_MEMORY;
	context->green_of = retain_primary(dev);
	*phCtx = (CUgreenCtx)context;
	return CUDA_SUCCESS;
}

CUresult green_check(CUgreenCtx green)
{
	CUresult result = check_handle((CUcontext)green);

	return result || ((CUcontext)green)->green_of ? result : CUDA_ERROR_INVALID_CONTEXT;
}

/* Its streams are of no use any more, and stay. */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	ENTER();
	TRY(green_check(hCtx));
	((CUcontext)hCtx)->alive = false;
	return release_primary(((CUcontext)hCtx)->device);
}

CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	ENTER();
	TRY(pContext ? green_check(hCtx) : CUDA_ERROR_INVALID_VALUE);
	*pContext = (CUcontext)hCtx;
	return CUDA_SUCCESS;
}
