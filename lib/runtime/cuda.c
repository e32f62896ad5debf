/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Registers regions with the CUDA driver API.
 *
 * CUDA does not work in a child of a process that used CUDA, so this file does not call CUDA in
 * such a child. Because cuInit() can fork, a thread that calls cuInit() holds no lock that fork()
 * takes.
 */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/base.h"
#include "cuda/cuda.h"
#include "machine/machine.h"
#include "runtime/inside.h"

static atomic_bool has_begun;		/* this process or an ancestor may have called CUDA */
static atomic_uint begun_generation;	/* handles_generation when has_begun was set */

static const char *advice_for(cuda_result result)
{
	switch (result) {
	case CUDA_OUT_OF_MEMORY:
		return "; register less memory, or use smaller pieces (chunk_bytes)";
	case CUDA_NOT_INITIALIZED:
		return "; CUDA does not work in a process forked from one that used CUDA: start a new process instead (multiprocessing's spawn)";
	case CUDA_STUB_LIBRARY:
		return "; the library is the toolkit's stub: remove its folder from LD_LIBRARY_PATH";
	case CUDA_NO_DEVICE:
		return "; check that /dev/nvidia0 exists, and that CUDA_VISIBLE_DEVICES includes the GPU";
	case CUDA_DEVICE_UNAVAILABLE:
		return "; another process uses the GPU, and its compute mode is exclusive (nvidia-smi -q -d COMPUTE)";
	case CUDA_OPERATING_SYSTEM:
		return "; the kernel did not pin the pages: dmesg may show the reason";
	case CUDA_SYSTEM_NOT_READY:
		return "; if the GPUs have NVLink switches, check that nvidia-fabricmanager runs";
	case CUDA_DRIVER_MISMATCH:
		return "; libcuda.so.1 and NVIDIA's kernel module have different versions: reload the module";
	case CUDA_STREAM_CAPTURE_UNSUPPORTED:
		return "; a stream is being captured (cuStreamBeginCapture): register before or after the capture";
	case CUDA_ALREADY_REGISTERED:
		return "; another part of this process has already registered part of the memory, as DmaMap of PJRT does on a GPU";
	case CUDA_CONTEXT_IS_DESTROYED:
	case CUDA_INVALID_CONTEXT:
		return "; the CUDA context has been destroyed or reset";
	default:
		return "";
	}
}

/* Sets an error message: what failed, and why in CUDA's terms. Returns a negative errno. */
static int cuda_fail(cuda_result result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static int cuda_fail(cuda_result result, const char *format, ...)
{
	char wanted[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(wanted, sizeof(wanted), format, arguments);
	va_end(arguments);
	return fail(cuda_errno(result), "%s: %s%s", wanted, CUDA_TEXT(result), advice_for(result));
}

/*
 * Loads CUDA if necessary, initialises it, and stores the current number of devices in *@devices.
 */
static int start_cuda(unsigned int uses, int *devices)
{
	char words[ERROR_TEXT_MAX];
	cuda_result result;
	int error;

	if (has_begun && begun_generation != handles_generation)
		return fail(EOWNERDEAD, "this process was forked from one that used CUDA%s",
			    advice_for(CUDA_NOT_INITIALIZED));
	/* Set both before cuda_load() takes its lock, which a child could inherit locked. */
	begun_generation = handles_generation;
	has_begun = true;
	error = cuda_load(uses, words, sizeof(words));
	if (error)
		return fail(-error, "%s", words);
	result = cuda.cuInit(0);
	if (result)
		return cuda_fail(result, "cannot initialise CUDA (cuInit)");
	result = cuda.cuDeviceGetCount(devices);
	if (result)
		return cuda_fail(result, "cannot count CUDA's devices");
	return *devices ? 0 : fail(ENODEV, "CUDA has no device%s", advice_for(CUDA_NO_DEVICE));
}

/*
 * Returns the node of a device, or -1 if sysfs does not know it. On machines without NUMA, sysfs
 * itself reports -1.
 */
static int node_of_bus_id(const char *bus_id)
{
	char id[CUDA_BUS_ID_BYTES] = "";
	uint64_t node;
	unsigned int i;

	for (i = 0; bus_id[i] && i + 1 < sizeof(id); i++)
		id[i] = (char)tolower((unsigned char)bus_id[i]);
	if (sysfile_value(&node, "/sys/bus/pci/devices/%s/numa_node", id) ||
	    node >= ACTMEM_NODES_MAX)
		return -1;
	return (int)node;
}

static int cuda_open(struct actmem_runtime *runtime)
{
	char name[CUDA_NAME_BYTES] = "", bus_id[CUDA_BUS_ID_BYTES] = "";
	int ordinal = runtime->options.device, devices, version;
	cuda_result result;
	int error = start_cuda(CUDA_REGISTERS | (runtime->options.own_memory ? CUDA_ALLOCATES : 0),
			       &devices);

	if (error)
		return error;
	if (ordinal >= devices)
		return fail(ENODEV, "CUDA has %d devices, numbered from 0, so there is no device %d; check CUDA_VISIBLE_DEVICES",
			    devices, ordinal);
	result = cuda.cuDeviceGet(&runtime->device, ordinal);
	if (!result)
		result = cuda.cuDeviceGetName(name, sizeof(name) - 1, runtime->device);
	if (!result)
		result = cuda.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id) - 1, runtime->device);
	if (!result)
		result = cuda.cuDriverGetVersion(&version);
	if (result)
		return cuda_fail(result, "cannot get the properties of CUDA device %d", ordinal);
	runtime->info.device = ordinal;
	runtime->info.node = node_of_bus_id(bus_id);
	snprintf(runtime->info.text, sizeof(runtime->info.text), "%s (%s, CUDA %d.%d)", name,
		 bus_id, version / 1000, version % 1000 / 10);
	return 0;
}

