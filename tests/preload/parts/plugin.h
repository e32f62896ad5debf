/* SPDX-License-Identifier: LGPL-2.1-or-later OR MIT */
#ifndef PRELOAD_PLUGIN_H
#define PRELOAD_PLUGIN_H

#pragma GCC visibility push(default)

/* In plugin.so they return 1, in behind.so 2. */
int who(void);
int cuWho(void);

/* By libcuda.so.1's handle, RTLD_DEFAULT and RTLD_NEXT. */
void *plugin_find(const char *name);
void *plugin_default(const char *name);
void *plugin_next(const char *name);
void *plugin_open_behind(void);

#pragma GCC visibility pop

#endif /* PRELOAD_PLUGIN_H */
