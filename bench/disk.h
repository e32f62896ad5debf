/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The disks that folders lie on. */
#ifndef ACTMEM_DISK_H
#define ACTMEM_DISK_H

#include <jansson.h>
#include <stdint.h>

#define SPILL_FOLDERS_MAX	64

/*
 * An array of {"path", "device", "file_system"}: null where the kernel does not say. NULL:
 * no memory.
 */
json_t *disks_to_json(const char *const *paths, uint32_t count);

#endif
