/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The room of the options that users set.
 *
 * Read table.h first, the only list of them. knob.h has their names, and marks for error
 * messages. read.h reads the variables of an environment. error.c gives error messages to the
 * program, with the names that its user knows.
 *
 * Locks: none.
 */
#ifndef LIB_CONFIG_H
#define LIB_CONFIG_H

#include "config/knob.h"
#include "config/read.h"

#endif /* LIB_CONFIG_H */
