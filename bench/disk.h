/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* Finds the disks of folders. */
#ifndef ACTMEM_DISK_H
#define ACTMEM_DISK_H

#include <jansson.h>
#include <stdint.h>

#define SPILL_FOLDERS_MAX	64

/*
 * Returns an array with {"path", "device", "file_system"} for each path; a value is null if the
 * kernel does not report it. Returns NULL if out of memory.
 */
json_t *disks_to_json(const char *const *paths, uint32_t count);

#endif
