/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/* The disk that a folder lies on. */
#ifndef ACTMEM_DISK_H
#define ACTMEM_DISK_H

#include <jansson.h>

/* {"path", "device", "file_system"}: null where the kernel does not say; NULL: no memory. */
json_t *disk_to_json(const char *path);

#endif