/* Returns true if the error means that a registration has ended with its context. */
static bool is_gone(cuda_result result)
{
	return result == CUDA_NOT_REGISTERED || cuda_context_is_gone(result);
}

/*
 * Returns true if the thread's current context belongs to the device and is alive. The context may
 * have been destroyed, or a primary context may have been reset. Because cuCtxGetDevice() is not
 * documented to detect a dead context, the function also asks for the device's free memory.
 */
static bool current_serves(const struct actmem_runtime *runtime, cuda_context current)
{
	size_t left, total;
	int device;

	return current && !cuda.cuCtxGetDevice(&device) && device == runtime->device &&
	       !is_gone(cuda.cuMemGetInfo_v2(&left, &total));
}

/*
 * Chooses the caller's context, if it belongs to the device and is not the primary context.
 * Otherwise chooses the primary context, and retains it until the region is unregistered. Does not
 * create the primary context just to compare it with the caller's. The runtime's own memory always
 * uses the primary context, because the caller's context may end earlier than the memory.
 */
static int cuda_begin(struct registration *registration)
{
	const struct actmem_runtime *runtime = registration->runtime;
	cuda_context current = NULL, primary = NULL;
	unsigned int flags;
	int active = 0;
	cuda_result result = cuda.cuCtxGetCurrent(&current);

	if (!result && !registration->own && current_serves(runtime, current)) {
		result = cuda.cuDevicePrimaryCtxGetState(runtime->device, &flags, &active);
		if (!result && !active) {
			registration->context = current;
			return 0;
		}
	} else {
		current = NULL;
	}
	if (!result)
		result = cuda.cuDevicePrimaryCtxRetain(&primary, runtime->device);
	if (result)
		return cuda_fail(result, "cannot get a context of %s to register %s",
				 runtime->info.text, BYTES_TEXT(registration->length));
	if (current && current != primary) {
		cuda.cuDevicePrimaryCtxRelease_v2(runtime->device);
		registration->context = current;
		return 0;
	}
	registration->context = primary;
	registration->has_primary = true;
	return 0;
}

/*
 * Releases the primary context. Ignores a failure: it happens only while the process ends, when
 * CUDA has released everything.
 */
static void cuda_end(struct registration *registration)
{
	if (registration->has_primary)
		cuda.cuDevicePrimaryCtxRelease_v2(registration->runtime->device);
	registration->has_primary = false;
}

/*
 * Makes the registration's context current. Sets *@pushed if another context was current before, so
 * that cuda_leave() restores it.
 */
static cuda_result cuda_enter(const struct registration *registration, bool *pushed)
{
	cuda_context current = NULL;
	cuda_result result = cuda.cuCtxGetCurrent(&current);

	*pushed = false;
	if (result || current == registration->context)
		return result;
	result = cuda.cuCtxPushCurrent_v2(registration->context);
	*pushed = !result;
	return result;
}

static void cuda_leave(bool pushed)
{
	cuda_context popped;

	if (pushed)
		cuda.cuCtxPopCurrent_v2(&popped);
}

static int add_own(struct registration *registration, uint64_t length)
{
	unsigned int flags = CUDA_REGISTER_PORTABLE;
	void *memory = NULL;
	cuda_result result;
	bool pushed;

	if (registration->flags & ACTMEM_REGISTER_DEVICEMAP)
		flags |= CUDA_REGISTER_DEVICEMAP;
	result = cuda_enter(registration, &pushed);
	if (!result)
		result = cuda.cuMemHostAlloc(&memory, length, flags);
	cuda_leave(pushed);
	if (result)
		return cuda_fail(result, "cannot allocate %s with %s (cuMemHostAlloc)",
				 BYTES_TEXT(length), registration->runtime->info.text);
	registration->address = memory;
	own_place(registration->region, memory);
	return 0;
}

