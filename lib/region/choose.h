/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Tells by its file which backend a region comes from that is there.
 */
#ifndef LIB_REGION_CHOOSE_H
#define LIB_REGION_CHOOSE_H

#include "actmem.h"
#include "region/backend.h"

/* Finds the backend of the file system that @path is on, if it may be @wanted. */
int name_backend(const char *path, enum actmem_backend wanted, const struct backend **backend);

/* Finds the backend of a region that another process has made, by its descriptor. */
int descriptor_backend(int fd, const struct backend **backend);

#endif /* LIB_REGION_CHOOSE_H */
