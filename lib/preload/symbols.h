/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * The dlsym() and dlvsym() of programs, of which some names are looked at on the way.
 */
#ifndef LIB_PRELOAD_SYMBOLS_H
#define LIB_PRELOAD_SYMBOLS_H

#include <stdbool.h>

/*
 * A program would have these without the preload: the C library's, or those of another
 * preload that comes after this one. They can be called at any time. For RTLD_DEFAULT and
 * RTLD_NEXT their answer depends on the calling library.
 */
extern void *(*next_dlsym)(void *handle, const char *name);
extern void *(*next_dlvsym)(void *handle, const char *name, const char *version);

/*
 * Finds them; done when they are called first at the latest, and to be done while there
 * is one thread.
 */
void symbols_find_next(void);

/*
 * Whether no library before this one, nor the program, has a function of that name. An
 * address does not tell: in a program at a fixed address that takes it, a function of a
 * library has one in the program. For when there is one thread, too.
 */
bool symbols_come_first(const char *name);

/* Whether the program's C library is glibc. With others nothing is done but go on. */
bool is_glibc(void);

struct link_map;

/* The name that a library gives itself (DT_SONAME), or "". */
const char *library_soname(const struct link_map *library);

/* The library that an address is in, or NULL. */
struct link_map *library_of(const void *address);

/* The first one of that name, or NULL. It may go as soon as it is found. */
struct link_map *library_loaded(const char *soname);

#endif /* LIB_PRELOAD_SYMBOLS_H */