static int cuda_add(struct registration *registration, void *address, uint64_t length)
{
	unsigned int flags = CUDA_REGISTER_PORTABLE;
	cuda_result result;
	bool pushed;

	if (registration->own)
		return add_own(registration, length);
	if (registration->flags & ACTMEM_REGISTER_DEVICEMAP)
		flags |= CUDA_REGISTER_DEVICEMAP;
	if (registration->flags & ACTMEM_REGISTER_READ_ONLY)
		flags |= CUDA_REGISTER_READ_ONLY;
	result = cuda_enter(registration, &pushed);
	if (!result)
		result = cuda.cuMemHostRegister_v2(address, length, flags);
	cuda_leave(pushed);
	if (!result)
		return 0;
	cuda_fail(result, "cannot register %s at %p with %s", BYTES_TEXT(length), address,
		  registration->runtime->info.text);
	if (result == CUDA_NOT_SUPPORTED && registration->flags & ACTMEM_REGISTER_READ_ONLY)
		fail_more("; the device does not support read-only registration (ACTMEM_REGISTER_READ_ONLY)");
	return -cuda_errno(result);
}

static int tell_lost(const void *address, uint64_t length, cuda_result result)
{
	cuda_fail(result, "%s at %p were not registered any more, because their context has ended",
		  BYTES_TEXT(length), address);
	return RUNTIME_LOST;
}

/*
 * Returns 0 if CUDA knows the address. Callers check this before they use the registration's
 * context, because a program can destroy its own context at any time. A driver can refuse to answer
 * a thread without a context, although the memory is registered. In that case the function returns
 * 0 if the registration uses the primary context, and the next CUDA call reports an error.
 */
static cuda_result cuda_knows(const struct registration *registration, const void *address)
{
	cuda_context context;
	cuda_result result = cuda.cuPointerGetAttribute(&context, CUDA_POINTER_CONTEXT,
							(cuda_pointer)(uintptr_t)address);

	if (registration->has_primary &&
	    (result == CUDA_INVALID_CONTEXT || result == CUDA_CONTEXT_IS_DESTROYED))
		return CUDA_OK;
	return result == CUDA_INVALID_VALUE ? CUDA_NOT_REGISTERED : result;
}

static int cuda_drop(struct registration *registration, void *address, uint64_t length)
{
	cuda_result result = cuda_knows(registration, address);
	bool pushed = false;

	if (!result)
		result = cuda_enter(registration, &pushed);
	if (!result)
		result = registration->own ? cuda.cuMemFreeHost(address) :
			 cuda.cuMemHostUnregister(address);
	cuda_leave(pushed);
	if (!result)
		return 0;
	if (is_gone(result))
		return tell_lost(address, length, result);
	return cuda_fail(result, "cannot unregister %s at %p from %s; CUDA unregisters the memory when the context ends (cuDevicePrimaryCtxReset() or the end of the process)",
			 BYTES_TEXT(length), address, registration->runtime->info.text);
}

static int cuda_look(struct registration *registration, void *address, uint32_t *flags)
{
	cuda_result result = cuda_knows(registration, address);
	bool pushed = false;

	*flags = 0;
	if (!result)
		result = cuda_enter(registration, &pushed);
	/*
	 * This call can fail even for registered memory, because CUDA does not know the flags of
	 * all memory.
	 */
	if (!result && cuda.cuMemHostGetFlags(flags, address))
		*flags = 0;
	cuda_leave(pushed);
	if (result && is_gone(result))
		return RUNTIME_LOST;
	return result ? cuda_fail(result, "cannot get CUDA's attributes of %p", address) : 0;
}

static int cuda_pointer_of(struct registration *registration, void *address, uint64_t *pointer)
{
	cuda_result result = cuda_knows(registration, address);
	cuda_pointer mapped = 0;
	bool pushed = false;

	if (!result)
		result = cuda_enter(registration, &pushed);
	if (!result)
		result = cuda.cuMemHostGetDevicePointer_v2(&mapped, address, 0);
	cuda_leave(pushed);
	if (result && is_gone(result)) {
		cuda_fail(result, "%p is not registered any more, because its context has ended", address);
		return -ESTALE;
	}
	if (result)
		return cuda_fail(result, "cannot get the device's address of %p; register it with ACTMEM_REGISTER_DEVICEMAP",
				 address);
	*pointer = mapped;
	return 0;
}

const struct runtime_kind runtime_cuda = {
	.kind = ACTMEM_RUNTIME_CUDA,
	.name = "cuda",
	.open = cuda_open,
	.begin = cuda_begin,
	.end = cuda_end,
	.add = cuda_add,
	.drop = cuda_drop,
	.look = cuda_look,
	.has_own = true,
	.pointer = cuda_pointer_of,
};
