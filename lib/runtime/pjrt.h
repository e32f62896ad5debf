/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The part of the PJRT C API, version 0, that the library uses. The structs are those of XLA's
 * xla/pjrt/c/pjrt_c_api.h, which no package of JAX brings along; within a major
 * version functions are added at the end only, and each struct says by its first
 * field how far it reaches. The plugin of jax_cuda13_pjrt 0.10.1 (API 0.108) has
 * DmaMap and DmaUnmap at these places, and expects these sizes of their arguments.
 */
#ifndef LIB_RUNTIME_PJRT_H
#define LIB_RUNTIME_PJRT_H

#include <stddef.h>

#define PJRT_MAJOR	0

struct pjrt_error;

struct pjrt_version {
	size_t struct_size;
	void *extension_start;
	int major_version;
	int minor_version;
};

struct pjrt_error_destroy {
	size_t struct_size;
	void *extension_start;
	struct pjrt_error *error;
};

struct pjrt_error_message {
	size_t struct_size;
	void *extension_start;
	const struct pjrt_error *error;
	const char *message;
	size_t message_size;
};

struct pjrt_error_code {
	size_t struct_size;
	void *extension_start;
	const struct pjrt_error *error;
	int code;
};

struct pjrt_platform_name {
	size_t struct_size;
	void *extension_start;
	void *client;
	const char *name;
	size_t name_size;
};

struct pjrt_dma_map {
	size_t struct_size;
	void *extension_start;
	void *client;
	void *data;
	size_t size;
};

struct pjrt_dma_unmap {
	size_t struct_size;
	void *extension_start;
	void *client;
	void *data;
};

/* Up to its last field without padding behind it, which is how PJRT counts. */
#define PJRT_SIZE(type, last)	(offsetof(struct type, last) + sizeof(((struct type *)0)->last))

/* Functions that are not called are counted, in the order of PJRT_Api. */
struct pjrt_api {
	size_t struct_size;
	void *extension_start;
	struct pjrt_version version;
	void (*error_destroy)(struct pjrt_error_destroy *arguments);
	void (*error_message)(struct pjrt_error_message *arguments);
	struct pjrt_error *(*error_code)(struct pjrt_error_code *arguments);
	void *plugin_and_event[7];
	void *client_create_and_destroy[2];
	struct pjrt_error *(*platform_name)(struct pjrt_platform_name *arguments);
	void *between[97];
	struct pjrt_error *(*dma_map)(struct pjrt_dma_map *arguments);
	struct pjrt_error *(*dma_unmap)(struct pjrt_dma_unmap *arguments);
};

enum {
	PJRT_ALREADY_EXISTS = 6,
	PJRT_NOT_FOUND = 5,
	PJRT_INVALID_ARGUMENT = 3,
	PJRT_PERMISSION_DENIED = 7,
	PJRT_RESOURCE_EXHAUSTED = 8,
	PJRT_UNIMPLEMENTED = 12,
};

#endif /* LIB_RUNTIME_PJRT_H */
