/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The PJRT runtime, with a client of the test's own that checks its arguments as the
 * plugins of XLA do, keeps what is mapped, and counts the errors that it gave out.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common.h"
#include "actmem_runtime.h"
#include "runtime/pjrt.h"

#define CHUNK		(2 * MIB)
#define MAPPED_MAX	16

struct pjrt_error {
	int code;
	const char *message;
};

static struct {
	const char *platform;
	struct {
		char *data;
		size_t size;
	} mapped[MAPPED_MAX];
	unsigned int maps, errors;	/* there now */
	unsigned int fail_after;	/* DmaMap of as many chunks fails */
	int fail_code;
} client;

static struct pjrt_error *failure(int code, const char *message)
{
	struct pjrt_error *error = malloc(sizeof(*error));

	if (!error)
		abort();
	*error = (struct pjrt_error){ code, message };
	client.errors++;
	return error;
}

static void error_destroy(struct pjrt_error_destroy *arguments)
{
	client.errors -= arguments->error != NULL;
	free(arguments->error);
}

/* Not terminated, as its length is told. */
static void error_message(struct pjrt_error_message *arguments)
{
	arguments->message = arguments->error->message;
	arguments->message_size = strlen(arguments->message) - 1;
}

static struct pjrt_error *error_code(struct pjrt_error_code *arguments)
{
	if (arguments->struct_size != 28)
		return failure(3, "size of PJRT_Error_GetCode_Args?");
	arguments->code = arguments->error->code;
	return NULL;
}

static struct pjrt_error *platform_name(struct pjrt_platform_name *arguments)
{
	if (arguments->struct_size != 40)
		return failure(3, "size of PJRT_Client_PlatformName_Args?");
	if (arguments->client != &client)
		return failure(3, "no such client?");
	arguments->name = client.platform;
	arguments->name_size = 4;
	return NULL;
}

static struct pjrt_error *dma_map(struct pjrt_dma_map *arguments)
{
	unsigned int i;

	if (arguments->struct_size != 40 || arguments->client != &client)
		return failure(3, "size of PJRT_Client_DmaMap_Args?");
	if (!strncmp(client.platform, "host", 4))
		return failure(12, "DmaMap is not supported on host?");
	if (client.fail_code && client.maps == client.fail_after)
		return failure(client.fail_code, "as the test wants?");
	for (i = 0; i < client.maps; i++)
		if (client.mapped[i].data == arguments->data)
			return failure(6, "mapped already?");
	client.mapped[client.maps].data = arguments->data;
	client.mapped[client.maps++].size = arguments->size;
	return NULL;
}

static struct pjrt_error *dma_unmap(struct pjrt_dma_unmap *arguments)
{
	unsigned int i = 0;

	if (arguments->struct_size != 32 || arguments->client != &client)
		return failure(3, "size of PJRT_Client_DmaUnmap_Args?");
	while (i < client.maps && client.mapped[i].data != arguments->data)
		i++;
	if (i == client.maps)
		return failure(5, "not mapped?");
	client.mapped[i] = client.mapped[--client.maps];
	return NULL;
}

static struct pjrt_api api_of(size_t size, int major, int minor)
{
	return (struct pjrt_api){
		.struct_size = size,
		.version = { .struct_size = 24, .major_version = major, .minor_version = minor },
		.error_destroy = error_destroy,
		.error_message = error_message,
		.error_code = error_code,
		.platform_name = platform_name,
		.dma_map = dma_map,
		.dma_unmap = dma_unmap,
	};
}

static int open_with(struct actmem *am, const struct pjrt_api *api, struct actmem_runtime **runtime)
{
	struct actmem_runtime_options options = {
		.size = sizeof(options), .chunk_bytes = CHUNK, .pjrt_api = api,
		.pjrt_client = &client,
	};

	return actmem_runtime_open(am, &options, runtime);
}

static void test_region(struct actmem *am, struct actmem_runtime *runtime,
			struct actmem_runtime *other)
{
	struct actmem_region *region = region_or_bail(am, "mapped for DMA");
	char *memory = memory_or_bail(region);
	uint64_t pointer;
	unsigned int i;

