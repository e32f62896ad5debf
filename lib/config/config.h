/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * This folder has the options that users set.
 *
 * Read table.h first, which lists all options. knob.h has the names of the options, and the marks
 * that stand for these names in error messages. read.h reads the values of options from an
 * environment. The function actmem_error(), in error.c, returns error messages in which each mark
 * is replaced by a name that the program's user knows.
 *
 * Locks: none.
 */
#ifndef LIB_CONFIG_H
#define LIB_CONFIG_H

#include "config/knob.h"
#include "config/read.h"

#endif /* LIB_CONFIG_H */
