/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
/*
 * Finds the dlsym() and dlvsym() that the program would call if the preload did not define its own
 * (dlsym.S), and identifies libraries.
 */
#ifndef LIB_PRELOAD_SYMBOLS_H
#define LIB_PRELOAD_SYMBOLS_H

#include <stdbool.h>

/*
 * The functions that a program would call without the preload: the C library's, or those of another
 * preload that comes after this one. The functions can be called at any time. For RTLD_DEFAULT and
 * RTLD_NEXT, the results depend on the calling library.
 */
extern void *(*next_dlsym)(void *handle, const char *name);
extern void *(*next_dlvsym)(void *handle, const char *name, const char *version);

/*
 * Sets next_dlsym and next_dlvsym. Must be called while there is only one thread. If the program
 * calls dlsym() or dlvsym() before the constructor runs, the preload's dlsym() or dlvsym() calls
 * this function.
 */
void symbols_find_next(void);

/*
 * Returns true if neither the program nor a library before this one has a function named @name.
 * Comparing addresses would not suffice: in a program that is linked to a fixed address, the
 * address of a library's function can be that of a PLT entry of the program. Must be called while
 * there is only one thread.
 */
bool symbols_come_first(const char *name);

/*
 * Returns true if the program's C library is glibc. With another C library, the preload only passes
 * each call on to the next library's function.
 */
bool is_glibc(void);

struct link_map;

/* Returns the library's own name (DT_SONAME), or "" if it has none. */
const char *library_soname(const struct link_map *library);

/* Returns the library that contains the address, or NULL. */
struct link_map *library_of(const void *address);

/*
 * Returns the first loaded library with the soname @soname, or NULL. The program can unload the
 * library at any time.
 */
struct link_map *library_loaded(const char *soname);

#endif /* LIB_PRELOAD_SYMBOLS_H */
