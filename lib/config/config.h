/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This folder has the options that users set.
 *
 * Read table.h first, which lists all of them. Their names, and the marks that stand for them in
 * error messages, are in knob.h. read.h reads their values from an environment. The function
 * actmem_error(), in error.c, returns error messages with the names that the program's user knows.
 *
 * Locks: none.
 */
#ifndef LIB_CONFIG_H
#define LIB_CONFIG_H

#include "config/knob.h"
#include "config/read.h"

#endif /* LIB_CONFIG_H */
