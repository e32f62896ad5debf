/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Included first in every file, by the Makefile. glibc 2.38 and later give strtoul() and
 * sscanf() other names wherever there is _GNU_SOURCE, so that "0b1" is a number to them:
 * with those names the libraries would load neither beside an older glibc nor, as the
 * preload has to, beside musl. Nor has musl the functions that check what they write,
 * which packages are built with, and which Ubuntu's compiler takes by itself.
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
