/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * DmaMap and DmaUnmap of a PJRT client, which the caller gives.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"
#include "runtime/inside.h"
#include "runtime/pjrt.h"

_Static_assert(sizeof(void *) != 8 || (offsetof(struct pjrt_api, platform_name) == 136 &&
				       offsetof(struct pjrt_api, dma_map) == 920),
	       "they are the 13th and the 111th function");

static const struct pjrt_api *api_of(const struct actmem_runtime *runtime)
{
	return runtime->options.pjrt_api;
}

static int errno_of(int code)
{
	switch (code) {
	case PJRT_INVALID_ARGUMENT:
		return EINVAL;
	case PJRT_NOT_FOUND:
		return ENOENT;
	case PJRT_ALREADY_EXISTS:
		return EEXIST;
	case PJRT_PERMISSION_DENIED:
		return EPERM;
	case PJRT_RESOURCE_EXHAUSTED:
		return ENOMEM;
	case PJRT_UNIMPLEMENTED:
		return EOPNOTSUPP;
	default:
		return EIO;
	}
}

static int code_of(const struct pjrt_api *api, const struct pjrt_error *error)
{
	struct pjrt_error_code asked = { PJRT_SIZE(pjrt_error_code, code), NULL, error, 0 };
	struct pjrt_error_destroy end = { PJRT_SIZE(pjrt_error_destroy, error), NULL,
					  api->error_code(&asked) };

	if (end.error)
		api->error_destroy(&end);
	return asked.code;
}

/* -errno; its words tell what failed, and PJRT's words for why. Destroys @error. */
static int pjrt_fail(const struct actmem_runtime *runtime, struct pjrt_error *error,
		     const char *format, ...) __attribute__((format(printf, 3, 4)));

static int pjrt_fail(const struct actmem_runtime *runtime, struct pjrt_error *error,
		     const char *format, ...)
{
	const struct pjrt_api *api = api_of(runtime);
	struct pjrt_error_message told = { PJRT_SIZE(pjrt_error_message, message_size), NULL,
					   error, NULL, 0 };
	struct pjrt_error_destroy end = { PJRT_SIZE(pjrt_error_destroy, error), NULL, error };
	int code = code_of(api, error);
	char wanted[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(wanted, sizeof(wanted), format, arguments);
	va_end(arguments);
	api->error_message(&told);
	if (code == PJRT_UNIMPLEMENTED)
		fail(EOPNOTSUPP, "%s: this PJRT client has no DmaMap (UNIMPLEMENTED: %.*s); with a CPU nothing need be registered: use ACTMEM_RUNTIME_NULL",
		     wanted, (int)told.message_size, told.message);
	else
		fail(errno_of(code), "%s: %.*s (PJRT error code %d)", wanted,
		     (int)told.message_size, told.message, code);
	api->error_destroy(&end);
	return -errno_of(code);
}

static int check_version(const struct pjrt_api *api)
{
	if (api->struct_size < offsetof(struct pjrt_api, error_destroy) ||
	    api->version.major_version != PJRT_MAJOR)
		return fail(EOPNOTSUPP, "pjrt_api is not of version %d of the PJRT C API", PJRT_MAJOR);
	if (api->struct_size < PJRT_SIZE(pjrt_api, dma_unmap))
		return fail(EOPNOTSUPP, "PJRT C API %d.%d has no DmaMap: it has %zu bytes of %zu wanted; use a newer plugin",
			    api->version.major_version, api->version.minor_version,
			    api->struct_size, PJRT_SIZE(pjrt_api, dma_unmap));
	if (!api->dma_map || !api->dma_unmap)
		return fail(EOPNOTSUPP, "this PJRT plugin leaves DmaMap out; use another runtime");
	return 0;
}

static int pjrt_open(struct actmem_runtime *runtime)
{
	const struct pjrt_api *api = api_of(runtime);
	struct pjrt_platform_name asked = { PJRT_SIZE(pjrt_platform_name, name_size), NULL,
					    runtime->options.pjrt_client, NULL, 0 };
	struct pjrt_error *failed;
	int error = check_version(api);

	if (error)
		return error;
	failed = api->platform_name(&asked);
	if (failed)
		return pjrt_fail(runtime, failed, "cannot ask the PJRT client for its platform");
	/* A client may have several devices, at different nodes. */
	runtime->info.node = -1;
	snprintf(runtime->info.text, sizeof(runtime->info.text), "%.*s (PJRT C API %d.%d)",
		 (int)asked.name_size, asked.name, api->version.major_version,
		 api->version.minor_version);
	return 0;
}

static int pjrt_begin(struct registration *registration)
{
	return registration->flags ? fail(EOPNOTSUPP, "PJRT's DmaMap knows no flags; leave out 0x%x",
					  registration->flags) : 0;
}

static void pjrt_end(struct registration *registration)
{
}

static int pjrt_add(struct registration *registration, void *address, uint64_t length)
{
	const struct actmem_runtime *runtime = registration->runtime;
	struct pjrt_dma_map wanted = { PJRT_SIZE(pjrt_dma_map, size), NULL,
				       runtime->options.pjrt_client, address, length };
	struct pjrt_error *error = api_of(runtime)->dma_map(&wanted);

	return error ? pjrt_fail(runtime, error, "cannot map %s at %p for DMA with %s",
				 BYTES_TEXT(length), address, runtime->info.text) : 0;
}

static int pjrt_drop(struct registration *registration, void *address, uint64_t length)
{
	const struct actmem_runtime *runtime = registration->runtime;
	struct pjrt_dma_unmap wanted = { PJRT_SIZE(pjrt_dma_unmap, data), NULL,
					 runtime->options.pjrt_client, address };
	struct pjrt_error *failed = api_of(runtime)->dma_unmap(&wanted);
	int error = failed ? pjrt_fail(runtime, failed, "cannot unmap %s at %p from %s",
				       BYTES_TEXT(length), address, runtime->info.text) : 0;

	return error == -ENOENT ? RUNTIME_LOST : error;
}

/* PJRT has no call that tells. */
static int pjrt_look(struct registration *registration, void *address, uint32_t *flags)
{
	*flags = 0;
	return 0;
}

const struct runtime_kind runtime_pjrt = {
	.kind = ACTMEM_RUNTIME_PJRT,
	.name = "pjrt",
	.open = pjrt_open,
	.begin = pjrt_begin,
	.end = pjrt_end,
	.add = pjrt_add,
	.drop = pjrt_drop,
	.look = pjrt_look,
};
