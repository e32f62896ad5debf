// SPDX-License-Identifier: GPL-2.0
/* Does MODULE_IMPORT_NS take a string, or does it make one of a word? */
#include <linux/module.h>

#undef MODULE_INFO
#define MODULE_INFO(tag, text) static_assert(sizeof(text) == sizeof("DMA_BUF"), #tag)

#if PROBE
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