	returns(actmem_region_register(region, runtime, ACTMEM_REGISTER_DEVICEMAP), -EOPNOTSUPP);
	says("no flags");
	returns(actmem_region_register(region, runtime, 0), 0);
	ok(client.maps == LENGTH / CHUNK, "each chunk is mapped");
	for (i = 0; i < client.maps; i++)
		ok(client.mapped[i].data == memory + i * CHUNK && client.mapped[i].size == CHUNK,
		   "chunk %u where it is", i);
	returns(actmem_region_register(region, other, 0), -EEXIST);
	says("pjrt: cuda");
	returns(actmem_runtime_pointer(runtime, memory, &pointer, NULL), -EOPNOTSUPP);
	returns(actmem_region_close(region), -EBUSY);
	returns(actmem_region_unregister(region), 0);
	ok(!*actmem_error() && !client.maps, "nothing stays mapped");

	client.fail_code = 8;
	client.fail_after = 2;
	returns(actmem_region_register(region, runtime, 0), -ENOMEM);
	says("as the test wants (PJRT error code 8)");
	client.fail_code = 13;
	returns(actmem_region_register(region, runtime, 0), -EIO);
	ok(!client.maps, "half a region is not left mapped");
	client.fail_code = 0;

	returns(actmem_region_register(region, runtime, 0), 0);
	client.maps = 0;
	returns(actmem_region_unregister(region), 0);
	says("not mapped (PJRT error code 5)");
	returns(actmem_region_unmap(region), 0);
	returns(actmem_region_close(region), 0);
}

static void test_cpu(struct actmem *am, const struct pjrt_api *api)
{
	struct actmem_region *region = region_or_bail(am, "of a CPU");
	struct actmem_runtime *runtime;

	client.platform = "host platform";
	returns(open_with(am, api, &runtime), 0);
	returns(actmem_region_register(region, runtime, 0), -EOPNOTSUPP);
	says("UNIMPLEMENTED: DmaMap is not supported on host)");
	says("ACTMEM_RUNTIME_NULL");
	returns(actmem_region_close(region), 0);
	returns(actmem_runtime_close(runtime), 0);
}

static void test_versions(struct actmem *am)
{
	struct actmem_runtime *runtime;
	struct pjrt_api api = api_of(sizeof(api) - sizeof(void *), 0, 40);

	returns(open_with(am, &api, &runtime), -EOPNOTSUPP);
	says("PJRT C API 0.40 has no DmaMap: it has 928 bytes of 936 wanted");
	api = api_of(sizeof(api), 1, 0);
	returns(open_with(am, &api, &runtime), -EOPNOTSUPP);
	says("version 0");
	api = api_of(8, 0, 0);
	returns(open_with(am, &api, &runtime), -EOPNOTSUPP);
	api = api_of(sizeof(api), 0, 108);
	api.dma_map = NULL;
	returns(open_with(am, &api, &runtime), -EOPNOTSUPP);
	says("leaves DmaMap out");
}

int main(void)
{
	struct pjrt_api api = api_of(sizeof(api) + 192, 0, 108);
	struct actmem_runtime_options options;
	struct actmem_runtime *runtime, *other;
	struct usage before = usage_now();
	struct actmem *am = open_or_bail();

	ok(sizeof(api) == 936, "the functions lie where they are in XLA's header");
	client.platform = "cuda and more";
	ACTMEM_INIT(&options);
	options.kind = ACTMEM_RUNTIME_NULL;
	returns(actmem_runtime_open(am, &options, &other), 0);
	returns(open_with(am, &api, &runtime), 0);
	ok(!strcmp(actmem_runtime_describe(runtime), "pjrt: cuda (PJRT C API 0.108), as it is there"),
	   "AUTO is PJRT where a client is given: %s", actmem_runtime_describe(runtime));
	test_region(am, runtime, other);
	returns(actmem_runtime_close(runtime), 0);
	returns(actmem_runtime_close(other), 0);
	test_cpu(am, &api);
	test_versions(am);
	ok(!client.errors, "every error of PJRT's was destroyed (%u left)", client.errors);
	return end_tests(am, before);
}
