/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the backend of a region from the region's path or descriptor.
 */
#ifndef LIB_REGION_CHOOSE_H
#define LIB_REGION_CHOOSE_H

#include "actmem.h"
#include "region/backend.h"

/* Finds the backend of the file system of @path. Fails if @wanted names another backend. */
int name_backend(const char *path, enum actmem_backend wanted, const struct backend **backend);

/* Finds the backend of a region that another process created, from the region's descriptor. */
int descriptor_backend(int fd, const struct backend **backend);

#endif /* LIB_REGION_CHOOSE_H */
