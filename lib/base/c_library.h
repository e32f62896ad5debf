/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The Makefile includes this file first in every source file. With _GNU_SOURCE, glibc 2.38 and
 * later redirect strtoul() and sscanf() to new symbols that accept "0b1" as a number. Libraries
 * that use those symbols do not load with an older glibc, nor with musl. The library that `actmem
 * run` preloads must load with both of these C libraries. musl also lacks the checking functions of
 * _FORTIFY_SOURCE. Packages are built with _FORTIFY_SOURCE, and Ubuntu's compiler enables it by
 * default.
 */
#ifdef ACTMEM_PRELOAD
#undef _FORTIFY_SOURCE
#endif
#include <features.h>

#ifdef __GLIBC_USE_C2X_STRTOL
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#endif
#ifdef __GLIBC_USE_C23_STRTOL
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0
#endif
